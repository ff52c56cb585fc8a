"""What a worker does before it loads a model."""

import os

import pytest
from workers import predict, started

from marpack.protocol.messages import Load
from marpack.torchserve.http import Request
from marpack.worker.__main__ import bound_spinning

NAMES = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
HANDLER = "import os\ndef handle(data, context):\n    return data and [os.environ.get('GOMP_SPINCOUNT', 'unset')]\n"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_users_variables_say_how_threads_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {name: "7"})
    bound_spinning()
    assert os.environ == {name: "7"}


@pytest.mark.parametrize(("chosen", "seen"), [(None, b"1000"), ("50", b"50")])
def test_workers_bound_how_long_threads_spin(chosen: str | None, seen: bytes, make_folder) -> None:
    environment = {**os.environ, **({} if chosen is None else {"GOMP_SPINCOUNT": chosen})}
    with started(Load(model_dir=str(make_folder(HANDLER))), environment=environment, forks=False) as worker:
        assert predict(worker, (Request(id="1", parts=()),)).responses[0].body == seen
