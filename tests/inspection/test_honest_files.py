"""No false alarm on honest files: none is dangerous or unscanned, and only those that may need trust do."""

from collections.abc import Callable

import pytest
from inspection.benign import BENIGN, OPCODES
from inspection.honest_files import NEED_TRUST, QUICK, SLOW, Honest, benign, listed

from marpack.inspection.pickles import PickleScan, PickleVerdict

Scan = Callable[..., PickleScan]


def find_alarms(files: dict[str, Honest], scan: Scan) -> dict[str, PickleScan]:
    """Return the scans of the files that are judged worse than they are."""
    found = {name: scan(honest.make(), honest.member) for name, honest in files.items()}
    return {
        name: each
        for name, each in found.items()
        if each.verdict is PickleVerdict.DANGEROUS or (each.needs_trust_pickle and not files[name].may_need_trust)
    }


def test_honest_files_raise_no_alarm(scan: Scan) -> None:
    assert find_alarms(benign(slow=False) | listed(*QUICK), scan) == {}


@pytest.mark.slow
def test_honest_files_that_are_slow_to_make_raise_no_alarm(scan: Scan) -> None:
    files = benign(slow=True) | listed(*SLOW) | listed(*NEED_TRUST, may_need_trust=True)
    assert find_alarms(files, scan) == {}


def test_the_files_begin_with_every_opcode() -> None:
    begins = {make()[:1] for name, make in BENIGN.items() if name.startswith(("openings/", "first_bytes/"))}
    assert {bytes([code]) for code in OPCODES} <= begins
    assert len(BENIGN) >= 300
    assert len(listed(*QUICK, *SLOW, *NEED_TRUST)) >= 150
