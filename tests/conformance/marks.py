"""Marks: what pytest should know of a probe before it runs its tests."""

from __future__ import annotations

import pytest
from conformance.probe import Probe

_BY_DAY = "shadow-yaml"  # of those whose modules shadow others, so that each needs an interpreter of its own


def expectation(probe: Probe) -> list[pytest.MarkDecorator]:
    """Return the mark of a probe whose pairs are known to differ; one that does not differ any more then fails."""
    return [pytest.mark.xfail(reason=probe.unmatched, strict=True)] if probe.unmatched else []


def occasion(probe: Probe) -> list[pytest.MarkDecorator]:
    """Return the mark of a probe that only `make test-all` rehearses."""
    return [pytest.mark.nightly] if probe.name.startswith("shadow-") and probe.name != _BY_DAY else []
