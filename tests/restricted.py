"""Run a command where the system refuses something: `python restricted.py WHAT... -- COMMAND...`.

WHAT: `memfd` (files in memory), `namespaces` (as Docker's default seccomp profile does), `fork` (as an exhausted
`ulimit -u` does, but only for processes that would share their parent's parent, as a zygote's do), `shm` (/dev/shm is
read-only; needs the right to mount).
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # linux/bpf_common.h: on 32-bit words
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_CLONE_PARENT = 0x8000  # linux/sched.h
_NEW_MOUNTS, _RECURSIVELY_PRIVATE, _READ_ONLY = 0x20000, 0x44000, 0x1  # linux/sched.h, linux/mount.h
_CALLS = {
    "x86_64": {"clone": 56, "unshare": 272, "memfd_create": 319},
    "aarch64": {"clone": 220, "unshare": 97, "memfd_create": 279},
}
_RULES = {  # what → the call, the bits of its first argument that are refused (0: all calls), and the error
    "memfd": ("memfd_create", 0, errno.ENOSYS),
    "namespaces": ("unshare", 0, errno.EPERM),
    "fork": ("clone", _CLONE_PARENT, errno.EAGAIN),
}


def forbid(what: str) -> None:
    """Refuse a kind of system call to this process and its children."""
    call, bits, error = _RULES[what]
    program = b"".join(_instructions(_CALLS[os.uname().machine][call], bits, error))
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def _instructions(number: int, bits: int, error: int) -> Iterator[bytes]:
    yield struct.pack("HBBI", _LOAD, 0, 0, _NUMBER)
    yield struct.pack("HBBI", _IF_EQUAL, 0, 3 if bits else 1, number)
    if bits:
        yield struct.pack("HBBI", _LOAD, 0, 0, _FIRST_ARGUMENT)
        yield struct.pack("HBBI", _IF_ANY_BIT, 0, 1, bits)
    yield struct.pack("HBBI", _RETURN, 0, 0, _ERRNO | error)
    yield struct.pack("HBBI", _RETURN, 0, 0, _ALLOW)


def make_shared_memory_read_only() -> None:
    """Make /dev/shm read-only for this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    # A mount must never be made before the process has left the namespace of the system.
    if (
        libc.unshare(_NEW_MOUNTS)
        or libc.mount(None, b"/", None, _RECURSIVELY_PRIVATE, None)
        or libc.mount(b"none", b"/dev/shm", b"tmpfs", _READ_ONLY, None)
    ):
        raise OSError(ctypes.get_errno(), "this process may not mount")


def main() -> None:
    """Give up what was named, and become the command."""
    end = sys.argv.index("--")
    for what in sorted(sys.argv[1:end], key=lambda what: what != "shm"):  # first: it needs a namespace
        make_shared_memory_read_only() if what == "shm" else forbid(what)
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])


if __name__ == "__main__":
    main()
