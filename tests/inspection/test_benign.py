"""No alarm on what is honest: texts, numbers and files that merely begin like a pickle, and pickles of plain values."""

from collections.abc import Callable
from pathlib import PurePath

import pytest
from inspection.benign import BENIGN, OPCODES

from marpack.inspection.pickles import PickleScan, PickleVerdict

SLOW = ("vocabularies/", "exported/")


@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_no_benign_member_raises_an_alarm(is_slow: bool, scan: Callable[..., PickleScan]) -> None:
    files = {name: make for name, make in BENIGN.items() if name.startswith(SLOW) is is_slow}
    found = {name: scan(make(), PurePath(name).name) for name, make in files.items()}
    assert [name for name, each in found.items() if each.verdict is not PickleVerdict.SAFE or each.unscanned] == []


def test_the_corpus_begins_with_every_opcode() -> None:
    begins = {make()[:1] for name, make in BENIGN.items() if name.startswith(("openings/", "first_bytes/"))}
    assert {bytes([code]) for code in OPCODES} <= begins
    assert len(BENIGN) >= 300
