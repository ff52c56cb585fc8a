"""The static checks against what the server's loader said: an error where it fails, none where it does not."""

import pytest
from inspection.lint.case import Case
from inspection.lint.verdicts import CASES, recorded

from marpack.findings import Severity

VERDICTS = recorded()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_the_server_agreed(case: Case) -> None:
    verdict = VERDICTS[case.name]
    fails = verdict["load"] or (verdict["answer"] if case.answers else False)
    errors = [finding for finding in case.findings() if finding.severity is Severity.ERROR]
    expected = bool(errors) if case.fails is None else case.fails
    assert fails is expected, errors
