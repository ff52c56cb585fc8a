"""How far a pass over many bytes is: told by who reads or writes them, shown by whoever was asked to."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int], object]  # takes the number of bytes just read or written
# Takes what goes on ("packing") and how many bytes are to come; shows those that it is told of, or gives None.
Bar = Callable[[str, int], AbstractContextManager[Progress | None]]


def unseen(_what: str, _total: int) -> AbstractContextManager[None]:
    """Show nothing: the bar of those who watch no terminal."""
    return nullcontext()
