"""Native and generated code among an archive's files, recognized by its first bytes, its name or a zip's members."""

import re
from enum import StrEnum
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.bytesource import read_at
from marpack.archive.zip_format import ZipEntry

_PE_OFFSET = 0x3C  # bytes from the start of a DOS header to the offset of the PE header
_PYC_MAGIC = range(3000, 4000)  # Python 3's; every release has its own
_PYC_2 = range(50_000, 65_536)  # Python 1.5 to 2.7
_PYC_HEADER = 16  # bytes
_NATIVE = (
    b"\x7fELF",  # ELF
    b"\xfe\xed\xfa\xce",  # Mach-O
    b"\xfe\xed\xfa\xcf",  # Mach-O
    b"\xce\xfa\xed\xfe",  # Mach-O
    b"\xcf\xfa\xed\xfe",  # Mach-O
    b"\xca\xfe\xba\xbe",  # Mach-O or Java class
    b"\xbe\xba\xfe\xca",  # Mach-O
    b"\xca\xfe\xba\xbf",  # Mach-O
    b"!<arch>\n",  # object archive
    b"\0asm\x01\0\0\0",  # WebAssembly
    b"BC\xc0\xde",  # LLVM bitcode
    b"\xde\xc0\x17\x0b",  # LLVM bitcode
    b"\x50\xed\x55\xba",  # CUDA fat binary
    b"dex\n0",  # Dalvik
)
_NAMES = re.compile(r"\.(?:so(?:\.\d+)*|pyd|dll|dylib|exe|o|cubin|hsaco|node|wasm)\Z", re.IGNORECASE)
_PYTHON_NAMES = re.compile(r"\.py[co]\Z", re.IGNORECASE)
# torch looks members up without regard to case.
_AOTI = re.compile(r"(?:^|/)data/aotinductor/.", re.IGNORECASE)
_GENERATED = re.compile(r"\.(?:py|c|cc|cpp|cxx|h|hpp|cu|cuh|s|ptx|ll|metal|spv)\Z", re.IGNORECASE)
_PACKAGE = re.compile(r"(?:^|/)\.data/extern_modules\Z", re.IGNORECASE)
_VERSION = re.compile(r"(?:^|/)\.data/version\Z", re.IGNORECASE)
_EXPORTED = re.compile(r"(?:^|/)archive_format\Z", re.IGNORECASE)
FIRST_BYTES = frozenset(magic[:1] for magic in _NATIVE) | {b"M"}  # with which native code may begin


class ProgramKind(StrEnum):
    """A kind of code that runs without an interpreter of ours in between."""

    NATIVE = "native code"
    BYTECODE = "Python bytecode"
    GENERATED = "generated code"
    AOTI_PACKAGE = "AOTInductor package"
    TORCH_PACKAGE = "torch.package"


class Program(Struct, frozen=True):
    """A file, or a member of one, that holds native or generated code."""

    where: str  # "model.pt2!model/data/aotinductor/model/a.so"
    kind: ProgramKind


def program_kind(name: str, head: bytes, file: BinaryIO) -> ProgramKind | None:
    """Return the kind of program that a file is, by its name or its first 64 bytes or more; None for another file."""
    pe_header = int.from_bytes(head[_PE_OFFSET : _PE_OFFSET + 4], "little")  # of a DOS header
    if head.startswith(_NATIVE) or (head.startswith(b"MZ") and read_at(file, pe_header, 4) == b"PE\0\0"):
        return ProgramKind.NATIVE
    magic, flags = int.from_bytes(head[:2], "little"), int.from_bytes(head[4:8], "little")
    if len(head) >= _PYC_HEADER and head[2:4] == b"\r\n" and (magic in _PYC_2 or (magic in _PYC_MAGIC and flags <= 3)):
        return ProgramKind.BYTECODE
    return named_kind(name)


def named_kind(name: str) -> ProgramKind | None:
    """Return the kind of program that a file's name says it is; None for another name."""
    if _NAMES.search(name):
        return ProgramKind.NATIVE
    if _PYTHON_NAMES.search(name):
        return ProgramKind.BYTECODE
    return ProgramKind.GENERATED if _AOTI.search(name) and _GENERATED.search(name) else None


def package_kind(entries: tuple[ZipEntry, ...]) -> ProgramKind | None:
    """Return the kind of program that a zip is, by the names of its members; None for another zip."""
    names = [entry.name for entry in entries]
    is_exported = any(map(_EXPORTED.search, names))
    if any(map(_PACKAGE.search, names)) or (not is_exported and any(map(_VERSION.search, names))):
        return ProgramKind.TORCH_PACKAGE
    return ProgramKind.AOTI_PACKAGE if any(map(_AOTI.search, names)) else None
