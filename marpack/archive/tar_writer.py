"""The .tar.gz as marpack writes it: one gzip stream, all under one root folder, nothing of this machine in it."""

from tarfile import BLOCKSIZE, PAX_FORMAT, RECORDSIZE, TarInfo
from typing import BinaryIO

from isal import isal_zlib

from marpack.archive.copying import Copier, Source
from marpack.archive.index import Member

_LEVEL = 1  # of 3: level 3 takes three times as long, and weights come out no smaller
_GZIP = 16 + 15  # zlib's window bits that ask for a gzip header (without name and time) and trailer
_MTIME = 315532800  # seconds since 1970: 1980-01-01, as in the zip


class TarWriter:
    """Writes a gzipped tar, front to back, into a file."""

    def __init__(self, file: BinaryIO, copier: Copier, *, root: str) -> None:
        self._file = file
        self._copier = copier
        self._root = root
        self._deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
        self._length = 0  # bytes, uncompressed

    def add(self, name: str, source: Source, size: int, *, aligned: bool = False) -> Member:  # noqa: ARG002 - no pages here
        """Write one member; see `Writer.add`."""
        header = TarInfo(f"{self._root}/{name}")
        header.size, header.mode, header.mtime = size, 0o644, _MTIME
        self._put(header.tobuf(PAX_FORMAT, errors="strict"))
        sums = self._copier.copy(source, size, self._put)
        self._pad(BLOCKSIZE)
        return Member(name, size, sums.sha256)

    def finish(self) -> None:
        """Write the two empty blocks that end a tar, fill its last record, and end the gzip stream."""
        self._put(bytes(2 * BLOCKSIZE))
        self._pad(RECORDSIZE)
        self._file.write(self._deflate.flush())

    def _put(self, data: bytes | memoryview) -> None:
        self._length += len(data)
        self._file.write(self._deflate.compress(data))

    def _pad(self, multiple: int) -> None:
        self._put(bytes(-self._length % multiple))
