"""The static checks against what the server's loader said: an error where it fails, none where it does not."""

from inspection.lint.case import Case
from inspection.lint.verdicts import CASES, recorded

VERDICTS = recorded()


def fails(case: Case) -> bool:
    """Return whether the server failed to load a handler, or to answer a request with it."""
    verdict = VERDICTS[case.name]
    return bool(verdict["load"] or (verdict["answer"] if case.answers else False))


def is_expected_to_fail(case: Case) -> bool:
    """Return what each case expects, which `check_case` compares with what the checks find."""
    return any(line.startswith("E ") for line in case.expected) if case.fails is None else case.fails


def test_the_server_agreed() -> None:
    assert len(CASES) > 300
    assert [case.name for case in CASES if fails(case) is not is_expected_to_fail(case)] == []
