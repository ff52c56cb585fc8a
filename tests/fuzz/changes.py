"""Changes of bytes, as hypothesis draws and shrinks them: none at all is the simplest."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

# Numbers at which lengths, counts and places turn over.
_NUMBERS = [0, 1, 2, 7, 8, 127, 128, 255, 256, 511, 512, 32767, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
            1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]  # fmt: skip
_WIDTHS = ["<B", "<H", ">H", "<I", ">I", "<Q", ">Q"]
# Most that can be broken stands at either end: counted from there, or from anywhere.
_PLACES = st.one_of(st.integers(0, 300), st.integers(-300, -1), st.integers(0, 1 << 16))
_LENGTHS = st.one_of(st.integers(1, 16), st.integers(1, 400))


class Change(NamedTuple):
    """Some bytes at a place, in place of as many others as `removed`."""

    place: int
    removed: int
    put: bytes


class Copy(NamedTuple):
    """Bytes of the same file, or another, put at a place."""

    place: int
    source: str
    begin: int
    length: int
    removed: int


def number(value: int, form: str) -> bytes:
    return struct.pack(form, value & (256 ** struct.calcsize(form) - 1))


def changes(words: Sequence[bytes], sources: Sequence[str]) -> st.SearchStrategy[list[Change | Copy]]:
    """Return lists of changes: bytes flipped, cut, put in, numbers and words of the format, pieces of other files."""
    numbers = st.builds(number, st.sampled_from(_NUMBERS), st.sampled_from(_WIDTHS))
    word = st.sampled_from(words)
    one = st.one_of(
        st.builds(lambda place, put: Change(place, len(put), put), _PLACES, st.binary(min_size=1, max_size=4)),
        st.builds(lambda place, put: Change(place, len(put), put), _PLACES, numbers),
        st.builds(Change, _PLACES, _LENGTHS, st.just(b"")),
        st.builds(Change, _PLACES, st.just(1 << 30), st.just(b"")),
        st.builds(Change, _PLACES, st.integers(0, 12), st.one_of(word, st.binary(max_size=12))),
        st.builds(Change, _PLACES, st.just(0), st.lists(word, min_size=1, max_size=12).map(b"".join)),
        st.builds(Change, _PLACES, st.just(0), st.builds(lambda put, count: put * count, word, st.integers(2, 3000))),
        st.builds(Copy, _PLACES, st.sampled_from(["", *sources]), _PLACES, _LENGTHS, st.sampled_from([0, 0, 8, 60])),
    )
    return st.lists(one, max_size=8)


def changed(data: bytes, made: Sequence[Change | Copy], sources: Mapping[str, bytes]) -> bytes:
    """Return bytes with changes made, one after the other."""
    for change in made:
        at = change.place % (len(data) + 1)
        if isinstance(change, Change):
            put = change.put
        else:
            source = sources.get(change.source, data)
            begin = change.begin % (len(source) + 1)
            put = source[begin : begin + change.length]
        data = data[:at] + put + data[at + change.removed :]
    return data
