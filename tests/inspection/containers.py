"""Files of files in memory."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any


def written(save: Callable[..., object], *args: Any, **options: Any) -> bytes:
    """Return what a function writes to the file that is its first argument."""
    buffer = io.BytesIO()
    save(buffer, *args, **options)
    return buffer.getvalue()


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    """Return a zip file, which has the same bytes in every run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
        archive.comment = comment
    return buffer.getvalue()


def tarred(members: Mapping[str, bytes], form: int = tarfile.PAX_FORMAT, mode: Any = "w", **fields: object) -> bytes:
    """Return a tar file, whose headers have these fields."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=form) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for field, value in fields.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
