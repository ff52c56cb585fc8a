"""What a worker does before it loads a model, and what it says of one that does not load."""

import os

import pytest
from workers import predict, started

from marpack.protocol.messages import Load
from marpack.torchserve.http import Request
from marpack.worker.__main__ import bound_spinning
from marpack.worker.model_loader import HandlerLoader

NAMES = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
HANDLER = "import os\ndef handle(data, context):\n    return data and [os.environ.get('GOMP_SPINCOUNT', 'unset')]\n"


def test_the_users_variables_say_how_threads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setattr(os, "environ", {name: "7"})
        bound_spinning()
        assert os.environ == {name: "7"}


def test_workers_bound_how_long_threads_spin(make_folder) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    with started(Load(model_dir=str(make_folder(HANDLER))), environment=environment, forks=False) as worker:
        assert predict(worker, (Request(id="1", parts=()),)).responses[0].body == b"1000"


@pytest.mark.parametrize(
    ("error", "status"),
    [(MemoryError(), 507), (RuntimeError("CUDA error"), 507), (RuntimeError("no"), 503), (ValueError("CUDA"), 503)],
)
def test_a_model_that_does_not_fit_is_507_and_any_other_that_fails_503(error: Exception, status: int):
    failure = HandlerLoader(Load(model_dir="/m")).failure(error)
    assert failure.status == status
    assert (failure.trouble.kind, failure.trouble.message) == (type(error).__name__, str(error))


def test_a_module_that_the_requirements_list_is_missing_only_here():
    error = ModuleNotFoundError("No module named 'lru'", name="lru")
    for required, only_here in ((("lru-dict",), True), ((), False)):
        assert HandlerLoader(Load(model_dir="/m", required=required)).failure(error).trouble.only_here is only_here
