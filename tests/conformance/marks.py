"""Marks: what pytest should know of a probe before it runs its tests."""

from __future__ import annotations

import pytest
from conformance.probe import Probe


def expectation(probe: Probe) -> list[pytest.MarkDecorator]:
    """Return the mark of a probe whose pairs are known to differ; one that does not differ any more then fails."""
    return [pytest.mark.xfail(reason=probe.unmatched, strict=True)] if probe.unmatched else []
