"""A file's new content, which appears whole or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_file(file: Path, data: bytes) -> None:
    """Write a file by way of another beside it; it keeps its mode, and a link to it stays one.

    Raises OSError with the file as it was.
    """
    target = file.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with open(descriptor, "wb") as new:  # noqa: PTH123 - it is open already
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
