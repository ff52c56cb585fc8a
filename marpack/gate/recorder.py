"""`marpack run --record`: inputs and their answers → samples and expectations in marpack.yaml."""

import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from marpack.archive.staging import replace_file
from marpack.errors import ProjectError
from marpack.gate.expectations import shortfalls
from marpack.gate.recording import expectation_of
from marpack.project.amending import amend
from marpack.project.schema import Expectation, Project
from marpack.runner.results import Exchange, Result

_FOLDER = "samples"
_SUFFIXES = {"application/json": ".json", "text/plain": ".txt", "image/png": ".png", "image/jpeg": ".jpg"}


class Kept(StrEnum):
    """What became of one input."""

    ADDED = "added"
    UPDATED = "updated"  # its answer was not what was expected
    MET = "met"  # what was expected, which stays as the author wrote it
    REFUSED = "refused"  # nothing can be expected of it


class Recorded(Struct, frozen=True):
    """One input, recorded or not."""

    sample: str  # its `input` in marpack.yaml
    kept: Kept
    reason: str = ""  # why it was refused


class Recorder:
    """Takes answers in, and writes them in the end."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._folder = project.folder.resolve()
        self._known = {self._own(sample.input): sample for sample in project.samples}
        self._files: dict[str, bytes] = {}  # to be written beside marpack.yaml
        self._expected: dict[str, Expectation] = {}
        self.done: list[Recorded] = []

    def through(self, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """Yield exchanges as they come, and remember them."""
        for exchange in exchanges:
            self.done.append(self._take(exchange))
            yield exchange

    def _take(self, exchange: Exchange) -> Recorded:
        request, result = exchange.input.request, exchange.result
        if exchange.input.refused is not None or len(request.parts) != 1 or request.parts[0].name != "body":
            return Recorded(result.input, Kept.REFUSED, "only what is sent as a body can be a sample")
        part = request.parts[0]
        name, is_file = self._name(result.input, part.value, part.content_type)
        expected = expectation_of(result)
        if expected is None or result.status >= 500:
            return Recorded(name, Kept.REFUSED, _why_not(result))
        known = self._known.get(self._own(name))
        if known is not None and known.expect is not None and not shortfalls(known.expect, result):
            return Recorded(known.input, Kept.MET)
        if not is_file and not self._free(name, part.value):
            return Recorded(name, Kept.REFUSED, "there is another file of that name in the project")
        if not is_file:
            self._files[name] = part.value
        spelt = known.input if known is not None else name
        self._expected[spelt] = expected
        return Recorded(spelt, Kept.ADDED if known is None else Kept.UPDATED)

    def _own(self, name: str) -> str:
        return str(Path(self._folder, name).resolve())

    def _name(self, name: str, data: bytes, content_type: str) -> tuple[str, bool]:
        """Return an input's path within the project, and whether it lies there already."""
        file = Path(name)
        if "://" not in name and file.is_file():
            full = file.resolve()
            if full.is_relative_to(self._folder):
                return full.relative_to(self._folder).as_posix(), True
            return f"{_FOLDER}/{full.name}", False
        if "://" in name:
            return f"{_FOLDER}/{PurePosixPath(urlsplit(name).path).name or 'sample'}", False
        digest = hashlib.sha256(data).hexdigest()[:8]
        return f"{_FOLDER}/recorded-{digest}{_SUFFIXES.get(content_type, '')}", False

    def _free(self, name: str, data: bytes) -> bool:
        """Say whether a file may be written: nothing else is there, nor is about to be."""
        file = self._folder / name
        there = self._files.get(name) if name in self._files or not file.exists() else file.read_bytes()
        return there is None or there == data

    def write(self) -> None:
        """Write what was recorded. Raises ProjectError, with marpack.yaml as it was, if it cannot be written."""
        if not self._expected:
            return
        for name, data in self._files.items():
            file = self._folder / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, data)
            except OSError as error:
                raise ProjectError(f"the sample cannot be written: {error.strerror}", where=str(file)) from error
        told = {name: msgspec.to_builtins(expected) for name, expected in self._expected.items()}
        amend(Path(self._project.file), told)


def _why_not(result: Result) -> str:
    if result.status >= 500:
        return f"a {result.status} is no answer to hold on to; mend the handler, or write the expectation by hand"
    return "the connection broke off" if result.reset else f"{result.status} is no status that can be expected"
