"""`marpack serve --compat torchserve` over gRPC, against the responses of a real TorchServe 0.12 to the same calls."""

from __future__ import annotations

import os
from typing import Any

import pytest
from conformance.exchanges import Scene
from conformance.grpc_calls import Rpc, have, load
from conformance.grpc_scenes import GRPC_DIFFERENCES, GRPC_SCENES
from conformance.staging import SceneServers

from tools.reference.server_differences import ServerDifference

CALLS = {f"{scene.name}: {rpc.name}": (scene, rpc) for scene in GRPC_SCENES for rpc in scene.exchanges}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    known = GRPC_DIFFERENCES.get(name)
    occasion = [] if name.startswith("server: ") else [pytest.mark.slow]  # the others take their time
    return [*occasion, *([pytest.mark.xfail(reason=ServerDifference[known].behavior, strict=True)] if known else [])]


def _live_calls() -> list[Any]:
    """Return the calls to a real server: with MARPACK_COMPARE=all also those that need seconds or another server."""
    every = os.environ.get("MARPACK_COMPARE") == "all"
    asked = {name: (scene, rpc) for name, (scene, rpc) in CALLS.items() if scene.name == "server" and not rpc.settled}
    return [
        pytest.param(*call, id=name, marks=() if name == "server: ping" else pytest.mark.slow)
        for name, call in (CALLS if every else asked).items()
    ]


def test_no_call_is_named_twice():
    assert len(CALLS) == sum(len(scene.exchanges) for scene in GRPC_SCENES)
    assert set(GRPC_DIFFERENCES) <= set(CALLS)


@pytest.mark.parametrize(
    ("scene", "rpc"), [pytest.param(*call, id=name, marks=_marks(name)) for name, call in CALLS.items()]
)
def test_answers_as_the_server_did(scene: Scene, rpc: Rpc, ours: SceneServers):
    assert have(rpc, ours.server_of(scene)) == load()[scene.name][rpc.name]


@pytest.mark.peer
@pytest.mark.parametrize(("scene", "rpc"), _live_calls())
def test_the_server_still_answers_so(scene: Scene, rpc: Rpc, theirs: SceneServers):
    assert have(rpc, theirs.server_of(scene)) == load()[scene.name][rpc.name]
