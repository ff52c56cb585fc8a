"""Decorators of the server's: one marks functions that have moved, one is out of order itself."""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(
    version: object, replacement: str = "", klass: type[Warning] = PendingDeprecationWarning
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that warns at every call of the function it decorates.

    Args:
        version: The version from which the function is deprecated.
        replacement: The dotted name to use instead.
        klass: The warning's class.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def warned(*args: P.args, **kwargs: P.kwargs) -> R:
            text = f"{function.__name__} is deprecated since {version}; use {replacement}"
            warnings.warn(text, klass, stacklevel=2)
            return function(*args, **kwargs)

        return warned

    return decorate


def timeit(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that fails when it is called: the server's asks for `time.clock`, which Python has no more."""

    @functools.wraps(function)
    def timed(*_args: P.args, **_kwargs: P.kwargs) -> R:
        raise AttributeError("module 'time' has no attribute 'clock'")

    return timed
