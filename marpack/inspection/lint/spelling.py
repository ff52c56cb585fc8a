"""The name that was probably meant, among a few or among very many."""

import difflib
from collections.abc import Iterable
from itertools import islice

_LONGEST = 80  # characters
_MOST = 500  # names; comparing takes 10 µs each


def near(text: str, names: Iterable[str]) -> str | None:
    """Return the name most like a misspelt one, if any is."""
    if not 2 <= len(text) <= _LONGEST:
        return None
    choices = (name for name in names if abs(len(name) - len(text)) <= 1 + len(text) // 2)
    return next(iter(difflib.get_close_matches(text, list(islice(choices, _MOST)), n=1, cutoff=0.7)), None)


def suggestion(text: str, names: Iterable[str]) -> str | None:
    """Return a hint that names what was probably meant."""
    found = near(text, names)
    return f"did you mean {found}?" if found else None
