import torch

from marpack.worker.handlers.base import BaseHandler, MockContext


def test_a_handler_is_initialised_and_answers(tmp_path):
    torch.jit.script(torch.nn.Identity()).save(tmp_path / "model.pt")
    (tmp_path / "config.yaml").write_text("handler: {profile: true}\n")
    context = MockContext(model_dir=str(tmp_path), model_file=None, model_yaml_config_file="config.yaml")
    handler = BaseHandler()
    handler.initialize(context)
    assert handler.handle([[1.0]], context) == [[1.0]]
    names = [metric.name for metric in context.metrics.store]
    assert names == ["ts_handler_preprocess", "ts_handler_inference", "ts_handler_postprocess", "HandlerTime"]


def test_headers_as_the_servers_mock_answers_them():
    context = MockContext(model_pt_file=None)
    assert context.manifest == {"model": {"modelFile": "model.py"}}
    assert not context.get_request_header(1, "explain")
    context.explain = True
    assert context.get_request_header(1, "explain")
    assert not context.get_request_header(0, "explain")
