import io
import json
from abc import ABC
from types import SimpleNamespace

import pytest
import torch

from marpack.worker import stages
from marpack.worker.handlers import base
from marpack.worker.handlers.base import BaseHandler, DenseNetHandler, MockContext
from marpack.worker.handlers.text import TextClassifier
from marpack.worker.handlers.vision import ImageClassifier, ImageSegmenter, ObjectDetector


class Recorder(BaseHandler):
    """Notes which stages run, in which order, with what."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def note(self, returned, *call):
        self.calls.append(call)
        return returned

    def preprocess(self, data):
        return self.note("prepared", "preprocess", data)

    def inference(self, data):
        return self.note("inferred", "inference", data)

    def postprocess(self, data):
        return self.note(["answer"], "postprocess", data)

    def explain_handle(self, data_preprocess, raw_data):
        return self.note(["explained"], "explain", data_preprocess, raw_data)

    def describe_handle(self):
        return self.note({"name": "recorder"}, "describe")


PREDICTED = [("preprocess", [1]), ("inference", "prepared"), ("postprocess", "inferred")]
TENSOR = torch.zeros(1, 2)


@pytest.mark.parametrize(
    ("headers", "calls", "answer"),
    [
        ({}, PREDICTED, ["answer"]),
        ({"explain": "True"}, [("preprocess", [1]), ("explain", "prepared", [1])], ["explained"]),
        ({"explain": "true"}, PREDICTED, ["answer"]),
        ({"describe": "True"}, [("describe",)], [{"name": "recorder"}]),
        ({"describe": "True", "explain": "True"}, [("describe",)], [{"name": "recorder"}]),
    ],
)
def test_handle_runs_the_stages_that_the_headers_ask_for(make_context, headers, calls, answer):
    handler, context = Recorder(), make_context(headers=headers)
    assert handler.handle([1], context) == answer
    assert handler.calls == calls
    assert handler.context is context
    assert handler.explain is ("explain" in headers and "describe" not in headers and headers["explain"] == "True")


def test_handle_measures_itself(make_context, monkeypatch):
    moments = iter([10.0, 10.0123456, 1.0, 1.25])
    monkeypatch.setattr(base, "time", SimpleNamespace(time=lambda: next(moments)))
    monkeypatch.setattr(stages, "time", SimpleNamespace(time=lambda: next(moments)))
    handler, context = Recorder(), make_context(config={"handler": {"profile": True}})
    handler.handle([1], context)
    assert stages.timed(Recorder.preprocess)(handler, [1]) == "prepared"
    assert context.metrics.times == [("HandlerTime", 12.35, None, "ms"), ("ts_handler_preprocess", 250.0)]


def test_torchscript_is_answered_as_nested_lists(make_context, save_averages, tmp_path):
    save_averages(3)
    (tmp_path / "index_to_name.json").write_text(json.dumps({"0": "cat", "1": ["n1", "dog"], "2": "eel"}))
    handler, context = BaseHandler(), make_context()
    handler.initialize(context)
    assert handler.mapping == {"0": "cat", "1": "dog", "2": "eel"}
    assert (handler.device, handler.map_location, handler.get_device()) == (torch.device("cpu"), "cpu", handler.device)
    assert handler.manifest is context.manifest
    assert handler.model_pt_path == str(tmp_path / "model.pt")
    assert handler.initialized
    assert not handler.model.training
    assert handler.handle([[[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]], context) == [[0.0, 3.5, 7.0]]


def test_broken_labels_fail_as_on_the_server_and_say_why(make_context, save_averages, tmp_path, notes):
    save_averages()
    for text in ("{", "[1]", '{"0": 1}', '{"0": []}', '\ufeff{"0": "a"}'):
        (tmp_path / "index_to_name.json").write_text(text, encoding="utf-8")
        with pytest.raises(Exception):  # noqa: B017 - the server's own classes are ValueError, Exception and IndexError
            BaseHandler().initialize(make_context())
        assert "index_to_name.json" in notes()["labels-unreadable"].message


def test_inference_runs_without_autograd_and_passes_everything_on(make_context, save_averages):
    save_averages()
    handler = BaseHandler()
    handler.initialize(make_context())

    def model(data, *args, **kwargs):
        assert torch.is_inference_mode_enabled()
        return data, args, kwargs

    handler.model = model
    data = torch.ones(2)
    assert handler.inference(data, 1, flag=True) == (data, (1,), {"flag": True})


def test_a_failing_call_says_what_the_model_was_called_with(make_context, save_averages, notes):
    save_averages()
    handler = BaseHandler()
    handler.initialize(make_context())
    with pytest.raises(RuntimeError):
        handler.inference(torch.ones(2, 3, dtype=torch.int64))
    trouble = notes()["model-call"]
    assert trouble.stage == "inference"
    assert "a tensor [2, 3] int64 on cpu" in trouble.message
    handler.model = torch.jit.script(torch.nn.Linear(3, 1))  # TorchScript's own trace is skipped
    with pytest.raises(RuntimeError):
        handler.inference(TENSOR)
    assert "[1, 2] float32 on cpu: RuntimeError: mat1 and mat2" in notes()["model-call"].message


def test_numbers_that_are_none_are_noted_and_sent_on(notes):
    for finite in (TENSOR, TENSOR.int()):
        assert BaseHandler().postprocess(finite) == finite.tolist()
    assert not notes()
    assert str(BaseHandler().postprocess(torch.tensor([1.0, float("nan"), float("inf")]))) == "[1.0, nan, inf]"
    assert notes()["not-finite"].message.startswith("2 of 3 ")


def test_explanations_without_get_insights_fail_and_say_so(make_context, save_averages, notes):
    save_averages()
    handler, context = BaseHandler(), make_context(headers={"explain": "True"})
    handler.initialize(context)
    with pytest.raises(AttributeError):
        handler.handle([[1.0]], context)
    assert "get_insights" in notes()["no-insights"].message


def test_what_is_explained():
    handler = BaseHandler()
    handler.get_insights = lambda *what: what
    for row, inputs, target in (
        ({"data": b"a", "body": b"b", "target": 3}, b"a", 3),
        ({"body": b"b", "target": ""}, b"b", 0),
        ({"target": bytearray(b"1")}, None, bytearray(b"1")),
        ("text", None, 0),
    ):
        assert handler.explain_handle("tensor", [row]) == ("tensor", inputs, target)


def test_subclasses_override_the_loaders_and_name_other_methods_as_they_like(make_context, tmp_path):
    class Own(BaseHandler, ABC):
        def _load_torchscript_model(self, model_pt_path):
            self.seen = model_pt_path
            return torch.nn.Identity()

    handler = Own()
    handler.initialize(make_context())
    assert handler.seen == str(tmp_path / "model.pt")
    # An author's `_load_model`, `_compile` or `_options` must not be mistaken for a step of ours.
    private = [name for name in dir(BaseHandler) if name.startswith("_")]
    assert [name for name in private if not name.startswith(("__", "_abc", "_marpack"))] == [
        "_infer_with_profiler", "_is_describe", "_is_explain", "_load_pickled_model",
        "_load_torch_export_aot_compile", "_load_torchscript_model", "_use_torch_export_aot_compile",
    ]  # fmt: skip


TIMED = ["ts_handler_preprocess", "ts_handler_inference", "ts_handler_postprocess"]


@pytest.mark.parametrize(
    ("config", "names"),
    [({}, []), ({"handler": {}}, []), ({"handler": {"profile": False}}, []), ({"handler": {"profile": True}}, TIMED)],
)
def test_stages_are_timed_when_the_config_says_so(make_context, save_averages, config, names):
    save_averages()
    handler, context = BaseHandler(), make_context(config=config)
    handler.initialize(context)
    handler.handle([[[[1.0]], [[3.0]], [[5.0]]]], context)
    assert handler.mapping is None  # without labels
    assert [entry[0] for entry in context.metrics.times] == [*names, "HandlerTime"]
    handler, context = BaseHandler(), make_context(config={"handler": None})
    handler.initialize(context)
    with pytest.raises(TypeError):  # as on the server
        handler.handle([[[[1.0]], [[3.0]], [[5.0]]]], context)


def test_profiler(make_context, monkeypatch, tmp_path):
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", "true")
    handler, context = Recorder(), make_context(headers={"describe": "True"})
    traces = []
    handler.profiler_args = {"activities": [torch.profiler.ProfilerActivity.CPU], "on_trace_ready": traces.append}
    assert handler.handle([1], context) == ["answer"]  # the profiler comes before describe, as on the server
    assert {"preprocess", "inference", "postprocess"} <= {event.key for event in traces[0].key_averages()}
    assert handler.manifest is context.manifest
    assert handler.handle([1], make_context(headers={"explain": "True"})) == ["explained"]


@pytest.mark.filterwarnings("default:CUDA is not available")  # of the profiler, on a machine without CUDA
def test_traces_go_where_the_servers_go(make_context, monkeypatch):
    folders: list[str] = []
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", "1")
    monkeypatch.setattr(base.profiler, "tensorboard_trace_handler", folders.append)
    handler, context = Recorder(), make_context()
    context.manifest["model"]["modelName"] = "digits"
    handler.handle([1], context)
    assert folders == ["/tmp/pytorch_profiler/digits"]
    assert handler.profiler_args["record_shapes"]  # for its author to read back


@pytest.mark.parametrize(
    ("handler", "output", "exception", "returned", "wanted"),
    [
        (BaseHandler, {"out": TENSOR}, AttributeError, "a dict of out", "a tensor"),
        (BaseHandler, (TENSOR, TENSOR), AttributeError, "a tuple of 2, the first a tensor [1, 2] float32", "a tensor"),
        (ImageClassifier, (TENSOR,), AttributeError, "a tuple of 1", "logits [N, K]"),
        (ImageClassifier, TENSOR[0], IndexError, "a tensor [2] float32 on cpu", "logits [N, K]"),
        (ImageSegmenter, TENSOR, IndexError, "a tensor [1, 2]", '{"out": logits [N, K, H, W]}'),
        (ObjectDetector, TENSOR, IndexError, "a tensor [1, 2]", "a list of {boxes"),
        (TextClassifier, None, AttributeError, "a NoneType", "logits [N, K]"),
    ],
)
def test_an_output_that_the_handler_cannot_take(notes, handler, output, exception, returned, wanted):
    with pytest.raises(exception):
        handler().postprocess(output)
    trouble = notes()["model-output"]
    assert returned in trouble.message
    assert wanted in trouble.message
    assert trouble.stage == "postprocess"


def test_what_is_no_model(notes):
    handler = BaseHandler()
    with pytest.raises(TypeError):
        handler.inference(TENSOR)
    trouble = notes()["no-model"]
    assert "builtins.NoneType" in trouble.message
    assert "super().initialize(context)" in str(trouble.hint)
    handler.model = 1
    with pytest.raises(TypeError):
        handler.inference(TENSOR)
    assert notes()["no-model"].hint is None


def test_a_compiler_that_fails_at_the_first_call(notes):
    def broken(graph, inputs):
        raise ValueError("no kernel for that")

    handler = BaseHandler()
    handler.model, handler.device = torch.compile(torch.nn.Linear(2, 1), backend=broken), "cpu"
    with pytest.raises(Exception, match="no kernel for that"):
        handler.inference(TENSOR)
    trouble = notes()["compile-failed"]
    assert "no kernel for that" in trouble.message
    assert "--no-compile" in trouble.hint


PICTURE = torch.arange(12, dtype=torch.float32).reshape(3, 2, 2)
MODEL = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self): super().__init__(2, 1)\n"


def saved(tensor: torch.Tensor) -> bytes:
    torch.save(tensor, buffer := io.BytesIO())
    return buffer.getvalue()


def test_the_tensors_of_a_batch_are_answered_with_one(make_context, save_averages, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    save_averages(3)
    handler, context = DenseNetHandler(), make_context()
    assert (handler.model, handler.initialized) == (None, False)
    context.system_properties["gpu_id"] = 0  # counts only where there is one
    handler.initialize(context)
    assert (handler.device, handler.map_location, handler.initialized) == (torch.device("cpu"), "cpu", True)
    assert not handler.model.training
    assert handler.manifest is context.manifest
    rows = [{"data": saved(PICTURE)}, {"body": saved(PICTURE * 2)}]
    (answer,) = handler.handle(rows, context)
    assert answer.tolist() == [[0.0, 5.5, 11.0], [0.0, 11.0, 22.0]]
    assert [name for name, *_ in context.metrics.times] == ["HandlerTime"]
    assert handler.context is context


def test_a_model_file_is_filled_with_its_weights(make_context, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "densenet_model.py").write_text(MODEL)
    handler = DenseNetHandler()
    with pytest.raises(RuntimeError, match=r"Missing the model\.pt file"):  # as on the server
        handler.initialize(make_context())
    torch.save({"weight": torch.tensor([[2.0, 3.0]]), "bias": torch.tensor([1.0])}, tmp_path / "model.pt")
    handler.initialize(make_context(model_file="densenet_model.py"))
    answer = handler.inference(torch.tensor([[1.0, 1.0]]))
    assert (answer.tolist(), answer.requires_grad) == ([[6.0]], False)


def test_a_handler_is_initialized_and_answers(tmp_path):
    torch.jit.script(torch.nn.Identity()).save(tmp_path / "model.pt")
    (tmp_path / "config.yaml").write_text("handler: {profile: true}\n")
    context = MockContext(model_dir=str(tmp_path), model_file=None, model_yaml_config_file="config.yaml")
    handler = BaseHandler()
    handler.initialize(context)
    assert handler.handle([[1.0]], context) == [[1.0]]
    names = [metric.name for metric in context.metrics.store]
    assert names == ["ts_handler_preprocess", "ts_handler_inference", "ts_handler_postprocess", "HandlerTime"]
