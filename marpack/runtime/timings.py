"""Milliseconds spent on what happens inside a stage but is worth a figure of its own, such as compiling."""

_spent: dict[str, float] = {}


def add_timing(what: str, milliseconds: float) -> None:
    """Count time towards `what`: "compile"."""
    _spent[what] = _spent.get(what, 0.0) + milliseconds


def drain_timings() -> dict[str, float]:
    """Return what was counted since the last call, and begin anew."""
    spent = dict(_spent)
    _spent.clear()
    return spent
