"""`run --record`: save responses as samples with expectations in marpack.yaml, or in a new project for an archive."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, to_builtins

from marpack.archive.protocol import Archive
from marpack.archive.staging import replace_file, staged_folder
from marpack.errors import ProjectError, convert_os_errors
from marpack.gate.compare import NOTHING, TOLERANCE, find_shortfalls, shape_of, value_of
from marpack.json_text import legible
from marpack.project.load import load_project
from marpack.project.scaffold.from_archive import read_project
from marpack.project.scaffold.write_files import new_folder, write_files
from marpack.project.schema import RANGE, Expectation, Project, TextExpectation
from marpack.project.yaml_edits import update_samples
from marpack.runner.inputs import suffix_of_type
from marpack.runner.results import AnsweredInput, Result

_MAX_COUNT = 24  # values of one response that are recorded
_DEEPEST = 8
_MAX_BODY = 200  # characters recorded as they are; of a longer text, its beginning
_MAX_START = 60
_DIGITS = 6  # of a recorded number
_INT64 = 1 << 63
_NO = object()  # a value that cannot be expected
_FOLDER = "samples"


def expectation_of(result: Result) -> Expectation | None:
    """Return an expectation that this response meets; None for a response that cannot be expected.

    Whole numbers, text and the like are expected exactly, other numbers within a thousandth. What is too large to be
    written down is expected in its shape, or its beginning.
    """
    if result.reset or not 100 <= result.status <= 599:
        return None
    value = value_of(result)
    if value is not NOTHING:
        if isinstance(value, dict) and _count(value) > _MAX_COUNT:
            plain = ((key, item) for key, item in value.items() if not isinstance(item, dict | list))
            value = dict(islice(plain, _MAX_COUNT))
        expected = _expect_value(value, 0) if _count(value) <= _MAX_COUNT else _NO
        shape = list(shape_of(value)) if expected is _NO and isinstance(value, list) and value else None
        return Expectation(status=result.status, json=UNSET if expected is _NO else expected, shape=shape)
    if result.body_encoding == "base64" or "\0" in result.body:
        return Expectation(status=result.status)
    if len(result.body) <= _MAX_BODY:
        return Expectation(status=result.status, body=result.body)
    first = next(iter(result.body.strip().splitlines()), "")
    start = first[:_MAX_START].strip()
    return Expectation(status=result.status, text=TextExpectation(contains=start) if start else None)


def _count(value: Any, depth: int = 0) -> int:  # Any: JSON
    """Count the values within a value, until there are too many."""
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return 1
    total = 0
    for item in value.values() if isinstance(value, dict) else value:
        total += _count(item, depth + 1)
        if total > _MAX_COUNT:
            break
    return total


def _expect_value(value: Any, depth: int) -> Any:  # Any: JSON
    """Return what to expect of a value, or `_NO`; of an object the keys that work, of a list all items or nothing."""
    if depth > _DEEPEST:
        return _NO
    if isinstance(value, dict):
        expected = {key: _expect_value(item, depth + 1) for key, item in value.items() if legible(key) == key}
        kept = {key: item for key, item in expected.items() if item is not _NO}
        return _NO if kept and set(kept) <= RANGE else kept  # it would be read as the range of a number
    if isinstance(value, list):
        items = [_expect_value(item, depth + 1) for item in value]
        return _NO if any(item is _NO for item in items) else items
    if isinstance(value, str):
        return value if legible(value) == value else _NO
    if isinstance(value, float) or (isinstance(value, int) and not -_INT64 <= value < _INT64):
        # A number with room for rounding, unless a file cannot hold it.
        try:
            number = float(value)
        except OverflowError:
            return _NO
        if not math.isfinite(number):
            return _NO
        tolerance = float(f"{TOLERANCE * max(1.0, abs(number)):.1g}")
        return {"approx": float(f"{number:.{_DIGITS}g}"), "tolerance": tolerance}
    return value


class SavedSample(StrEnum):
    """How one input was recorded."""

    ADDED = "added"
    FILLED = "filled in"  # nothing but a status was expected of its response, if that
    UPDATED = "updated"  # its response was not as expected
    MET = "met"  # its response was as expected: the expectation stays as the author wrote it
    REFUSED = "refused"  # its response cannot be expected


class RecordingSummary(Struct, frozen=True):
    """One input, recorded or not."""

    sample: str  # its `input` in marpack.yaml
    kept: SavedSample
    reason: str = ""  # why it was refused
    expected: Expectation | None = None  # the expectation that was filled in


class Recorder:
    """Collects responses, and writes them at the end."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._folder = project.folder.resolve()
        self._known = {self._full_path(sample.input): sample for sample in project.samples}
        self._files: dict[str, bytes] = {}  # to be written beside marpack.yaml
        self._expected: dict[str, Expectation] = {}
        self.done: list[RecordingSummary] = []

    def through(self, answered_inputs: Iterable[AnsweredInput]) -> Iterator[AnsweredInput]:
        """Yield exchanges as they come, and remember them."""
        for answered_input in answered_inputs:
            self.done.append(self._record(answered_input))
            yield answered_input

    def _record(self, answered_input: AnsweredInput) -> RecordingSummary:
        parts, result = answered_input.input.request.parts, answered_input.result
        if answered_input.input.refused is not None or len(parts) != 1 or parts[0].name != "body":
            why = "only a request with a plain body can be a sample"
            return RecordingSummary(result.input, SavedSample.REFUSED, why)
        data = parts[0].value
        name, is_present = self._locate(result.input, data, parts[0].content_type)
        expected = expectation_of(result)
        if result.status >= 500:
            why = f"{result.status} is not worth expecting; fix the handler, or write the expectation by hand"
            return RecordingSummary(name, SavedSample.REFUSED, why)
        if expected is None:
            why = "the connection broke off" if result.reset else f"{result.status} cannot be expected"
            return RecordingSummary(name, SavedSample.REFUSED, why)
        if not is_present:
            file = self._folder / name
            existing = self._files.get(name) if name in self._files or not file.exists() else file.read_bytes()
            if existing not in (None, data):
                return RecordingSummary(name, SavedSample.REFUSED, "the project has another file of that name")
        known, kept = self._known.get(self._full_path(name)), SavedSample.ADDED
        if known is not None:
            name, kept = known.input, _update_of(known.expect, expected, result)
        if kept is SavedSample.MET:
            return RecordingSummary(name, kept)
        if not is_present:
            self._files[name] = data
        self._expected[name] = expected
        return RecordingSummary(name, kept, expected=expected if kept is SavedSample.FILLED else None)

    def _full_path(self, name: str) -> str:
        return str(Path(self._folder, name).resolve())

    def _locate(self, name: str, data: bytes, content_type: str) -> tuple[str, bool]:
        """Return an input's path within the project, and whether the file exists there."""
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

    def write(self) -> bool:
        """Write the recorded samples, and return whether there were any.

        Raises ProjectError, with marpack.yaml unchanged, if it cannot be written.
        """
        if not self._expected:
            return False
        for name, data in self._files.items():
            file = self._folder / name
            failure = "the sample cannot be written"
            with convert_os_errors(ProjectError, failure, where=str(file), code="unwritable-sample"):
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, data)
        expected = {name: to_builtins(expected) for name, expected in self._expected.items()}
        update_samples(Path(self._project.file), expected)
        return True


def _update_of(known: Expectation | None, expected: Expectation, result: Result) -> SavedSample:
    """Return how the expectation of a known sample changes."""
    if known is None:
        return SavedSample.FILLED
    if find_shortfalls(known, result):
        return SavedSample.UPDATED
    only_status = known in (Expectation(), Expectation(status=result.status))
    return SavedSample.FILLED if only_status and expected != known else SavedSample.MET


class _NothingRecordedError(Exception):
    """No response can be recorded, so the new project is not kept."""


class NewProject:
    """Collects an archive's responses, and writes the project that rebuilds it, with them as its samples."""

    def __init__(self, archive: Archive) -> None:
        """Plan the project; the archive must stay open. Raises UsageError if its folder exists."""
        self._rebuilt = read_project(archive)
        name = self._rebuilt.name
        hint = f"If that is the project, record into it: marpack run {name} --record"
        self.folder = new_folder(Path(name), hint=hint)
        self.findings = self._rebuilt.findings  # what of the archive the project cannot express
        self.done: list[RecordingSummary] = []
        self.made = False  # whether the folder was written
        self._answers: list[AnsweredInput] = []

    def through(self, answered_inputs: Iterable[AnsweredInput]) -> Iterator[AnsweredInput]:
        """Yield exchanges as they come, and remember them."""
        for answered_input in answered_inputs:
            self._answers.append(answered_input)
            yield answered_input

    def write(self) -> bool:
        """Write the whole project, or nothing if no response can be recorded; return whether it was written.

        Raises ScaffoldError, ProjectError and OutputExistsError, with nothing written.
        """
        with suppress(_NothingRecordedError), staged_folder(self.folder, replace=False) as staging:
            write_files(staging, self._rebuilt.files, replace=False)
            recorder = Recorder(load_project(staging))
            self.done = recorder.done
            for _ in recorder.through(self._answers):
                pass
            if not recorder.write():
                raise _NothingRecordedError
            self.made = True
        return self.made
