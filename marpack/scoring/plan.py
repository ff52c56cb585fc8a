"""A run: its plan, made before it starts, its settings, and the summary of its rows."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import UsageError
from marpack.scoring.mapping import INPUT, ROW, Failure, RowMapping
from marpack.scoring.storage import FileState
from marpack.scoring.tables import TableInput, TableKind

PART_ROWS = 65_536  # of every part but an input's last
_CAUSES = 100  # that are counted separately
_EXAMPLES = 3
_JUDGED = 100  # rows before a share of failures is compared with its bound


class PartFormat(StrEnum):
    """The format of the results."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class InputIdentity(Struct, frozen=True):
    """The identity of an input when a run is resumed."""

    number: int
    name: str
    kind: TableKind
    state: FileState
    rows: int | None


class RunIdentity(Struct, frozen=True):
    """The identity of a run, which all its parts share."""

    archive: str  # its content digest
    options: dict[str, str]  # those that responses depend on, as texts
    inputs: str  # a digest of all identities
    input_count: int


class ScorePlan(Struct, frozen=True, kw_only=True):
    """The archive, the rows, the columns and the parts of a run."""

    archive: str  # its content digest
    mapping: RowMapping
    inputs: tuple[TableInput, ...]
    kept: tuple[Any, ...] = ()  # Any: pyarrow's fields, of the columns that are copied
    format: PartFormat = PartFormat.PARQUET
    part_rows: int = PART_ROWS
    batch_size: int = 1
    limit: int | None = None  # rows that are read, of all inputs together
    options: dict[str, str] = {}  # further options that responses depend on, such as the target

    @property
    def schema(self) -> Any:  # Any: pyarrow's
        """The columns of every part: input (if there are several), row, those kept, the response's, status, error."""
        several = [pa.field(INPUT, pa.int32())] if len(self.inputs) > 1 else []
        return pa.schema([*several, pa.field(ROW, pa.int64()), *self.kept, *self.mapping.answers.fields])

    @property
    def rows(self) -> int | None:
        """The number of rows to read, if all inputs state theirs."""
        counts = [table.rows for table in self.inputs if table.rows is not None]
        total = sum(counts) if len(counts) == len(self.inputs) else None
        return total if total is None or self.limit is None else min(total, self.limit)

    def mapping_of(self, number: int) -> RowMapping:
        """Return how the rows of the input of a number become requests."""
        return self.inputs[number].mapping(self.mapping)

    def identity_of(self, number: int) -> InputIdentity:
        """Return the identity of the input of a number."""
        table = self.inputs[number]
        return InputIdentity(number, table.shown, table.kind, table.state, table.rows)

    def identity(self) -> RunIdentity:
        """Return the identity of the run, with digests of headers, which may be secret."""
        headers = tuple((name, _digest(value.encode())) for name, value in self.mapping.headers)
        of_mapping = msgspec.to_builtins(replace(self.mapping, headers=headers))
        usual = msgspec.to_builtins(RowMapping(**{self.mapping.source: getattr(self.mapping, self.mapping.source)}))
        words = {
            **{name: value for name, value in of_mapping.items() if value != usual[name]},
            self.mapping.source: of_mapping[self.mapping.source],
            "format": self.format,
            "part_rows": self.part_rows,
            "batch_size": self.batch_size,
            "limit": self.limit,
            **self.options,
        }
        texts = {
            name: value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
            for name, value in words.items()
            if value is not None
        }
        inputs = _digest(msgspec.json.encode([self.identity_of(number) for number in range(len(self.inputs))]))
        return RunIdentity(self.archive, texts, inputs, len(self.inputs))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


class ErrorBound(Struct, frozen=True):
    """The number or share of rows that may fail before a run stops."""

    rows: int | None = None
    percent: float | None = None  # of the rows so far, from 100 of them on and at the end

    @classmethod
    def parse(cls, text: str) -> "ErrorBound":
        """Parse `N` or `P%`; raise UsageError."""
        number, percent, rest = text.strip().partition("%")
        try:
            bound = cls(percent=float(number)) if percent else cls(rows=int(number))
        except ValueError:
            bound = cls(rows=-1)
        if rest or (bound.rows or 0) < 0 or not 0 <= (bound.percent or 0) <= 100:
            what = f"{text!r} is neither a number of rows nor a percentage"
            hint = "Write a number of failed rows, such as 100, or a share of all rows, such as 5%."
            raise UsageError(what, where="--max-errors", hint=hint, code="invalid-error-bound")
        return bound

    def exceeded(self, failed: int, rows: int, *, over: bool = False) -> bool:
        """Return whether there are too many failures; `over`: no more rows follow."""
        if self.rows is not None and failed > self.rows:
            return True
        judged = self.percent is not None and (over or rows >= _JUDGED)
        return judged and failed * 100 > (self.percent or 0) * rows


class FailureExample(Struct, frozen=True):
    """One row that failed."""

    input: str
    row: int
    message: str


class FailureCause(Struct, frozen=True):
    """Rows that failed in the same way."""

    kind: str
    rows: int
    examples: tuple[FailureExample, ...]  # the first ones


class ScoredRows(Struct, frozen=True, kw_only=True):
    """Totals of some of a run's rows, as a process reports them."""

    rows: int
    failed: int  # of them
    parts: tuple[str, ...]  # names of the files that they are in
    causes: tuple[FailureCause, ...]  # the most frequent first


class ScoreSummary(Struct, frozen=True, kw_only=True):
    """The result of a run."""

    inputs: tuple[str, ...]  # by the numbers of the column `input`
    rows: int  # of this run only, as the other figures
    answered: int  # with a status of 2xx, and the selected columns
    failed: int
    rows_before: int  # in parts of an earlier run
    failed_before: int  # of them
    parts: int  # that this run wrote
    seconds: float
    throughput: float  # rows per second
    causes: tuple[FailureCause, ...]  # the most frequent first
    exceeded: bool = False  # more rows failed than `max_errors` allows
    complete: bool = True  # False: it stopped there; answers of an incomplete part are not in the output


class ScoreProgress:
    """Receives the progress of a run."""

    def began(self, rows: int | None, before: int) -> None:
        """Take the rows of all inputs, if they are known, and those that are in parts already."""

    def scored(self, rows: int, failed: int) -> None:
        """Take the number of further rows with a response, and of those that failed."""

    def ended(self) -> None:
        """Note that nothing more follows, for any reason."""


class ScoreSettings(Struct, frozen=True, kw_only=True):
    """The options of a run that its results do not depend on."""

    max_errors: ErrorBound = ErrorBound()
    isolate: bool = False  # retry the rows of a failed batch one by one
    progress: ScoreProgress = ScoreProgress()


class ScoreTotals:
    """Adds up rows: those scored here one by one, and totals of other processes."""

    def __init__(self, inputs: Iterable[str]) -> None:
        """Take the names of the inputs, in their order."""
        self._inputs = tuple(inputs)
        self._places = {name: place for place, name in enumerate(self._inputs)}
        self._causes: dict[str, int] = {}  # kind → rows
        self._examples: dict[str, list[FailureExample]] = {}
        self.rows = self.failed = 0
        self.parts: list[str] = []

    def add_rows(self, number: int, first: int, count: int, failures: Mapping[int, Failure]) -> None:
        """Add the rows of an input from `first` on, and the failures among them by their place."""
        self.rows += count
        self.failed += len(failures)
        for place, failure in failures.items():
            example = FailureExample(self._inputs[number], first + place, failure.message)
            self._add_cause(failure.kind, 1, (example,))

    def add(self, scored: ScoredRows) -> None:
        """Add the totals of another process, in any order."""
        self.rows += scored.rows
        self.failed += scored.failed
        self.parts += scored.parts
        for cause in scored.causes:
            self._add_cause(cause.kind, cause.rows, cause.examples)

    def _add_cause(self, kind: str, rows: int, examples: Iterable[FailureExample]) -> None:
        kind = kind if kind in self._causes or len(self._causes) < _CAUSES else "other"
        self._causes[kind] = self._causes.get(kind, 0) + rows
        kept = self._examples.setdefault(kind, [])
        kept += examples
        kept.sort(key=self._place)
        del kept[_EXAMPLES:]

    def _place(self, example: FailureExample) -> tuple[int, int]:
        return self._places[example.input], example.row

    def scored(self) -> ScoredRows:
        """Return the totals."""
        kinds = sorted(self._causes, key=lambda kind: (-self._causes[kind], self._place(self._examples[kind][0])))
        causes = (FailureCause(kind, self._causes[kind], tuple(self._examples[kind])) for kind in kinds)
        return ScoredRows(rows=self.rows, failed=self.failed, parts=tuple(self.parts), causes=tuple(causes))

    def summary(
        self, before: tuple[int, int], seconds: float, *, exceeded: bool = False, complete: bool = True
    ) -> ScoreSummary:
        """Return the result of the run; `before` are the rows in parts of an earlier run, and those that failed."""
        return ScoreSummary(
            inputs=self._inputs,
            rows=self.rows,
            answered=self.rows - self.failed,
            failed=self.failed,
            rows_before=before[0],
            failed_before=before[1],
            parts=len(self.parts),
            seconds=round(seconds, 6),
            throughput=round(self.rows / seconds, 2) if seconds else 0.0,
            causes=self.scored().causes,
            exceeded=exceeded,
            complete=complete,
        )
