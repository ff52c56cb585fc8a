"""`marpack serve --compat torchserve` as a process, against what a real TorchServe 0.12 answers to the same bytes."""

from __future__ import annotations

import pytest
from conformance.exchanges import Exchange, Scene, load
from conformance.scenes import SCENES

from tools.reference.server_differences import ServerDifference


def _marks(scene: Scene, exchange: Exchange) -> list[pytest.MarkDecorator]:
    known = ServerDifference[exchange.difference] if exchange.difference else None
    occasion = [] if scene.name == "server" else [pytest.mark.slow]  # the others take their time
    return [*occasion, *([pytest.mark.xfail(reason=known.behavior, strict=True)] if known else [])]


EXCHANGES = [(scene, exchange) for scene in SCENES for exchange in scene.exchanges]
NAMES = [f"{scene.name}: {exchange.name}" for scene, exchange in EXCHANGES]
OURS = [
    pytest.param(scene, exchange, id=name, marks=_marks(scene, exchange))
    for (scene, exchange), name in zip(EXCHANGES, NAMES, strict=True)
]


def test_no_exchange_is_named_twice():
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("scene", "exchange"), OURS)
def test_answers_as_the_server_did(scene, exchange, ours):
    assert ours.have(scene, exchange) == load()[scene.name][exchange.name]


@pytest.mark.peer
@pytest.mark.parametrize(
    ("scene", "exchange"),
    [
        pytest.param(*exchange, id=name, marks=() if name == "server: GET /ping" else pytest.mark.slow)
        for exchange, name in zip(EXCHANGES, NAMES, strict=True)
    ],
)
def test_the_server_still_answers_so(scene, exchange, theirs):
    assert theirs.have(scene, exchange) == load()[scene.name][exchange.name]
