"""No false alarm on honest files: none is dangerous, none is left unscanned, and only those that may need trust do."""

from collections.abc import Callable

import pytest
from inspection.honest_files import NEED_TRUST, QUICK, SLOW, Honest, listed

from marpack.inspection.pickles import PickleScan, PickleVerdict

Scan = Callable[..., PickleScan]


def describe_alarm(honest: Honest, scan: Scan) -> str | None:
    """Return what is wrong with the verdict on a file."""
    found = scan(honest.make(), honest.member)
    allowed = {PickleVerdict.SAFE, PickleVerdict.NEEDS_TRUST} if honest.may_need_trust else {PickleVerdict.SAFE}
    if found.verdict in allowed and not found.unscanned:
        return None
    return f"{found.verdict}: {found.unscanned or [(item.globals, item.reasons) for item in found.pickles]}"


def find_alarms(files: dict[str, Honest], scan: Scan) -> dict[str, str]:
    alarms = {name: describe_alarm(honest, scan) for name, honest in files.items()}
    return {name: alarm for name, alarm in alarms.items() if alarm}


def test_honest_files_raise_no_alarm(scan: Scan) -> None:
    assert find_alarms(listed(*QUICK), scan) == {}


@pytest.mark.nightly
def test_honest_files_that_are_slow_to_make_raise_no_alarm(scan: Scan) -> None:
    files = listed(*SLOW) | listed(*NEED_TRUST, may_need_trust=True)
    assert find_alarms(files, scan) == {}


def test_there_are_enough_honest_files() -> None:
    assert len(listed(*QUICK, *SLOW, *NEED_TRUST)) >= 150
