"""Notes and timings that stand beside an answer, for the author's eyes only."""

from marpack.torchserve.messages import Trouble

_MAX_COUNT = 100  # a handler may be called a million times between two drains
_collected: list[Trouble] = []
_spent: dict[str, float] = {}


def note(kind: str, message: str, *, stage: str | None = None, hint: str | None = None) -> None:
    """Put one note beside the answer in the making; the same note is kept once.

    Args:
        kind: A stable word, kebab-case: "unknown-backend".
        message: One sentence without a final full stop.
        stage: import, construct, initialize, preprocess, inference, postprocess or respond.
        hint: The edit or command that mends it.
    """
    trouble = Trouble(kind=kind, message=message, stage=stage, hint=hint)
    if len(_collected) < _MAX_COUNT and trouble not in _collected:
        _collected.append(trouble)


def drain_notes() -> tuple[Trouble, ...]:
    """Return what was noted since the last call, and begin anew."""
    notes = tuple(_collected)
    _collected.clear()
    return notes


def add_timing(what: str, milliseconds: float) -> None:
    """Count time towards `what`: "compile"."""
    _spent[what] = _spent.get(what, 0.0) + milliseconds


def drain_timings() -> dict[str, float]:
    """Return what was counted since the last call, and begin anew."""
    spent = dict(_spent)
    _spent.clear()
    return spent
