"""Notes, timings and model outputs that are reported with a response; calls that may raise anything."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from msgspec.structs import replace

from marpack.protocol.messages import ModelOutput, Trouble

_MAX_COUNT = 100  # a handler may be called a million times between two drains
_collected: list[Trouble] = []
_explained: list[Trouble] = []  # of those, what explains an exception
_spent: dict[str, float] = {}
_outputs: dict[tuple[int, bool], bool] = {}  # (width, whether they are classes) → whether it is not reported yet
R = TypeVar("R")


def note(kind: str, message: str, *, stage: str | None = None, hint: str | None = None) -> None:
    """Add a note to the current response; the same note is kept once.

    Args:
        kind: A stable word, kebab-case: "unknown-backend".
        message: One sentence without a final full stop.
        stage: import, construct, initialize, preprocess, inference, postprocess or respond.
        hint: The edit or command that fixes it.
    """
    trouble = Trouble(kind=kind, message=message, stage=stage, hint=hint)
    if len(_collected) < _MAX_COUNT and trouble not in _collected:
        _collected.append(trouble)


def drain_notes() -> tuple[Trouble, ...]:
    """Return the notes since the last call."""
    notes = tuple(_collected)
    _collected.clear()
    _explained.clear()
    return notes


def explained(trouble: Trouble) -> Trouble:
    """Return the trouble of an exception with the notes that explain it; `drain_notes` returns those as well."""
    if not _explained:
        return trouble
    notes, hint = (each.message for each in _explained), _explained[-1].hint
    return replace(trouble, hint=trouble.hint or hint, notes=(*notes, *trouble.notes))


def add_timing(what: str, milliseconds: float) -> None:
    """Count time towards `what`: "compile"."""
    _spent[what] = _spent.get(what, 0.0) + milliseconds


def drain_timings() -> dict[str, float]:
    """Return the times since the last call."""
    spent = dict(_spent)
    _spent.clear()
    return spent


def record_output(output: object, *, classes: bool = False) -> None:
    """Tell how wide a model's output [N, K] is, and whether these are classes; of any other nothing."""
    shape = getattr(output, "shape", None)  # a torch.Size is a tuple
    if isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int) and len(_outputs) < _MAX_COUNT:
        _outputs.setdefault((shape[1], classes), True)


def drain_outputs() -> frozenset[ModelOutput]:
    """Return what outputs no earlier call has returned."""
    if not any(_outputs.values()):
        return frozenset()
    news = frozenset(ModelOutput(*known) for known, is_new in _outputs.items() if is_new)
    _outputs.update(dict.fromkeys(_outputs, False))
    return news


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def explain(error: Exception, how: Callable[[Exception], None]) -> None:
    """Call what notes why an exception came, and keep in mind that these notes are about it."""
    before = len(_collected)
    how(error)
    _explained.extend(_collected[before:])


class Explained:
    """Explain an exception that leaves a `with` block; it is raised all the same."""

    def __init__(self, explain: Callable[[Exception], None]) -> None:
        self._explain = explain

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            explain(error, self._explain)


def attempt(call: Callable[[], R]) -> R | Exception:
    """Return a call's value or its exception: for code of authors and libraries that must not end the worker."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - what it is, the caller looks at
        return error
