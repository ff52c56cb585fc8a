"""`marpack serve --compat torchserve` over gRPC, against the responses of a real TorchServe 0.12 to the same calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.exchanges import Scene
from conformance.grpc_calls import Rpc, have, load
from conformance.grpc_scenes import GRPC_DIFFERENCES, GRPC_SCENES
from conformance.peer import require_peer
from conformance.server import Server
from conformance.staging import OurServer, SceneServers

from tools.reference.server_differences import ServerDifference

CALLS = {f"{scene.name}: {rpc.name}": (scene, rpc) for scene in GRPC_SCENES for rpc in scene.exchanges}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    known = GRPC_DIFFERENCES.get(name)
    occasion = [] if name.startswith("server: ") else [pytest.mark.nightly]  # the others take their time
    return [*occasion, *([pytest.mark.xfail(reason=ServerDifference[known].behavior, strict=True)] if known else [])]


def _settled(scene: Scene, rpc: Rpc) -> list[pytest.MarkDecorator]:
    """Return the mark of a call that takes seconds, and that its recording decides."""
    is_short = scene.name == "server" and not rpc.settled
    return [] if is_short else [pytest.mark.independent("recordings")]


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


def test_no_call_is_named_twice():
    assert len(CALLS) == sum(len(scene.exchanges) for scene in GRPC_SCENES)
    assert set(GRPC_DIFFERENCES) <= set(CALLS)


@pytest.mark.parametrize(
    ("scene", "rpc"), [pytest.param(*call, id=name, marks=_marks(name)) for name, call in CALLS.items()]
)
def test_answers_as_the_server_did(scene: Scene, rpc: Rpc, ours: SceneServers):
    assert have(rpc, ours.server_of(scene)) == load()[scene.name][rpc.name]


@pytest.mark.nightly  # TorchServe takes seconds to start
@pytest.mark.conformance
@pytest.mark.parametrize(
    ("scene", "rpc"), [pytest.param(*call, id=name, marks=_settled(*call)) for name, call in CALLS.items()]
)
def test_the_server_still_answers_so(scene: Scene, rpc: Rpc, theirs: SceneServers):
    assert have(rpc, theirs.server_of(scene)) == load()[scene.name][rpc.name]
