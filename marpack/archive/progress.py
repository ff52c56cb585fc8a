"""How far a pass over many bytes is: told by who reads or writes them, shown by whoever was asked to."""

from collections.abc import Callable
from contextlib import AbstractContextManager

Progress = Callable[[int], object]  # takes the number of bytes just read or written
# Takes what goes on ("packing") and how many bytes are to come; shows those that it is told of, or gives None.
Bar = Callable[[str, int], AbstractContextManager[Progress | None]]
