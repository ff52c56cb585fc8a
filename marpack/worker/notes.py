"""What a worker collects for its next message to the parent: notes, times and outputs of models."""

import time
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from marpack.protocol.messages import ModelOutput, Trouble

_MAX_COUNT = 100  # of notes and outputs: a handler may be called a million times between two drains
R = TypeVar("R")

_notes: list[Trouble] = []
_explained: list[Trouble] = []  # of the notes, those that explain an exception
_spent: dict[str, float] = {}
_outputs: dict[tuple[int, bool], bool] = {}  # (width, whether they are classes) → whether it is not reported yet


def note(kind: str, message: str, *, stage: str | None = None, hint: str | None = None) -> None:
    """Add a note to the current response; the same note is kept once. See `Trouble`."""
    trouble = Trouble(kind=kind, message=message, stage=stage, hint=hint)
    if len(_notes) < _MAX_COUNT and trouble not in _notes:
        _notes.append(trouble)


def drain_notes() -> tuple[Trouble, ...]:
    """Return the notes since the last call."""
    notes = tuple(_notes)
    _notes.clear()
    _explained.clear()
    return notes


def explained(trouble: Trouble) -> Trouble:
    """Return the trouble of an exception with the notes that explain it; `drain_notes` returns those as well."""
    if not _explained:
        return trouble
    notes, hint = (each.message for each in _explained), _explained[-1].hint
    return replace(trouble, hint=trouble.hint or hint, notes=(*notes, *trouble.notes))


def add_timing(what: str, milliseconds: float) -> None:
    """Add time to the total of `what`, such as "compile"."""
    _spent[what] = _spent.get(what, 0.0) + milliseconds


def drain_timings() -> dict[str, float]:
    """Return the times since the last call."""
    spent = dict(_spent)
    _spent.clear()
    return spent


def record_output(output: object, *, classes: bool = False) -> None:
    """Record the width of a model's output [N, K], and whether its columns are classes; ignore any other output."""
    shape = getattr(output, "shape", None)  # a torch.Size is a tuple
    if isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int) and len(_outputs) < _MAX_COUNT:
        _outputs.setdefault((shape[1], classes), True)


def drain_outputs() -> frozenset[ModelOutput]:
    """Return the outputs that no earlier call has returned."""
    if not any(_outputs.values()):
        return frozenset()
    news = frozenset(ModelOutput(*known) for known, is_new in _outputs.items() if is_new)
    _outputs.update(dict.fromkeys(_outputs, False))
    return news


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def explain(error: Exception, how: Callable[[Exception], None]) -> None:
    """Call a function that notes the reason for an exception, and remember that its notes explain this exception."""
    before = len(_notes)
    how(error)
    _explained.extend(_notes[before:])


class Explained:
    """Calls `explain` with an exception that leaves the `with` block, and lets it pass."""

    def __init__(self, how: Callable[[Exception], None]) -> None:
        self._how = how

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            explain(error, self._how)


def attempt(call: Callable[[], R]) -> R | Exception:
    """Return a call's value or its exception: for code of authors and libraries that must not end the worker."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the caller examines it
        return error
