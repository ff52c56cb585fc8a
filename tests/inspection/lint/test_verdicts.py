"""The static checks against what the server's loader said: an error where it fails, none where it does not."""

import pytest
from inspection.lint.case import Case
from inspection.lint.verdicts import CASES, recorded

VERDICTS = recorded()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_the_server_agreed(case: Case) -> None:
    """Compare with what each case expects, which `check_case` compares with what the checks find."""
    verdict = VERDICTS[case.name]
    fails = verdict["load"] or (verdict["answer"] if case.answers else False)
    errors = [line for line in case.expected if line.startswith("E ")]
    expected = bool(errors) if case.fails is None else case.fails
    assert fails is expected, errors
