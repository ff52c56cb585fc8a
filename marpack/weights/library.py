"""The header of a shared library: for which machine it was compiled, and whether AOTInductor did it."""

from struct import unpack_from
from typing import BinaryIO

_MACHINES = {0x03: "x86", 0x28: "arm", 0x3E: "x86-64", 0xB7: "aarch64", 0xF3: "riscv"}
_TYPES = {1: "object file", 2: "executable", 3: "shared object"}


def library_facts(file: BinaryIO) -> dict[str, str]:
    """Return what an ELF header says about machine and type; nothing for another format."""
    file.seek(0)
    head = file.read(20)
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return {}
    kind, machine = unpack_from(">HH" if head[5] == 2 else "<HH", head, 16)
    bits = "64 bit" if head[4] == 2 else "32 bit"
    return {
        "machine": f"{_MACHINES.get(machine, f'machine {machine}')}, {bits}",
        "type": _TYPES.get(kind, f"type {kind}"),
    }
