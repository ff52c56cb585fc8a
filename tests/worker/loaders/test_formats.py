"""Every format through the registry: what it loads, what it refuses, and what it says then."""

import io
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
import torch
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file
from weights.exports import changed, with_guard, with_node

from marpack.errors import WeightsError
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


def load(name, job):
    made = job(name)
    return formats.load_model(kind_of(made.path), made)


def test_torchscript(net, model_dir, job):
    torch.jit.trace(net, BATCH).save(model_dir / "any-name")
    assert kind_of(model_dir / "any-name") is WeightsFormat.TORCHSCRIPT
    assert formats.load_torchscript(str(model_dir / "any-name"), "cpu")(BATCH).tolist() == ANSWER


@pytest.mark.parametrize("legacy", [False, True])
def test_eager_with_state_dict(net, model_dir, job, legacy):
    torch.save(net.state_dict(), model_dir / "w.pth", _use_new_zipfile_serialization=not legacy)
    made = job("w.pth")
    model = formats.load_eager(str(model_dir), "doubler.py", lambda: formats.load_state(kind_of(made.path), made))
    assert model(BATCH).tolist() == ANSWER


def test_eager_with_safetensors(net, model_dir, job):
    save_file(net.state_dict(), model_dir / "w.safetensors")
    made = job("w.safetensors")
    model = formats.load_eager(str(model_dir), "doubler.py", lambda: formats.load_state(kind_of(made.path), made))
    assert model(BATCH).tolist() == ANSWER


@pytest.mark.parametrize("save", [torch.save, save_file])
def test_tensors_alone_are_no_model(net, model_dir, job, save):
    save(net.state_dict(), model_dir / "w.pt")
    with pytest.raises(formats.ModelFileNeededError, match=r"w\.pt: ") as failure:
        load("w.pt", job)
    assert "model_file" in failure.value.hint


def test_no_known_format(model_dir, job):
    (model_dir / "w.pt").write_bytes(b"nonsense")
    with pytest.raises(WeightsError) as failure:
        load("w.pt", job)
    assert (failure.value.code, failure.value.where) == ("unknown-weights-format", "w.pt")


def test_a_whole_model_needs_trust(net, model_dir, job, notes):
    torch.save(net, model_dir / "w.pt")
    with pytest.raises(pickle.UnpicklingError):
        load("w.pt", job)
    trouble = notes()["pickle-needs-code"]
    assert "doubler.Doubler" in trouble.message
    assert "--trust-pickle" in trouble.hint
    trusted = formats.load_model(WeightsFormat.PICKLED_MODULE, job("w.pt", trust=True))
    assert trusted(BATCH).tolist() == ANSWER


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_pickle_never_runs(model_dir, job, notes, legacy):
    torch.save({"w": Evil(model_dir / "ran")}, model_dir / "w.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(pickle.UnpicklingError):
        formats.load_state(WeightsFormat.STATE_DICT, job("w.pt"))
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


def test_onnx_is_fed_tensors(model_dir, job):
    write_onnx(model_dir / "w.onnx")
    assert load("w.onnx", job)(BATCH).tolist() == ANSWER


def test_onnx_with_several_inputs_and_outputs(model_dir, job):
    write_onnx(model_dir / "w.onnx", inputs=("a", "b"), outputs=2)
    model = load("w.onnx", job)
    found = model(BATCH, b=2 * BATCH)
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"y": [[18.0, 3.0]], "minus": [[-18.0, -3.0]]}
    assert [port.name for port in model.get_inputs()] == ["a", "b"]  # the session's own methods are there too


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model(BATCH.double(), BATCH), r"input a is tensor\(float\), not torch.float64"),
        (lambda model: model(BATCH), "inputs a, the graph declares a tensor"),
        (lambda model: model(BATCH, c=BATCH), "inputs a, c, "),
        (lambda model: model(BATCH, BATCH, BATCH), "inputs 3, "),
    ],
)
def test_onnx_inputs_are_checked(model_dir, job, call, message):
    write_onnx(model_dir / "w.onnx", inputs=("a", "b"))
    with pytest.raises(formats.ModelInputError, match=message):
        call(load("w.onnx", job))


def test_onnx_of_another_opset(model_dir, job, notes):
    write_onnx(model_dir / "w.onnx", opset=999)
    with pytest.raises(Exception, match="opset"):
        load("w.onnx", job)
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


def test_torch_export(net, model_dir, job):
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "w.pt2")
    assert load("w.pt2", job)(BATCH).tolist() == ANSWER


def rezip(source, target, change):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))


def test_code_in_an_exported_program_never_runs(net, model_dir, job):
    """torch would fall back to weights_only=False for the sample inputs."""
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "good.pt2")
    evil = io.BytesIO()
    torch.save((Evil(model_dir / "ran"), {}), evil)
    swapped = []

    def swap(name, content):
        if "sample_inputs" not in name:
            return content
        swapped.append(name)
        return evil.getvalue()

    rezip(model_dir / "good.pt2", model_dir / "evil.pt2", swap)
    assert swapped
    with pytest.raises(Exception, match=r"(?i)weights"):
        load("evil.pt2", job)
    assert not (model_dir / "ran").exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_an_exported_program_with_opaque_objects_is_refused(net, model_dir, job):
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "w.pt2")
    with zipfile.ZipFile(model_dir / "w.pt2", "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/data/constants/opaque_obj_0", pickle.dumps(Evil(model_dir / "ran")))
    with pytest.raises(formats.PackageNeedsCodeError, match="opaque_obj_0") as failure:
        load("w.pt2", job)
    assert "--trust-pickle" in failure.value.hint
    assert not (model_dir / "ran").exists()


@pytest.mark.parametrize("change", [with_guard("print()"), with_node(target="torch.ops.mine.op.default")])
def test_an_exported_program_with_text_that_torch_runs_is_refused(net, model_dir, job, change):
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "good.pt2")
    changed(model_dir / "good.pt2", model_dir / "evil.pt2", change)
    with pytest.raises(formats.PackageNeedsCodeError) as failure:
        load("evil.pt2", job)
    assert failure.value.code == "package-needs-code"
    assert "evil.pt2!good/models/model.json" in failure.value.where


def test_trust_loads_text_that_torch_runs(net, model_dir, job):
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "good.pt2")
    changed(
        model_dir / "good.pt2",
        model_dir / "own.pt2",
        with_guard(f"not __import__('os').mkdir({str(model_dir / 'ran')!r})"),
    )
    trusted = replace(job("own.pt2"), trust_pickle=True)
    formats.load_model(kind_of(trusted.path), trusted)(BATCH)
    assert (model_dir / "ran").exists()


def test_a_setting_of_the_environment_comes_back(net, model_dir, job, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "y")
    torch.export.save(torch.export.export(net, (BATCH,)), model_dir / "w.pt2")
    load("w.pt2", job)
    assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "y"


@COMPILERS_OWN
@pytest.mark.nightly
def test_aotinductor_package(net, model_dir, job):
    torch._inductor.aoti_compile_and_package(torch.export.export(net, (BATCH,)), package_path=str(model_dir / "w.pt2"))
    assert kind_of(model_dir / "w.pt2") is WeightsFormat.AOTI_PACKAGE
    assert load("w.pt2", job)(BATCH).tolist() == ANSWER


@COMPILERS_OWN
@pytest.mark.nightly
def test_aotinductor_library(net, model_dir, job):
    options = {"aot_inductor.output_path": str(model_dir / "w.so")}
    torch._export.aot_compile(net, (BATCH,), options=options)
    assert formats.load_library(str(model_dir / "w.so"), "cpu")(BATCH).tolist() == ANSWER


def test_safetensors_become_the_state_dict_that_torch_save_would_write(net, tmp_path):
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    files = str(tmp_path / "w.safetensors"), str(tmp_path / "w.pt")
    subprocess.run([sys.executable, "-m", "marpack.worker.loaders.formats", *files], check=True)
    saved = torch.load(tmp_path / "w.pt", weights_only=True)
    assert saved.keys() == net.state_dict().keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in net.state_dict().items())
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in saved.values())
