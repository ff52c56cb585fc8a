import hashlib
import threading
import zlib
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marpack.archive.copying import BLOCK, Copier
from marpack.errors import BuildError

SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 9 * BLOCK + 7]


class Dribble:
    """Gives its bytes in pieces, as a pipe or a network file system may."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._file = BytesIO(data)
        self._piece = piece

    def readinto(self, block: memoryview) -> int:
        return self._file.readinto(block[: self._piece])


def noise(size: int) -> bytes:
    return hashlib.shake_128(b"marpack").digest(size)


@pytest.mark.parametrize("size", SIZES)
def test_copy_and_sums_are_those_of_the_bytes(size: int) -> None:
    data, out = noise(size), bytearray()
    with Copier() as copier:
        sums = copier.copy(BytesIO(data), size, out.extend)
    assert bytes(out) == data
    assert (sums.crc, sums.sha256) == (zlib.crc32(data), hashlib.sha256(data).hexdigest())


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
@settings(max_examples=30)
def test_members_follow_one_another_even_when_bytes_come_in_pieces(contents: list[bytes], piece: int) -> None:
    with Copier() as copier:
        for content in contents:
            out = bytearray()
            sums = copier.copy(Dribble(content, piece), len(content), out.extend)
            assert (bytes(out), sums.sha256) == (content, hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("missing", [1, BLOCK])
def test_a_source_that_ends_early_is_refused(missing: int) -> None:
    data = bytes(2 * BLOCK)
    with Copier() as copier, pytest.raises(BuildError, match="ended before"):
        copier.copy(BytesIO(data[missing:]), len(data), lambda block: None)


def test_a_copier_that_was_refused_a_source_takes_the_next() -> None:
    data, out = noise(5 * BLOCK), bytearray()
    with Copier() as copier:
        for _ in range(5):
            with pytest.raises(BuildError):
                copier.copy(BytesIO(), 2 * BLOCK, out.extend)
        sums = copier.copy(BytesIO(data), len(data), out.extend)
    assert bytes(out) == data
    assert sums.sha256 == hashlib.sha256(data).hexdigest()


def test_only_whole_blocks_of_zeros_are_skipped() -> None:
    data = noise(BLOCK) + bytes(2 * BLOCK) + noise(7) + bytes(BLOCK - 7) + bytes(3)
    written, skipped = [], []
    with Copier() as copier:
        sums = copier.copy(BytesIO(data), len(data), lambda block: written.append(len(block)), skip=skipped.append)
    assert (sum(written), skipped) == (2 * BLOCK + 3, [BLOCK, BLOCK])
    assert max(written) <= BLOCK
    assert sums.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("offset", [1, 4096, BLOCK - 1, BLOCK, 3 * BLOCK + 4096])
def test_writes_end_at_round_places_wherever_they_begin(offset: int) -> None:
    data, out, ends = noise(2 * BLOCK + 5), bytearray(), []

    def write(block: memoryview) -> None:
        out.extend(block)
        ends.append(offset + len(out))

    with Copier() as copier:
        sums = copier.copy(BytesIO(data), len(data), write, offset=offset)
    assert bytes(out) == data
    assert sums.sha256 == hashlib.sha256(data).hexdigest()
    assert not [end for end in ends[:-1] if end % (1 << 16)]
    assert ends[-1] == offset + len(data)


def test_a_writer_that_fails_is_heard_of_and_no_thread_stays() -> None:
    def full(block: memoryview) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"), Copier() as copier:
        copier.copy(BytesIO(bytes(5 * BLOCK)), 5 * BLOCK, full)
    assert not any(thread.name == "marpack-sha256" for thread in threading.enumerate())
