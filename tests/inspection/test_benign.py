"""No alarm on what is honest: texts, numbers and files that merely begin like a pickle, and pickles of plain values."""

from collections.abc import Callable

import pytest
from inspection.benign import BENIGN, OPCODES, Benign

from marpack.inspection.pickles import PickleScan

Scan = Callable[..., PickleScan]
SLOW = ("training/", "vocabularies/", "exported/", "estimators/")


def alarm(benign: Benign, scan: Scan) -> str | None:
    """Say what is wrong with the judgement on a member, if anything is."""
    found = scan(benign.make(), benign.member)
    if found.verdict is not benign.verdict:
        blamed = [pickle for pickle in found.pickles if pickle.verdict is found.verdict]
        return f"{found.verdict}: {'; '.join(f'{item.where} {item.globals} {item.reasons}' for item in blamed)}"
    return "; ".join(f"unscanned: {part.where} {part.reason}" for part in found.unscanned) or None


def raise_no_alarm(scan: Scan, *, slow: bool) -> None:
    alarms = {name: alarm(benign, scan) for name, benign in BENIGN.items() if name.startswith(SLOW) is slow}
    assert {name: text for name, text in alarms.items() if text} == {}


def test_no_benign_member_raises_an_alarm(scan: Scan) -> None:
    raise_no_alarm(scan, slow=False)


@pytest.mark.nightly
def test_no_benign_member_that_is_slow_to_make_raises_an_alarm(scan: Scan) -> None:
    raise_no_alarm(scan, slow=True)


def test_the_corpus_begins_with_every_opcode() -> None:
    begins = {benign.make()[:1] for name, benign in BENIGN.items() if name.startswith(("openings/", "first_bytes/"))}
    assert {bytes([code]) for code in OPCODES} <= begins
    assert len(BENIGN) >= 300
