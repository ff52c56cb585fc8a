"""Entry points and model files as the server counts, constructs and calls them."""

import pytest
from inspection.lint.case import told
from inspection.lint.handler_cases import CASES


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_finds_exactly(case):
    assert told(case.findings()) == sorted(case.expected)
