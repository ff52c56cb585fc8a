"""`--record`: answers → samples and expectations in marpack.yaml, an archive's in that of a project made for it."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct

from marpack.archive.protocol import Archive
from marpack.archive.staging import replace_file, staged_folder
from marpack.errors import ProjectError
from marpack.gate.compare import NOTHING, TOLERANCE, value_of
from marpack.gate.expectations import shape_of, shortfalls
from marpack.project.load import load_project
from marpack.project.scaffold.from_archive import reclaim
from marpack.project.scaffold.write_files import new_folder, place
from marpack.project.schema import RANGE, Expectation, Project, SampleSpec, TextExpectation
from marpack.project.yaml_edits import update_samples
from marpack.runner.inputs import suffix_of_type
from marpack.runner.results import AnsweredInput, Result

_MAX_COUNT = 24  # values of one answer that are recorded
_DEEPEST = 8
_MAX_BODY = 200  # characters recorded as they are; of a longer text, its beginning
_MAX_START = 60
_DIGITS = 6  # of a recorded number
_INT64 = 1 << 63
_NO = object()  # nothing can be said of this value
_FOLDER = "samples"


def expectation_of(result: Result) -> Expectation | None:
    """Return what to expect of an answer like this one; None for one that no client could hold on to.

    Whole numbers, text and the like are expected exactly, other numbers within a thousandth. What is too large to be
    written down is expected in its shape, or its beginning.
    """
    if result.reset or not 100 <= result.status <= 599:
        return None
    value = value_of(result)
    if value is not NOTHING:
        return _of_value(result.status, value)
    if result.body_encoding == "base64" or "\0" in result.body:
        return Expectation(status=result.status)
    if len(result.body) <= _MAX_BODY:
        return Expectation(status=result.status, body=result.body)
    first = next(iter(result.body.strip().splitlines()), "")
    start = first[:_MAX_START].strip()
    return Expectation(status=result.status, text=TextExpectation(contains=start) if start else None)


def _of_value(status: int, value: Any) -> Expectation:  # Any: JSON
    if isinstance(value, dict) and _count(value) > _MAX_COUNT:
        plain = ((key, item) for key, item in value.items() if not isinstance(item, dict | list))
        value = dict(islice(plain, _MAX_COUNT))
    reported = _told(value, 0) if _count(value) <= _MAX_COUNT else _NO
    shape = list(shape_of(value)) if reported is _NO and isinstance(value, list) and value else None
    return Expectation(status=status, json=UNSET if reported is _NO else reported, shape=shape)


def _count(value: Any, depth: int = 0) -> int:
    """Count the values within a value, as far as it takes to see that they are too many."""
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return 1
    total = 0
    for item in value.values() if isinstance(value, dict) else value:
        total += _count(item, depth + 1)
        if total > _MAX_COUNT:
            break
    return total


def _told(value: Any, depth: int) -> Any:
    """Return what to expect of a value; of an object, only what can be said, of a list all of it or nothing."""
    if depth > _DEEPEST:
        return _NO
    if isinstance(value, dict):
        reported = {key: _told(item, depth + 1) for key, item in value.items() if _is_plain(key)}
        kept = {key: item for key, item in reported.items() if item is not _NO}
        return _NO if kept and set(kept) <= RANGE else kept  # it would be read as what stands for a number
    if isinstance(value, list):
        items = [_told(item, depth + 1) for item in value]
        return _NO if any(item is _NO for item in items) else items
    if isinstance(value, str):
        return value if _is_plain(value) else _NO
    if isinstance(value, float) or (isinstance(value, int) and not -_INT64 <= value < _INT64):
        return _near(value)
    return value


def _is_plain(text: str) -> bool:
    """Say whether a text has a form in UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _near(value: float) -> Any:
    """Return a number with the room that rounding needs; nothing for one that a file cannot hold."""
    try:
        number = float(value)
    except OverflowError:
        return _NO
    if not math.isfinite(number):
        return _NO
    tolerance = float(f"{TOLERANCE * max(1.0, abs(number)):.1g}")
    return {"approx": float(f"{number:.{_DIGITS}g}"), "tolerance": tolerance}


class SavedSample(StrEnum):
    """What became of one input."""

    ADDED = "added"
    FILLED = "filled in"  # nothing but a status was expected of its answer, if that
    UPDATED = "updated"  # its answer was not what was expected
    MET = "met"  # what was expected, which stays as the author wrote it
    REFUSED = "refused"  # nothing can be expected of it


class RecordingSummary(Struct, frozen=True):
    """One input, recorded or not."""

    sample: str  # its `input` in marpack.yaml
    kept: SavedSample
    reason: str = ""  # why it was refused
    expected: Expectation | None = None  # of what was filled in


class Recorder:
    """Takes answers in, and writes them in the end."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._folder = project.folder.resolve()
        self._known = {self._own(sample.input): sample for sample in project.samples}
        self._files: dict[str, bytes] = {}  # to be written beside marpack.yaml
        self._expected: dict[str, Expectation] = {}
        self.done: list[RecordingSummary] = []

    def through(self, answered_inputs: Iterable[AnsweredInput]) -> Iterator[AnsweredInput]:
        """Yield exchanges as they come, and remember them."""
        for answered_input in answered_inputs:
            self.done.append(self._take(answered_input))
            yield answered_input

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._expected

    def _take(self, answered_input: AnsweredInput) -> RecordingSummary:
        request, result = answered_input.input.request, answered_input.result
        if answered_input.input.refused is not None or len(request.parts) != 1 or request.parts[0].name != "body":
            return RecordingSummary(result.input, SavedSample.REFUSED, "only what is sent as a body can be a sample")
        part = request.parts[0]
        name, is_file = self._name(result.input, part.value, part.content_type)
        expected = expectation_of(result)
        if expected is None or result.status >= 500:
            return RecordingSummary(name, SavedSample.REFUSED, _why_not(result))
        if not is_file and not self._free(name, part.value):
            return RecordingSummary(name, SavedSample.REFUSED, "there is another file of that name in the project")
        known = self._known.get(self._own(name))
        kept = _kept(known, expected, result)
        spelt = known.input if known is not None else name
        if kept is SavedSample.MET:
            return RecordingSummary(spelt, kept)
        if not is_file:
            self._files[name] = part.value
        self._expected[spelt] = expected
        return RecordingSummary(spelt, kept, expected=expected if kept is SavedSample.FILLED else None)

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
        return f"{_FOLDER}/recorded-{digest}{suffix_of_type(content_type) or ''}", False

    def _free(self, name: str, data: bytes) -> bool:
        """Say whether a file may be written: nothing else is there, nor is about to be."""
        file = self._folder / name
        there = self._files.get(name) if name in self._files or not file.exists() else file.read_bytes()
        return there is None or there == data

    def write(self) -> None:
        """Write what was recorded. Raises ProjectError, with marpack.yaml as it was, if it cannot be written."""
        if self.is_empty:
            return
        for name, data in self._files.items():
            file = self._folder / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, data)
            except OSError as error:
                raise ProjectError(
                    f"the sample cannot be written: {error.strerror}", where=str(file), code="unwritable-sample"
                ) from error
        reported = {name: msgspec.to_builtins(expected) for name, expected in self._expected.items()}
        update_samples(Path(self._project.file), reported)


class _NothingRecordedError(Exception):
    """No answer can be held on to; private to `NewProject`."""


class NewProject:
    """Takes an archive's answers in, and in the end writes the project that rebuilds it, with them as its samples."""

    def __init__(self, archive: Archive) -> None:
        """Look what is to be written; the archive must stay open. Raises UsageError if its folder is there already."""
        self._reclaimed = reclaim(archive)
        name = self._reclaimed.name
        self.folder = new_folder(
            Path(name), hint=f"record into it, if that is the project: marpack run {name} --record"
        )
        self.findings = self._reclaimed.findings  # what of the archive the project cannot say
        self.done: list[RecordingSummary] = []
        self.made = False  # the folder is there
        self._answers: list[AnsweredInput] = []

    def through(self, answered_inputs: Iterable[AnsweredInput]) -> Iterator[AnsweredInput]:
        """Yield exchanges as they come, and remember them."""
        for answered_input in answered_inputs:
            self._answers.append(answered_input)
            yield answered_input

    def write(self) -> None:
        """Write the project whole, or nothing where no answer can be recorded.

        Raises ScaffoldError, ProjectError and OutputExistsError, with nothing written.
        """
        with suppress(_NothingRecordedError), staged_folder(self.folder, replace=False) as staging:
            place(staging, self._reclaimed.files, replace=False)
            recorder = Recorder(load_project(staging))
            for _ in recorder.through(self._answers):
                pass
            self.done = recorder.done
            if recorder.is_empty:
                raise _NothingRecordedError
            recorder.write()
        self.made = not recorder.is_empty


def _kept(known: SampleSpec | None, expected: Expectation, result: Result) -> SavedSample:
    """Return what becomes of an answer, by what the project knows of its sample."""
    if known is None:
        return SavedSample.ADDED
    if known.expect is None:
        return SavedSample.FILLED
    if shortfalls(known.expect, result):
        return SavedSample.UPDATED
    only_status = known.expect in (Expectation(), Expectation(status=result.status))
    return SavedSample.FILLED if only_status and expected != known.expect else SavedSample.MET


def _why_not(result: Result) -> str:
    if result.status >= 500:
        return f"a {result.status} is no answer to hold on to; mend the handler, or write the expectation by hand"
    return "the connection broke off" if result.reset else f"{result.status} is no status that can be expected"
