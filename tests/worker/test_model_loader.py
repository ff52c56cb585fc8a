import pytest

from marpack.protocol.messages import Load
from marpack.worker.model_loader import HandlerLoader


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), 507),
        (RuntimeError("CUDA error: out of memory"), 507),
        (RuntimeError("no"), 503),
        (ValueError("CUDA"), 503),
    ],
)
def test_a_model_that_does_not_fit_is_507_and_any_other_that_fails_503(error: Exception, status: int):
    failure = HandlerLoader(Load(model_dir="/m")).failure(error)
    assert failure.status == status
    assert (failure.trouble.kind, failure.trouble.message) == (type(error).__name__, str(error))


def test_a_module_that_the_requirements_list_is_missing_only_here():
    error = ModuleNotFoundError("No module named 'lru'", name="lru")
    for required, only_here in ((("lru-dict",), True), ((), False)):
        assert HandlerLoader(Load(model_dir="/m", required=required)).failure(error).trouble.only_here is only_here
