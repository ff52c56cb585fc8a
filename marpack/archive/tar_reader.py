"""A .tar.gz, opened: read from its beginning each time, for gzip knows no other way."""

import io
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from marpack.archive.bytesource import ByteSource
from marpack.archive.cache import Cache, Cached
from marpack.archive.extraction import extract_blocks, make_folders
from marpack.archive.limits import Limits
from marpack.archive.manifest import Manifest
from marpack.archive.member_file import spool
from marpack.archive.pointers import read_manifest
from marpack.archive.progress import Progress
from marpack.archive.protocol import MANIFEST_NAME, Entry, Form, total_size
from marpack.archive.tar_contents import Contents, read_contents, walk
from marpack.errors import DamagedArchiveError, located
from marpack.findings import Finding


class TarArchive:
    """A tar in a gzip stream; see `marpack.archive.protocol.Archive`.

    Nothing is read until something is asked for, and nothing at all when the cache has it extracted.
    """

    form = Form.TGZ

    def __init__(self, source: str, data: ByteSource, *, limits: Limits, cache: Cache) -> None:
        """Take the file; what is wrong with it is found by the first use."""
        self.source = source
        self._data = data
        self._limits = limits
        self._cache = cache

    @cached_property
    def _contents(self) -> Contents:
        with located(self.source):
            return read_contents(self._data, self._limits, self.source)

    @cached_property
    def _extracted(self) -> Cached | None:
        """What the cache has, as long as the archive itself was not read."""
        return None if "_contents" in vars(self) else self._cache.find(self._data.identity)

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every file by its name; see `Archive.entries`."""
        return self._contents.entries

    @property
    def oddities(self) -> tuple[Finding, ...]:
        """What the server refuses; see `Archive.oddities`."""
        return self._extracted.findings if self._extracted else self._contents.findings

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; see `Archive.manifest`."""
        if not self._extracted:
            return read_manifest(self)
        data = (self._extracted.folder / MANIFEST_NAME).read_bytes()
        return Manifest.from_json(data, where=f"{self.source}!{MANIFEST_NAME}")

    def open(self, name: str) -> BinaryIO:
        """Open one member; see `Archive.open`. The gzip stream's own CRC was checked when it was first read."""
        contents = self._contents
        if name in contents.small:
            return io.BytesIO(contents.small[name])
        _ = contents.entries[name]
        for record, blocks in walk(self._data, self._limits):
            if contents.names.get(record.name) == name:
                return spool(blocks)
        raise self._changed()

    def materialize(self) -> Path:
        """Return the extracted folder; see `Archive.materialize`."""
        if not self._extracted:
            _ = self.manifest  # what is wrong with it is said before anything is written
            self._extracted = self._cache.fill(self._data.identity, self._fill, size=total_size(self))
        return self._extracted.folder

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a folder; see `Archive.extract`."""
        contents = self._contents
        make_folders(folder, contents.folders if names is None else ())
        with located(self.source):
            for record, blocks in walk(self._data, self._limits):
                if record.name not in contents.names:
                    raise self._changed()
                name = contents.names[record.name]
                if not record.folder and (names is None or name in names):
                    extract_blocks(blocks, folder, name, progress)

    def _fill(self, folder: Path, progress: Progress | None) -> tuple[Finding, ...]:
        self.extract(folder, progress=progress)
        return self._contents.findings

    def _changed(self) -> DamagedArchiveError:
        return DamagedArchiveError("the archive changed while it was being read", where=self.source)

    def close(self) -> None:
        """Let go of the file, and of the folder in the cache."""
        self._data.close()
        self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
