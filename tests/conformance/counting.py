"""How many pairs of answers were compared: counted wherever the tests run, told at the end.

A plugin of tests/conftest.py: the process that divides the tests among others knows no conftest.py below that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conformance.probe import Probe

_PAIRS = pytest.StashKey[dict[str, set[tuple[str, str]]]]()

Count = Callable[[str, Probe, str], None]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PAIRS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that the tests were divided from which pairs this one compared."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["pairs"] = {against: sorted(pairs) for against, pairs in session.config.stash[_PAIRS].items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Count the pairs that another process compared; `node` is pytest-xdist's for it."""
    for against, pairs in getattr(node, "workeroutput", {}).get("pairs", {}).items():
        known = node.config.stash[_PAIRS].setdefault(against, set())
        known.update((probe, call) for probe, call in pairs)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for against, pairs in config.stash[_PAIRS].items():
        archives = len({probe for probe, _ in pairs})
        terminalreporter.write_line(f"conformance: {len(pairs)} pairs over {archives} archives ({against})")


@pytest.fixture
def count(pytestconfig: pytest.Config) -> Count:
    """Note one compared pair of answers."""

    def note(against: str, probe: Probe, call: str) -> None:
        pytestconfig.stash[_PAIRS].setdefault(against, set()).add((probe.name, call))

    return note
