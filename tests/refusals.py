"""Compare an error by its code and by the facts that it states, for `pytest.raises(…, check=…)`."""

from collections.abc import Callable

from marpack.errors import MarpackError


def has_code(code: str, *facts: object, where: object = None) -> Callable[[MarpackError], bool]:
    """Return a check that an error has this code and, if given, this place; its text or hint contains the facts."""

    def check(error: MarpackError) -> bool:
        assert error.code == code, error
        assert where is None or error.where == where, error.where
        states(error, *facts)
        return True

    return check


def has_facts(*facts: object) -> Callable[[MarpackError], bool]:
    """Return a check that an error's text or hint contains these values, where its class names the cause."""

    def check(error: MarpackError) -> bool:
        states(error, *facts)
        return True

    return check


def states(error: MarpackError, *facts: object) -> None:
    """Assert that an error's text or hint contains these values."""
    text = f"{error.what}\n{error.hint}"
    for fact in facts:
        assert str(fact) in text, text
