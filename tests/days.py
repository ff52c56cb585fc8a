"""Which cases of a test run by day, with `make test`; the others are for `make test-all`."""

from collections.abc import Iterable
from typing import Any

import pytest


def by_day(cases: Iterable[str], *chosen: str) -> list[Any]:
    """Return parameters of which only the chosen ones run by day."""
    marks = {name: () if name in chosen else (pytest.mark.slow,) for name in cases}
    assert set(chosen) <= set(marks), "a chosen case is gone"
    return [pytest.param(name, id=name, marks=mark) for name, mark in marks.items()]
