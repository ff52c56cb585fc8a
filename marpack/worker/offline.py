"""A network namespace of the worker's own (Linux), with nothing in it but a loopback."""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h


def leave_network() -> None:
    """Leave the network, where this user may, while this process has one thread.

    A child tries it first: where the namespace cannot be furnished, a process that has entered it is of no more use.
    """
    child = os.fork()
    if not child:
        os._exit(not _enter())
    if os.waitpid(child, 0)[1] == 0:
        _enter()


def _enter() -> bool:
    user, group = os.geteuid(), os.getegid()
    try:
        unshare = ctypes.CDLL(None).unshare
        if unshare(_CLONE_NEWNET):  # without a namespace of users, root keeps its rights
            if unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
                return False
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    except (OSError, AttributeError):  # another system has no such call
        return False
    return True
