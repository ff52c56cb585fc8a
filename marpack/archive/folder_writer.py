"""A model folder as marpack writes it: one file per member."""

import os
from pathlib import Path

from marpack.archive.copying import Copier, Source
from marpack.archive.index import Member


class FolderWriter:
    """Writes members as files into an empty folder."""

    def __init__(self, folder: Path, copier: Copier) -> None:
        self._folder = folder
        self._copier = copier

    def add(self, name: str, source: Source, size: int, *, aligned: bool = False) -> Member:  # noqa: ARG002 - files are
        """Write one member; see `Writer.add`."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            sums = self._copier.copy(source, size, file.write, skip=lambda count: file.seek(count, os.SEEK_CUR))
            file.truncate(size)  # zeros at the end were skipped, not written
        return Member(name, size, sums.sha256)

    def finish(self) -> None:
        """Nothing stands after the last member."""
