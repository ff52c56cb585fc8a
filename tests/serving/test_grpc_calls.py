"""`marpack serve --compat torchserve` over gRPC, against the responses of a real TorchServe 0.12 to the same calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.exchanges import Scene
from conformance.grpc_calls import Rpc, have, load
from conformance.grpc_scenes import GRPC_SCENES
from conformance.peer import require_peer
from conformance.server import Server
from conformance.staging import SceneServers


def _marks(scene: Scene, rpc: Rpc) -> list[pytest.MarkDecorator]:
    """Return the mark of a call that takes seconds, and that its recording decides."""
    is_short = scene.name == "server" and not rpc.settled
    return [] if is_short else [pytest.mark.independent("recordings")]


CALLS = [
    pytest.param(scene, rpc, id=f"{scene.name}: {rpc.name}", marks=_marks(scene, rpc))
    for scene in GRPC_SCENES
    for rpc in scene.exchanges
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SceneServers]:
    """Return real servers; skip where there are none, fail where they are demanded."""
    servers = SceneServers(tmp_path_factory.mktemp("theirs"), Server, require_peer())
    yield servers
    servers.stop()


def test_no_call_is_named_twice():
    assert len({param.id for param in CALLS}) == len(CALLS)


@pytest.mark.nightly  # TorchServe takes seconds to start
@pytest.mark.conformance
@pytest.mark.parametrize(("scene", "rpc"), CALLS)
def test_the_server_still_answers_so(scene: Scene, rpc: Rpc, theirs: SceneServers):
    assert have(rpc, theirs.server_of(scene)) == load()[scene.name][rpc.name]
