"""`python windows.py build …`: marpack as it would find Python on Windows, as far as that can be had elsewhere.

The modules and names that Windows lacks are gone, folders cannot be opened, and what is open is not moved or removed.
"""

import os
import shutil
import signal
import subprocess  # noqa: F401 - libraries make their own choices before anything is taken away
import sys
import tempfile  # noqa: F401
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click  # noqa: F401
import platformdirs  # noqa: F401
import rich.console  # noqa: F401

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")
OF_OS = (
    *("preadv", "pread", "pwrite", "posix_fallocate", "fchmod", "geteuid", "getuid", "fork", "killpg", "getpgid"),
    *("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_NOFOLLOW", "O_DIRECTORY", "O_TMPFILE", "sched_getaffinity", "setsid"),
)
SIGNALS = ("SIGHUP", "SIGKILL", "SIGBUS", "SIGUSR1", "SIGRTMIN")


def is_open(path: str | os.PathLike[str]) -> bool:
    wanted = os.path.realpath(path)
    return any(os.path.realpath(link) == wanted for link in Path("/proc/self/fd").iterdir())


def closed_only(call: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*paths: Any, **options: Any) -> Any:
        if options.get("dir_fd") is None and any(map(is_open, paths)):
            raise PermissionError(13, "The process cannot access the file because it is being used", str(paths[0]))
        return call(*paths, **options)

    return checked


def files_only(call: Callable[..., int]) -> Callable[..., int]:
    def checked(path: Any, *flags: Any, **options: Any) -> int:
        if options.get("dir_fd") is None and Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return call(path, *flags, **options)

    return checked


def synced(call: Callable[[int], None]) -> Callable[[int], None]:
    import fcntl

    def checked(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        call(descriptor)

    return checked


if __name__ == "__main__":
    os.fsync = synced(os.fsync)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # what makes an import of it fail
    for place, names in ((os, OF_OS), (signal, SIGNALS)):
        for name in names:
            if hasattr(place, name):
                delattr(place, name)
    shutil.rmtree.avoids_symlink_attacks = shutil._use_fd_functions = False  # type: ignore[attr-defined]
    os.replace, os.rename, os.unlink = closed_only(os.replace), closed_only(os.rename), closed_only(os.unlink)
    os.open = files_only(os.open)
    sys.platform = "win32"
    from marpack.cli.main import main

    sys.exit(main())
