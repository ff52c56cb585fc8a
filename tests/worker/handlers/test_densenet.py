import io
from types import SimpleNamespace

import pytest
import torch

from marpack.worker.handlers import base
from marpack.worker.handlers.base import DenseNetHandler

PICTURE = torch.arange(12, dtype=torch.float32).reshape(3, 2, 2)
MODEL = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self): super().__init__(2, 1)\n"


def saved(tensor: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    return buffer.getvalue()


def test_the_tensors_of_a_batch_are_answered_with_one(make_context, save_averages, monkeypatch):
    moments = iter([10.0, 10.0123456])
    monkeypatch.setattr(base, "time", SimpleNamespace(time=lambda: next(moments)))
    save_averages(3)
    handler, context = DenseNetHandler(), make_context()
    assert (handler.model, handler.initialized) == (None, False)
    handler.initialize(context)
    assert (handler.device, handler.map_location, handler.initialized) == (torch.device("cpu"), "cpu", True)
    assert not handler.model.training
    assert handler.manifest is context.manifest
    rows = [{"data": saved(PICTURE)}, {"body": saved(PICTURE * 2)}]
    (answer,) = handler.handle(rows, context)
    assert answer.tolist() == [[0.0, 5.5, 11.0], [0.0, 11.0, 22.0]]
    assert context.metrics.times == [("HandlerTime", 12.35, None, "ms")]
    assert handler.context is context


def test_a_model_file_is_filled_with_its_weights(make_context, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "densenet_model.py").write_text(MODEL)
    torch.save({"weight": torch.tensor([[2.0, 3.0]]), "bias": torch.tensor([1.0])}, tmp_path / "model.pt")
    handler = DenseNetHandler()
    handler.initialize(make_context(model_file="densenet_model.py"))
    answer = handler.inference(torch.tensor([[1.0, 1.0]]))
    assert (answer.tolist(), answer.requires_grad) == ([[6.0]], False)


def test_a_gpu_that_is_given_counts_only_where_there_is_one(make_context, save_averages, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    save_averages()
    handler, context = DenseNetHandler(), make_context()
    context.system_properties["gpu_id"] = 0
    handler.initialize(context)
    assert (handler.device, handler.map_location) == (torch.device("cpu"), "cpu")


def test_no_weights_are_an_error_as_on_the_server(make_context):
    with pytest.raises(RuntimeError, match=r"Missing the model\.pt file"):
        DenseNetHandler().initialize(make_context())
