"""Two ways of answering the same inputs (two archives, two devices, compiled or not), and how the answers differ."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from statistics import median
from typing import Any

from msgspec import Struct

from marpack.findings import Finding
from marpack.gate.compare import NOTHING, TOLERANCE, differences, largest_difference, value_of
from marpack.gate.verdicts import problem
from marpack.runner.inputs import Input
from marpack.runner.results import Result, run
from marpack.runner.session import Session

_LABEL_KEYS = ("label", "class", "prediction", "category", "answer")


class Similarity(StrEnum):
    """How much alike two answers are, from most to least."""

    EXACT = "exact"  # the same bytes
    ROUNDED = "rounded"  # the same but for numbers within the tolerance
    LABEL = "label"  # the same label, under other numbers
    DIFFERENT = "different"
    STATUS = "status"  # not even the same status


class Variant(Struct, frozen=True, kw_only=True):
    """One of the two ways."""

    name: str  # "a.mar", "cpu", "compiled"
    archive: str
    content_digest: str | None
    handler: str
    device: str | None
    milliseconds: float = 0.0  # per input, the median


class InputComparison(Struct, frozen=True, kw_only=True):
    """One input's two answers."""

    input: str
    likeness: Similarity
    statuses: tuple[int, int]
    labels: tuple[str | None, str | None]
    largest: float | None  # difference between two numbers at one place; None where there are none
    differences: tuple[str, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether a client would call it the same answer."""
        return self.likeness in (Similarity.EXACT, Similarity.ROUNDED)


class Comparison(Struct, frozen=True, kw_only=True):
    """The result of `marpack check --against`, and its JSON."""

    sides: tuple[Variant, Variant]
    tolerance: float
    alike: bool  # every input's answers are
    proved: bool  # one of them at least is a 2xx: two that only fail may be alike in nothing else
    counts: dict[str, int]  # inputs by likeness
    largest: float | None  # difference of all
    results: tuple[InputComparison, ...]
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False


def compare(one: Result, other: Result, tolerance: float = TOLERANCE) -> InputComparison:
    """Compare two answers to one input."""
    found = differences(one, other, tolerance)
    labels = label_of(one), label_of(other)
    return InputComparison(
        input=one.input,
        likeness=_likeness(one, other, labels, differ=bool(found)),
        statuses=(one.status, other.status),
        labels=labels,
        largest=largest_difference(one, other),
        differences=tuple(found),
    )


def _likeness(one: Result, other: Result, labels: tuple[str | None, str | None], *, differ: bool) -> Similarity:
    if one.status != other.status:
        return Similarity.STATUS
    if not differ:
        return Similarity.EXACT if one.raw == other.raw else Similarity.ROUNDED
    return Similarity.LABEL if labels[0] is not None and labels[0] == labels[1] else Similarity.DIFFERENT


def label_of(result: Result) -> str | None:
    """Return what an answer calls its input: its likeliest class, or the labels it lists; None if it names none."""
    value = value_of(result)
    try:
        named = _label(value) if value is not NOTHING else None
    except RecursionError:
        return None
    if isinstance(named, list):
        return ", ".join(map(str, named)) if all(item is not None for item in named) else None
    return named


def _label(value: Any) -> Any:  # Any: JSON in; text, a list of texts, or None out
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_label(item) for item in value] if value and isinstance(value[0], dict | str) else None
    if not isinstance(value, dict) or not value:
        return None
    if all(isinstance(number, int | float) and not isinstance(number, bool) for number in value.values()):
        return max(value, key=lambda key: value[key])
    named = next((value[key] for key in _LABEL_KEYS if isinstance(value.get(key), str)), None)
    boxes = [key for key, box in value.items() if isinstance(box, list)]
    return named or (boxes[0] if len(boxes) == 1 else None)


def nothing_shared() -> Finding:
    """Return that there is no request to compare two archives by."""
    return problem("not-compared", "no request got a 2xx from both", hint="name some that do: --input FILE…")


class VariantRunner:
    """Compares as answers come, and adds up."""

    def __init__(self, one: Session, other: Session, names: tuple[str, str], tolerance: float = TOLERANCE) -> None:
        self._servings = one, other
        self._digests = one.content_digest, other.content_digest  # read now: an interrupt must not read them later
        self._names = names
        self._tolerance = tolerance
        self._seconds: tuple[list[float], list[float]] = [], []
        self._done: list[InputComparison] = []

    def run(self, inputs: Sequence[Input]) -> Iterator[InputComparison]:
        """Yield one comparison per input; both ways work at the same time.

        Raises LoadError and WorkerError when a worker that died cannot be started again.
        """
        answers = (run(session.pool, inputs) for session in self._servings)
        for one, other in zip(*answers, strict=True):
            for kept, result in zip(self._seconds, (one, other), strict=True):
                kept.append(result.seconds)
            self._done.append(compare(one, other, self._tolerance))
            yield self._done[-1]

    def stop(self) -> None:
        """End the workers of both at once."""
        for session in self._servings:
            session.pool.kill()

    def comparison(self, *, findings: tuple[Finding, ...] = (), interrupted: bool = False) -> Comparison:
        """Return what the comparisons so far add up to."""
        sides = tuple(map(self._side, (0, 1)))
        numbers = [done.largest for done in self._done if done.largest is not None]
        return Comparison(
            sides=(sides[0], sides[1]),
            tolerance=self._tolerance,
            alike=all(done.alike for done in self._done),
            proved=any(status // 100 == 2 for done in self._done for status in done.statuses),
            counts={str(kind): sum(done.likeness is kind for done in self._done) for kind in Similarity},
            largest=max(numbers, default=None),
            results=tuple(self._done),
            findings=findings,
            interrupted=interrupted,
        )

    def _side(self, index: int) -> Variant:
        session, seconds = self._servings[index], self._seconds[index]
        return Variant(
            name=self._names[index],
            archive=str(session.resolved.path),
            content_digest=self._digests[index],
            handler=session.loaded.handler,
            device=session.loaded.device,
            milliseconds=round(median(seconds) * 1000, 3) if seconds else 0.0,
        )
