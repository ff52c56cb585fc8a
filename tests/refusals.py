"""Compare an error by its code and by the facts that it states, for `pytest.raises(…, check=…)`."""

from collections.abc import Callable

from marpack.errors import MarpackError


def has_code(code: str, *facts: object, where: object = None) -> Callable[[MarpackError], bool]:
    """Return a check that an error has this code and, if given, this place; its text or hint contains the facts."""
    return lambda error: error.code == code and where in {None, error.where} and states(error, *facts)


def has_facts(*facts: object) -> Callable[[MarpackError], bool]:
    """Return a check that an error's text or hint contains these values, where its class names the cause."""
    return lambda error: states(error, *facts)


def states(error: MarpackError, *facts: object) -> bool:
    """Assert that an error's text or hint contains these values."""
    text = f"{error.what}\n{error.hint}"
    for fact in facts:
        assert str(fact) in text, text
    return True
