"""Real weights files, each written once per session by the library that owns its format."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn


class Net(nn.Module):
    """Two layers and a buffer: every kind of entry that a state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.bn = nn.BatchNorm1d(3)
        self.register_buffer("table", torch.arange(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.a(x))


@pytest.fixture(scope="session")
def net() -> Net:
    torch.manual_seed(7)
    return Net().eval()


@pytest.fixture(scope="session")
def weights_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="session")
def save(weights_dir: Path) -> Callable[..., Path]:
    """Return a torch.save that gives back the file it wrote."""

    def save(value: object, name: str, **options: object) -> Path:
        path = weights_dir / name
        torch.save(value, path, **options)
        return path

    return save


@pytest.fixture(scope="session")
def state_dict_file(net: Net, save: Callable[..., Path]) -> Path:
    return save(net.state_dict(), "state_dict.pt")


@pytest.fixture(scope="session")
def legacy_file(net: Net, save: Callable[..., Path]) -> Path:
    return save(net.state_dict(), "legacy.pt", _use_new_zipfile_serialization=False)


@pytest.fixture(scope="session")
def module_file(net: Net, save: Callable[..., Path]) -> Path:
    return save(net, "module.pt")


@pytest.fixture(scope="session")
def script_file(net: Net, weights_dir: Path) -> Path:
    path = weights_dir / "script.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(net).save(str(path))
    return path


@pytest.fixture(scope="session")
def traced_file(net: Net, weights_dir: Path) -> Path:
    path = weights_dir / "traced.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.freeze(torch.jit.trace(net, torch.zeros(2, 4))).save(str(path))
    return path


@pytest.fixture(scope="session")
def checkpoint_file(save: Callable[..., Path]) -> Path:
    """Return a training checkpoint with an optimizer that has taken a step, a random state, dtypes and shapes."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(2, 4)).sum().backward()
    optimizer.step()
    rest = {"epoch": 3, "rng": torch.get_rng_state(), "dtype": torch.float16, "shape": torch.Size([1, 2])}
    return save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **rest}, "checkpoint.pt")


@pytest.fixture(scope="session")
def exported(net: Net) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=2)
    return torch.export.export(net, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))


@pytest.fixture(scope="session")
def exported_file(exported: torch.export.ExportedProgram, weights_dir: Path) -> Path:
    path = weights_dir / "exported.pt2"
    torch.export.save(exported, path)
    return path


@pytest.fixture(scope="session")
def exported_2_6_file(exported: torch.export.ExportedProgram, weights_dir: Path) -> Path:
    """Return the program as torch 2.6 laid it out; today's torch.export.load still reads that."""
    import zipfile

    from torch._export.serde.serialize import serialize

    artifact = serialize(exported)
    path = weights_dir / "exported_2_6.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("serialized_exported_program.json", artifact.exported_program)
        file.writestr("serialized_state_dict.pt", artifact.state_dict)
        file.writestr("serialized_constants.pt", artifact.constants)
        file.writestr("serialized_example_inputs.pt", artifact.example_inputs)
        file.writestr("version", "8.2")
    return path


@pytest.fixture(scope="session")
def safetensors_file(net: Net, weights_dir: Path) -> Path:
    from safetensors.torch import save_file

    path = weights_dir / "net.safetensors"
    save_file(net.state_dict(), path, metadata={"format": "pt", "note": "hello"})
    return path


@pytest.fixture(scope="session")
def onnx_file(weights_dir: Path) -> Path:
    """Return an ONNX model with a free batch size and two initializers, one of them raw."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "weight")
    bias = helper.make_tensor("bias", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "weight", "bias"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [weight, bias],
    )
    model = helper.make_model(graph, producer_name="marpack", producer_version="1", ir_version=10)
    helper.set_model_props(model, {"author": "tests"})
    path = weights_dir / "net.onnx"
    save(model, path)
    return path
