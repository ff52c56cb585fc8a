"""The real server, asked once for every probe."""

from collections.abc import Iterable

import pytest
from conformance.peer import require_peer
from conformance.probe import Probe
from conformance.probes.catalogue import PROBES
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
