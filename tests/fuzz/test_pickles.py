"""The oracle at work: what marpack says of pickles, compared with what Python's unpicklers do with them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fuzz.oracle import VARIANTS, compare
from fuzz.run_oracle import one_bare, one_wrapped
from fuzz.streams import Maker
from fuzz.unpicklers import bounded, load_all

from marpack.weights.pickle_machine import _Machine
from marpack.weights.pickle_stream import Effects

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


def test_the_walk_reports_all_that_unpicklers_do() -> None:
    maker, seen = Maker("day"), Counter[str]()
    with bounded():
        failures = [failure for _ in range(2500) for failure in one_bare(maker, seen)]
        failures += [failure for _ in range(50) for failure in one_wrapped(maker, seen)]
    assert failures == []
    assert seen["loads that call"] > 500


@pytest.mark.nightly
def test_the_walk_reports_all_that_unpicklers_do_in_many_files() -> None:
    command = [sys.executable, "-m", "fuzz.run_oracle", "--bare", "100000", "--wrapped", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout)["loads that call"] > 20_000


PLANTED = [
    (Effects, "imported"), (Effects, "called"), (Effects, "filled"), (Effects, "spread"), (_Machine, "leave_frame"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "method"), PLANTED)
def test_a_walk_that_overlooks_something_is_found(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    monkeypatch.setattr(owner, method, lambda *_: None)
    maker = Maker("planted")
    with bounded():
        assert any(list(compare(maker.stream(), VARIANTS)) for _ in range(4000))
