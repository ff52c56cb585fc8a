"""Imports, requirements, weights, labels and model configs."""

import pytest
from inspection.lint.case import told
from inspection.lint.content_cases import CASES


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_finds_exactly(case):
    assert told(case.findings()) == sorted(case.expected)
