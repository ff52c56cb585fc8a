"""What a file system refuses to look at, told as a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from marpack.errors import ProjectError


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Turn an OSError (too long a name, a folder that may not be entered, a file gone meanwhile) into a ProjectError.

    Also a decorator.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ProjectError(f"a path cannot be used: {reason}", where=_shortened(str(error.filename))) from error


def _shortened(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:60]}…{path[-40:]}"
