"""Locks on files, where the system has them: Windows has others, and nothing here needs those."""

import errno
import sys

if sys.platform == "win32":
    LOCK_SH, LOCK_EX, LOCK_NB = 1, 2, 4

    def flock(_descriptor: int, _operation: int) -> None:
        """Raise the OSError of a file system without locks."""
        raise OSError(errno.ENOTSUP, "no locks on this system")

else:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

__all__ = ["LOCK_EX", "LOCK_NB", "LOCK_SH", "flock"]
