"""The oracle at work: what marpack says of pickles, compared with what Python's unpicklers do with them."""

import pytest
from fuzz.oracle import VARIANTS, compare
from fuzz.unpicklers import load_all

# Each was called data, safe or something else than what an unpickler made of it.
CASES = {
    "a line across a frame's end": b"\x95\x08\0\0\0\0\0\0\0cposix\nmkdir\n)R.",
    "a text across a frame's end": b"\x95\7\0\0\0\0\0\0\0X\4\0\0\0coevil\x8c\3Net\x93)R.",
    "a memo place across a frame's end": b"cme\nNet\nq\x020\x95\2\0\0\0\0\0\0\0g12\n)R.",
    "a frame within a frame": b"\x95\x0c\0\0\0\0\0\0\0\x95\x09\0\0\0\0\0\0\0NN0cposix\nmkdir\n)R.",
    "APPENDS of nothing to an import": b"cme\nNet\n(e.",
    "REDUCE of a number by an import": b"K\1cme\nnumbers\nR.",
    "NEWOBJ_EX of a number by an import's keywords": b"K\1)cme\nkeywords\n\x92.",
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_oracle_found_stays_found(name: str) -> None:
    assert list(compare(CASES[name], VARIANTS)) == []
    assert any(load.events for variant in VARIANTS for load in load_all(CASES[name], variant))
