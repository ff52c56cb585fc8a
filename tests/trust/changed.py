"""Files with one byte changed."""

import os
from collections.abc import Iterator
from pathlib import Path


def each_changed_byte(path: Path) -> Iterator[int]:
    """Yield each place of a file but the last, a newline, with one bit of the byte there flipped meanwhile."""
    whole = path.read_bytes()
    with path.open("r+b") as file:
        for place in range(len(whole) - 1):
            os.pwrite(file.fileno(), bytes([whole[place] ^ 1]), place)
            yield place
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert path.read_bytes() == whole
