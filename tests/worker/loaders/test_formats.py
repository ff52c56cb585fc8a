"""Every format through the registry: what it loads, what it refuses, and what it says then."""

import io
import os
import pickle
import runpy
import sys
import zipfile

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

from marpack.weights.kind import WeightsFormat
from marpack.worker.loaders import formats
from marpack.worker.loaders.diagnosis import kind_of

BATCH = torch.ones(1, 3)
ANSWER = [[6.0, 1.0]]
COMPILERS_OWN = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch calls what torch deprecates


def write_onnx(path, *, opset=17, inputs=("x",), dtype=TensorProto.FLOAT, outputs=1):
    """Write a graph that multiplies the sum of its inputs with weights; its outputs are that, and that negated."""
    ports = [helper.make_tensor_value_info(name, dtype, ["n", 3]) for name in inputs]
    weights = np.array([[1, 0], [2, 0], [3, 1]], np.float32)
    nodes = [helper.make_node("Sum", list(inputs), ["sum"]), helper.make_node("MatMul", ["sum", "w"], ["y"])]
    nodes += [helper.make_node("Neg", ["y"], ["minus"])] if outputs == 2 else []
    results = [helper.make_tensor_value_info(name, dtype, ["n", 2]) for name in ("y", "minus")[:outputs]]
    graph = helper.make_graph(nodes, "g", ports, results, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.save(model, path)


def load(path, *, trust=False):
    return formats.load_model(kind_of(path), path, torch.device("cpu"), trust=trust)


def test_a_whole_model_needs_trust(net, model_dir, notes):
    torch.save(net, model_dir / "w.pt")
    with pytest.raises(pickle.UnpicklingError):
        load(model_dir / "w.pt")
    trouble = notes()["pickle-needs-code"]
    assert "doubler.Doubler" in trouble.message
    assert "--trust-pickle" in trouble.hint
    assert load(model_dir / "w.pt", trust=True)(BATCH).tolist() == ANSWER


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_pickle_never_runs(model_dir, notes, legacy):
    torch.save({"w": Evil(model_dir / "ran")}, model_dir / "w.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(pickle.UnpicklingError):
        formats.read_torch_save(model_dir / "w.pt", "cpu")
    assert not (model_dir / "ran").exists()
    if not legacy:  # torch lists the names of zips only
        assert "mkdir" in notes()["pickle-needs-code"].message


def test_weights_are_mapped_only_where_their_bytes_lie_bare(net, model_dir):
    torch.save(net.state_dict(), model_dir / "w.pt")
    assert formats.is_mappable(str(model_dir / "w.pt"))
    with (
        zipfile.ZipFile(model_dir / "w.pt") as stored,
        zipfile.ZipFile(model_dir / "d.pt", "w", zipfile.ZIP_DEFLATED) as deflated,
    ):
        for name in stored.namelist():
            deflated.writestr(name, stored.read(name))
    assert not formats.is_mappable(str(model_dir / "d.pt"))
    loaded = formats.read_torch_save(str(model_dir / "d.pt"), "cpu")
    assert loaded["layer.weight"].tolist() == net.layer.weight.tolist()


def test_onnx_with_several_inputs_and_outputs(model_dir):
    write_onnx(model_dir / "w.onnx", inputs=("a", "b"), outputs=2)
    model = load(model_dir / "w.onnx")
    found = model(BATCH, b=2 * BATCH)
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"y": [[18.0, 3.0]], "minus": [[-18.0, -3.0]]}
    assert [port.name for port in model.get_inputs()] == ["a", "b"]  # a method of the session
    for tensors, named, message in (
        ((BATCH.double(), BATCH), {}, r"input a is tensor\(float\), not torch.float64"),
        ((BATCH,), {}, "inputs a, the graph declares a tensor"),
        ((BATCH,), {"c": BATCH}, "inputs a, c, "),
        ((BATCH, BATCH, BATCH), {}, "inputs 3, "),
    ):
        with pytest.raises(formats.ModelInputError, match=message):
            model(*tensors, **named)


def test_onnx_of_another_opset(model_dir, notes):
    write_onnx(model_dir / "w.onnx", opset=999)
    with pytest.raises(Exception, match="opset"):
        load(model_dir / "w.onnx")
    trouble = notes()["onnx-refused"]
    assert "w.onnx (IR version 8, opset ai.onnx 999)" in trouble.message
    assert "opset_version" in trouble.hint


def test_onnx_says_when_there_is_no_gpu_provider(model_dir, notes):
    write_onnx(model_dir / "w.onnx")
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        formats.open_session(str(model_dir / "w.onnx"), "cuda")
    assert "onnxruntime-gpu" in notes()["onnx-provider"].hint


def test_code_in_an_exported_program_never_runs(net, model_dir):
    """torch would fall back to weights_only=False for the sample inputs."""
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "good.pt2")
    evil = io.BytesIO()
    torch.save((Evil(model_dir / "ran"), {}), evil)
    with zipfile.ZipFile(model_dir / "good.pt2") as old, zipfile.ZipFile(model_dir / "evil.pt2", "w") as new:
        assert any("sample_inputs" in name for name in old.namelist())
        for name in old.namelist():
            new.writestr(name, evil.getvalue() if "sample_inputs" in name else old.read(name))
    with pytest.raises(Exception, match=r"(?i)weights"):
        load(model_dir / "evil.pt2")
    assert not (model_dir / "ran").exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_an_exported_program_with_opaque_objects_is_refused(net, model_dir):
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "w.pt2")
    with zipfile.ZipFile(model_dir / "w.pt2", "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/data/constants/opaque_obj_0", pickle.dumps(Evil(model_dir / "ran")))
    with pytest.raises(formats.PackageNeedsCodeError, match="opaque_obj_0") as failure:
        load(model_dir / "w.pt2")
    assert "--trust-pickle" in failure.value.hint
    assert not (model_dir / "ran").exists()


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, "ran")
        return x


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_that_writes_files_needs_trust(model_dir):
    path = str(model_dir / "w.pt")
    torch.jit.save(torch.jit.script(Writes()), path)
    with pytest.raises(formats.PackageNeedsCodeError, match="save"):
        formats.load_torchscript(path, "cpu")
    assert formats.load_torchscript(path, "cpu", trust=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_that_only_torch_reads_needs_trust(model_dir, monkeypatch):
    def fail(_):
        raise formats.NotZipError("it is a zip of another kind")

    monkeypatch.setattr(formats, "TorchZip", fail)
    path = model_dir / "w.pt"
    torch.jit.save(torch.jit.script(Writes()), str(path))
    with pytest.raises(formats.PackageNeedsCodeError, match="another kind"):
        formats.load_torchscript(str(path), "cpu")
    path.write_bytes(b"no zip")
    with pytest.raises(RuntimeError) as failure:
        formats.load_torchscript(str(path), "cpu")
    assert not isinstance(failure.value, formats.PackageNeedsCodeError)


def test_an_exported_program_leaves_the_environment_unchanged(net, model_dir, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "y")
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "good.pt2")
    load(model_dir / "good.pt2")
    assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "y"  # comes back


@COMPILERS_OWN
@pytest.mark.slow
def test_aotinductor_package(net, model_dir):
    torch._inductor.aoti_compile_and_package(torch.export.export(net, (BATCH,)), package_path=str(model_dir / "w.pt2"))
    assert kind_of(model_dir / "w.pt2") is WeightsFormat.AOTI_PACKAGE
    assert load(model_dir / "w.pt2")(BATCH).tolist() == ANSWER
    options = {"aot_inductor.output_path": str(model_dir / "w.so")}
    torch._export.aot_compile(net, (BATCH,), options=options)
    assert formats.load_library(str(model_dir / "w.so"), "cpu")(BATCH).tolist() == ANSWER


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_safetensors_become_the_state_dict_that_torch_save_would_write(net, tmp_path, monkeypatch):
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    monkeypatch.setattr(sys, "argv", ["formats", str(tmp_path / "w.safetensors"), str(tmp_path / "w.pt")])
    runpy.run_module("marpack.worker.loaders.formats", run_name="__main__")
    saved = torch.load(tmp_path / "w.pt", weights_only=True)
    assert saved.keys() == net.state_dict().keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in net.state_dict().items())
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in saved.values())


def shaped(**tensors):
    return {name.replace("_", "."): torch.zeros(*shape) for name, shape in tensors.items()}


MODEL = shaped(layer_weight=(2, 3), layer_bias=(2,))


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (shaped(layer_weight=(2, 3)), "1 missing (first: layer.bias)", "model file"),
        ({}, "2 missing (first: layer.weight)", "model file"),
        (
            shaped(layer_weight=(2, 4), layer_bias=(2,)),
            "1 of another shape (layer.weight: model [2, 3], file [2, 4])",
            "model file",
        ),
        (MODEL | shaped(head_bias=(1,)), "1 unknown to the model (first: head.bias)", "model file"),
        ({f"module.{name}": tensor for name, tensor in MODEL.items()}, "2 missing", '"module."'),
        ({f"_orig_mod.{name}": tensor for name, tensor in MODEL.items()}, "2 unknown", '"_orig_mod."'),
        ({"epoch": 3, "state_dict": MODEL}, "2 unknown to the model (first: epoch)", 'checkpoint["state_dict"]'),
        ({"model": MODEL, "optimizer": {}}, "2 missing", 'checkpoint["model"]'),
    ],
)
def test_a_misfit_names_the_first_tensor_and_the_fix(model_dir, notes, given, message, hint):
    with pytest.raises(RuntimeError):
        formats.load_eager(str(model_dir), "doubler.py", lambda: given)
    trouble = notes()["state-dict-misfit"]
    assert message in trouble.message
    assert hint in trouble.hint
    assert trouble.stage == "initialize"


def test_what_is_no_state_dict(model_dir, notes):
    with pytest.raises(TypeError):
        formats.load_eager(str(model_dir), "doubler.py", lambda: [1])
    assert "list" in notes()["not-a-state-dict"].message


def test_without_weights_the_model_stays_as_built(model_dir, notes):
    assert type(formats.load_eager(str(model_dir), "doubler.py", None)).__name__ == "Doubler"
    assert "doubler.py" in notes()["no-weights"].message


def test_a_model_file_defines_one_class(model_dir):
    for number, (code, found) in enumerate(
        {"from io import BytesIO": "none", "class B: ...\nclass A: ...": "A, B"}.items()
    ):
        (model_dir / f"wrong{number}.py").write_text(code)
        with pytest.raises(formats.ModelClassError, match=rf"\b{found}$") as failure:
            formats.load_eager(str(model_dir), f"wrong{number}.py", None)
        assert isinstance(failure.value, ValueError)
        sys.modules.pop(f"wrong{number}")
    with pytest.raises(formats.ModelFileMissingError, match=r"nothing\.py") as missing:
        formats.load_eager(str(model_dir), "nothing.py", None)
    assert isinstance(missing.value, RuntimeError)


def test_a_model_that_wants_arguments(model_dir, notes):
    (model_dir / "wanting.py").write_text("class Net:\n    def __init__(self, classes): pass\n")
    with pytest.raises(TypeError):
        formats.load_eager(str(model_dir), "wanting.py", None)
    assert "parameter" in notes()["model-construct"].hint
    sys.modules.pop("wanting")
