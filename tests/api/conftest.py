import pytest
from conformance.forking import forked_workers, shared

from marpack.runner.client import Worker
from marpack.runner.process import Zygote


@pytest.fixture(autouse=True, scope="module")
def _forked_workers() -> object:
    """Fork workers from a process that has marpack imported, but not torch, which no handler here needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "spawn", forked_workers(lambda: shared(with_torch=False)))
        patch.setattr(Zygote, "start", lambda _: None)  # a zygote would import torch
        yield
