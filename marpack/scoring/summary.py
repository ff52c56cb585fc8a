"""The summary of scored rows: totals, failures by cause, and the bound of failures."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from marpack.errors import UsageError
from marpack.scoring.mapping import Failure

_CAUSES = 100  # that are counted separately
_EXAMPLES = 3
_JUDGED = 100  # rows before a share of failures means anything


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
            hint = "100 stops at the 101st row that fails, 5% once more than a twentieth of them do"
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

    def __init__(self, inputs: Sequence[str]) -> None:
        """Take the names of the inputs, in their order."""
        self._inputs = tuple(inputs)
        self._places = {name: place for place, name in enumerate(inputs)}
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
