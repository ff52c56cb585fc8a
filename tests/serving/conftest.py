"""Servers that play the scenes of conformance tests."""

from collections.abc import Iterator

import pytest
from conformance.peer import require_peer
from conformance.server import Server
from conformance.staging import OurServer, SceneServers


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SceneServers]:
    """Return servers of ours."""
    servers = SceneServers(tmp_path_factory.mktemp("ours"), OurServer)
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SceneServers]:
    """Return real servers; skip where there are none, fail where they are demanded."""
    servers = SceneServers(tmp_path_factory.mktemp("theirs"), Server, require_peer())
    yield servers
    servers.stop()
