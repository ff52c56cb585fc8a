"""A file read through a small window: the same bytes as the file has, and none of those jumped over."""

import io
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.archive.bytesource import read_at
from marpack.weights.pickle import ByteStream, TruncatedError

DATA = bytes(number * 7 % 251 for number in range(3000))


class Watched(io.BytesIO):
    """A file that remembers which bytes were read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []  # begin, length

    def read(self, size: int | None = -1) -> bytes:
        begin = self.tell()
        data = super().read(size)
        self.reads.append((begin, len(data)))
        return data


@given(st.integers(0, 300), st.lists(st.integers(0, 700), max_size=12))
def test_bytes_are_those_of_the_file_wherever_one_jumps(start: int, jumps: list[int]) -> None:
    stream, place = ByteStream(io.BytesIO(DATA), start), start
    for jump in jumps:
        if place + jump > len(DATA):
            with pytest.raises(TruncatedError):
                stream.skip(jump)
            return
        stream.skip(jump)
        place += jump
        assert stream.position == place
        assert stream.fill(5) is (place + 5 <= len(DATA))
        assert stream.position == place
        if place == len(DATA):
            with pytest.raises(TruncatedError):
                stream.byte()
            return
        assert stream.byte() == DATA[place]
        place += 1


@pytest.mark.parametrize("count", [1 << 45, (1 << 62) - 1, 1 << 62, 1 << 63, 1 << 70])
def test_a_jump_that_no_file_has_room_for_is_an_end(count: int, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    with (tmp_path / "data").open("rb") as file:  # whose file system has a bound of its own
        for each in (io.BytesIO(DATA), file):
            with pytest.raises(TruncatedError):
                ByteStream(each).skip(count)
            assert read_at(each, count, 1) == b""


def test_a_read_is_longer_the_longer_one_reads_on_and_short_after_a_jump() -> None:
    file = Watched(bytes(100_000))
    stream = ByteStream(file)
    for _ in range(60_000):
        stream.byte()
    lengths = [length for _, length in file.reads]
    assert lengths[0] == 256
    assert all(later == min(2 * earlier, 16 * 1024) for earlier, later in pairwise(lengths))
    stream.skip(30_000)
    stream.byte()
    begin, length = file.reads[-1]
    assert begin >= 89_999
    assert length == 256
