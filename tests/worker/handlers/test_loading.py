"""What BaseHandler does with weights of every format, under both targets."""

import importlib.util
import sys
import zipfile
from unittest.mock import MagicMock

import pytest
import torch
from safetensors.torch import save_file

from marpack.errors import WeightsError
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.worker.handlers.base import BaseHandler, NoLoaderError, NoWeightsError
from marpack.worker.handlers.vision import ImageClassifier
from marpack.worker.loaders import diagnosis
from marpack.worker.loaders.compilation import CompileError
from marpack.worker.model_loader import HandlerLoader

TORCHSERVE, MARPACK = Target.TORCHSERVE, Target.MARPACK


def write(net, path, kind):
    example = torch.ones(1, 3)
    if kind == "torchscript":
        torch.jit.trace(net, example).save(path)
    elif kind in {"state_dict", "legacy"}:
        torch.save(net.state_dict(), path, _use_new_zipfile_serialization=kind != "legacy")
    elif kind == "whole":
        torch.save(net, path)
    elif kind == "safetensors":
        save_file(net.state_dict(), path)
    elif kind == "export":
        torch.export.save(torch.export.export(net, (example,)), path)
    else:
        path.write_bytes({"empty": b"", "text": b"version https://git-lfs.github.com/spec/v1\n"}[kind])


def answer(context):
    handler = BaseHandler()
    handler.initialize(context)
    return handler.postprocess(handler.inference(handler.preprocess([[1.0, 1.0, 1.0]])))


LOADED = [
    ("state_dict", "w", True, TORCHSERVE),
    ("legacy", "w.pt", True, TORCHSERVE),
    ("torchscript", "w.pt", False, MARPACK),
    ("torchscript", "w.pth", False, MARPACK),
    ("torchscript", "w.bin", False, MARPACK),
    ("state_dict", "w.pt", True, MARPACK),
    ("safetensors", "w.safetensors", True, MARPACK),
    ("safetensors", "w.pt", True, MARPACK),
    ("export", "w.pt2", False, MARPACK),
]


@pytest.mark.parametrize(("kind", "name", "eager", "target"), LOADED)
def test_loaded(make_context, model_dir, net, notes, kind, name, eager, target):
    write(net, model_dir / name, kind)
    assert answer(make_context(name, "doubler.py" if eager else None, target=target)) == [[6.0, 1.0]]
    assert not notes()


REFUSED = [
    # the file's content, its name, with a model file?, exception, note, words of its message, words of its hint
    ("state_dict", "w.pt", False, RuntimeError, "weights-format", "is state_dict", "model_file"),
    ("whole", "w.pt", False, RuntimeError, "weights-format", "is whole pickled model", "model.state_dict()"),
    ("safetensors", "w.pt", False, RuntimeError, "weights-format", "is safetensors", "model_file"),
    ("export", "w.pt", False, RuntimeError, "weights-format", "is torch.export program", "target: marpack"),
    ("empty", "w.pt", False, Exception, "weights-format", "w.pt (0 bytes) is unknown", "digest"),
    ("text", "w.pt", False, RuntimeError, "weights-format", "w.pt (43 bytes) is unknown", "digest"),
    (None, "w.pt", False, ValueError, "weights-missing", "No such file", "manifest"),
    ("torchscript", "w.pt", True, RuntimeError, "weights-format", "is TorchScript", "Remove model_file"),
    ("whole", "w.pt", True, Exception, "pickle-needs-code", "doubler.Doubler", "--trust-pickle"),
    ("safetensors", "w.pt", True, Exception, "weights-format", "is safetensors", "target: marpack"),
    ("text", "w.onnx", False, Exception, "weights-format", "its use here needs ONNX", "digest"),
    ("torchscript", "w.pth", False, NoLoaderError, None, "no loader for weights like w.pth", "end in .pt"),
    ("safetensors", "w.safetensors", False, NoLoaderError, None, "w.safetensors", "model_file"),
    ("safetensors", "w.safetensors", True, NoLoaderError, None, "does not read safetensors", "target: marpack"),
    ("export", "w.pt2", False, NoLoaderError, None, "w.pt2", "target: marpack"),
    ("text", "w.so", False, NoLoaderError, None, "w.so", "target: marpack"),
    (None, "w.pt2", False, NoLoaderError, None, "w.pt2", "weights"),
]


@pytest.mark.filterwarnings("ignore:.*looks like a TorchScript archive:UserWarning")  # torch.load, before it refuses
@pytest.mark.parametrize(("kind", "name", "eager", "exception", "code", "words", "hint"), REFUSED)
def test_refused_as_on_the_server_with_reason_and_fix(
    make_context, model_dir, net, notes, kind, name, eager, exception, code, words, hint
):
    if kind:
        write(net, model_dir / name, kind)
    with pytest.raises(exception) as failure:
        answer(make_context(name, "doubler.py" if eager else None))
    told = notes()
    if code is None:
        assert not told
        assert words in failure.value.what
        assert hint in failure.value.hint
    else:
        assert words in told[code].message
        assert hint in told[code].hint
        assert told[code].stage == "initialize"


def test_refused_under_target_marpack(make_context, model_dir, net):
    for kind, name, words, hint in (
        ("state_dict", "w.pt", "tensors only", "model_file"),
        ("safetensors", "w.safetensors", "tensors only", "model_file"),
        ("text", "x.pt", "unknown", "TorchScript"),
    ):
        write(net, model_dir / name, kind)
        with pytest.raises(WeightsError, match=words) as failure:
            answer(make_context(name, target=MARPACK))
        assert name in str(failure.value)
        assert hint in failure.value.hint


def test_no_weights_at_all_and_weights_that_need_trust(make_context, model_dir, net):
    for target in Target:
        with pytest.raises(NoWeightsError) as failure:
            answer(make_context(None, target=target))
        assert isinstance(failure.value, AttributeError)
    write(net, model_dir / "w.pt", "whole")
    assert answer(make_context("w.pt", target=MARPACK, trust_pickle=True)) == [[6.0, 1.0]]


def test_a_library_needs_its_section(make_context, model_dir, net, monkeypatch):
    """With it, the file goes to AOTInductor's own loader."""
    write(net, model_dir / "w.so", "text")
    asked = []
    monkeypatch.setattr(BaseHandler, "_load_torch_export_aot_compile", lambda _, path: asked.append(path) or torch.sum)
    with pytest.raises(NoLoaderError):
        answer(make_context("w.so", config={"pt2": {"export": {"aot_compile": False}}}))
    answer(make_context("w.so", config={"pt2": {"export": {"aot_compile": True}}}))
    assert asked == [str(model_dir / "w.so")]


def test_compiled_as_the_config_asks(make_context, model_dir, net):
    write(net, model_dir / "w.pt", "state_dict")
    cases = ((TORCHSERVE, {}, True), (MARPACK, {}, True), (MARPACK, {"compile": False}, False))
    for target, settings, compiled in cases:
        config = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}
        handler = BaseHandler()
        handler.initialize(make_context("w.pt", "doubler.py", target=target, config=config, **settings))
        assert hasattr(handler.model, "_orig_mod") is compiled
        assert config == {"pt2": {"compile": {"backend": "eager"}}}  # as the server leaves it


def test_an_unknown_backend(make_context, model_dir, net, notes):
    write(net, model_dir / "w.pt", "state_dict")
    assert answer(make_context("w.pt", "doubler.py", config={"pt2": "warp"})) == [[6.0, 1.0]]
    assert "warp" in notes()["not-compiled"].message
    with pytest.raises(CompileError):
        answer(make_context("w.pt", "doubler.py", config={"pt2": "warp"}, target=MARPACK))


def test_a_session_cannot_be_called_on_the_server(make_context, model_dir, notes):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, model_dir / "w.onnx")
    with pytest.raises(TypeError, match="not callable"):
        answer(make_context("w.onnx"))
    assert "target: marpack" in notes()["onnx-session"].hint
    assert answer(make_context("w.onnx", target=MARPACK)) == [[-1.0, -1.0, -1.0]]
    handler = BaseHandler()
    handler.initialize(make_context("w.onnx"))
    assert [port.name for port in handler.model.get_inputs()] == ["x"]  # what handlers for ONNX work with


def test_mocks_show_the_server(model_dir, net):
    write(net, model_dir / "w.pt", "torchscript")
    context = MagicMock(manifest={"model": {"serializedFile": "w.pt"}}, model_yaml_config={"pt2": "warp"})
    context.system_properties = {"model_dir": str(model_dir), "gpu_id": None}
    handler = BaseHandler()
    handler.initialize(context)  # under target marpack the backend would be an error
    assert handler.initialized


TORCHVISION = """
import torch

library = torch.library.Library("torchvision", "FRAGMENT")
library.define("marpack_probe(Tensor numbers) -> Tensor")
library.impl("marpack_probe", lambda numbers: numbers, "CPU")
"""


@pytest.fixture
def weights_with_operator(model_dir, net):
    """TorchScript that calls an operator which only the torchvision beside it registers."""
    write(net, model_dir / "plain.pt", "torchscript")
    call = b"    _9 = ops.torchvision.marpack_probe(numbers)\n    layer = "
    with zipfile.ZipFile(model_dir / "plain.pt") as old, zipfile.ZipFile(model_dir / "w.pt", "w") as new:
        members = {name: old.read(name).replace(b"    layer = ", call) for name in old.namelist()}
        assert any(call in content for content in members.values())
        for name, content in members.items():
            new.writestr(name, content)
    yield model_dir / "w.pt"
    sys.modules.pop("torchvision", None)


def test_torchvision_is_imported_where_the_server_imports_it(make_context, model_dir, weights_with_operator, notes):
    (model_dir / "torchvision.py").write_text(TORCHVISION)
    with pytest.raises(RuntimeError, match="torchvision"):  # the server's base_handler does not
        answer(make_context("w.pt"))
    assert "torchvision" in notes()["torchvision-operators"].hint
    handler = ImageClassifier()
    handler.initialize(make_context("w.pt"))
    assert handler.inference(torch.ones(1, 3)).tolist() == [[6.0, 1.0]]
    assert answer(make_context("w.pt", target=MARPACK)) == [[6.0, 1.0]]


def test_a_torchvision_that_fails_or_is_missing_is_named(model_dir, weights_with_operator, notes):
    if importlib.util.find_spec("torchvision") is None:
        diagnosis.import_torchvision(weights_with_operator)
        assert notes()["torchvision-missing"].hint.endswith("pip install torchvision")
    (model_dir / "torchvision.py").write_text("raise OSError('undefined symbol')\n")
    importlib.invalidate_caches()
    diagnosis.import_torchvision(weights_with_operator)
    assert "undefined symbol" in notes()["torchvision-broken"].message


@pytest.mark.parametrize(("target", "device"), [(TORCHSERVE, None), (MARPACK, None), (MARPACK, "cpu")])
def test_authors_call_the_loaders_from_an_initialize_of_their_own(make_context, model_dir, net, target, device):
    class Own(BaseHandler):
        def initialize(self, context):
            self.device, self.context = device, context
            model_dir = context.system_properties["model_dir"]
            self.model = self._load_pickled_model(model_dir, "doubler.py", f"{model_dir}/w.pt")

    write(net, model_dir / "w.pt", "state_dict")
    handler = Own()
    handler.initialize(make_context("w.pt", target=target))
    assert handler.model(torch.ones(1, 3)).tolist() == [[6.0, 1.0]]


def failure_of(call, model_dir):
    """Return what is told of a load that failed."""
    with pytest.raises(Exception) as caught:
        call()
    return HandlerLoader(Load(model_dir=str(model_dir))).failure(caught.value).trouble


def test_a_load_that_fails_tells_what_the_weights_are(make_context, model_dir, net):
    write(net, model_dir / "w.pt", "state_dict")
    trouble = failure_of(lambda: BaseHandler().initialize(make_context("w.pt")), model_dir)
    assert "is state_dict, and its use here needs TorchScript" in trouble.notes[0]
    assert "the model's class" in str(trouble.hint)
    assert "\x1b" not in trouble.message


@pytest.mark.parametrize(
    ("kind", "load", "words", "hint"),
    [
        ("state_dict", torch.jit.load, "w.pt is a state_dict", "load_state_dict(torch.load(path))"),
        ("whole", torch.jit.load, "w.pt is a whole pickled model", "torch.jit.script(model).save(path)"),
        ("whole", torch.load, "w.pt is a whole pickled model", "weights_only=False"),
    ],
)
def test_a_load_of_the_authors_own_that_fails_tells_what_the_weights_are(model_dir, net, kind, load, words, hint):
    write(net, model_dir / "w.pt", kind)
    trouble = failure_of(lambda: load(model_dir / "w.pt"), model_dir)
    assert words in trouble.notes
    assert hint in str(trouble.hint)


def test_a_load_that_fails_for_another_reason_is_not_explained_by_the_weights(model_dir, net):
    write(net, model_dir / "w.pt", "state_dict")
    assert failure_of(lambda: torch.load(model_dir / "w.pt", map_location="nowhere"), model_dir).hint is None
    assert failure_of(lambda: torch.jit.load("nowhere.pt"), model_dir).hint is None
