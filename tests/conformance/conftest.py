"""Fixtures of the conformance suite: the real server on its stage, marpack's rehearsals, and the count of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.peer import find_peer, peer_required
from conformance.probe import Probe
from conformance.probes.catalogue import PROBES
from conformance.rehearsal import Rehearsal, Workers, rehearse
from conformance.stage import Stage

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


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The real server; a reason to skip where there is none, to fail where it is demanded."""
    peer = find_peer()
    if isinstance(peer, str):
        (pytest.fail if peer_required() else pytest.skip)(f"no real TorchServe to compare with: {peer}")
    return Stage(peer, tmp_path_factory.mktemp("stage"), _asked(request.session))


def _asked(session: pytest.Session) -> Iterable[Probe]:
    """Return the probes of the tests that were selected to run against the server, and the one they all need."""
    live = [item for item in session.items if isinstance(item, pytest.Function) and "stage" in item.fixturenames]
    # Tests of other folders may have a parameter "stage" of their own.
    params = [item.callspec.params for item in live if hasattr(item, "callspec")]
    asked = [found["probe"] for found in params if "probe" in found]
    return [*asked, *(probe for probe in PROBES if probe.name == "digits")]


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Probe], Rehearsal]]:
    """Ask marpack a probe, once a session."""
    done: dict[str, Rehearsal | Exception] = {}
    folder: Path = tmp_path_factory.mktemp("rehearsals")
    workers = Workers()

    def ask(probe: Probe) -> Rehearsal:
        if probe.name not in done:
            place = folder / probe.name
            place.mkdir()
            done[probe.name] = _rehearsed(probe, place, workers)
        said = done[probe.name]
        if isinstance(said, Exception):
            raise said
        return said

    yield ask
    workers.close()


def _rehearsed(probe: Probe, folder: Path, workers: Workers) -> Rehearsal | Exception:
    try:
        return rehearse(probe, folder, workers)
    except Exception as error:  # noqa: BLE001 - every pair of the probe fails with it, at the price of one attempt
        return error
