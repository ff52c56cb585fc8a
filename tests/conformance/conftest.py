"""Fixtures of the conformance suite: the real server and marpack's own worker, each asked once for every probe."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from conformance.peer import require_peer
from conformance.probe import Probe
from conformance.probes.catalogue import PROBES
from conformance.rehearsal import Rehearsal, rehearse
from conformance.stage import Stage


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return the real server."""
    return Stage(require_peer(), tmp_path_factory.mktemp("stage"), _asked(request.session))


def _asked(session: pytest.Session) -> Iterable[Probe]:
    """Return the probes of the tests that were selected to run against the server, and the one they all need."""
    live = [item for item in session.items if isinstance(item, pytest.Function) and "stage" in item.fixturenames]
    # Tests of other folders may have a parameter "stage" of their own.
    params = [item.callspec.params for item in live if hasattr(item, "callspec")]
    asked = [found["probe"] for found in params if "probe" in found]
    return [*asked, *(probe for probe in PROBES if probe.name == "digits")]


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Probe], Rehearsal]:
    """Ask marpack a probe, once a session."""
    done: dict[str, Rehearsal | Exception] = {}
    folder: Path = tmp_path_factory.mktemp("rehearsals")

    def ask(probe: Probe) -> Rehearsal:
        if probe.name not in done:
            place = folder / probe.name
            place.mkdir()
            try:
                done[probe.name] = rehearse(probe, place)
            except Exception as error:  # noqa: BLE001 - every test of the probe fails with it, after one attempt
                done[probe.name] = error
        said = done[probe.name]
        if isinstance(said, Exception):
            raise said
        return said

    return ask
