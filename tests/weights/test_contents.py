"""What headers say of real files, held against what torch, onnx and safetensors say when they load them."""

import hashlib
import io
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from marpack.inspection.diff import tensor_digest
from marpack.weights.contents import detect, read_contents, recognize
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import Port, ScriptMethod, StoredTensor, Tensor, WeightsSummary

Save = Callable[..., Path]


def contents_of(path: Path) -> WeightsSummary:
    with path.open("rb") as file:
        return read_contents(file, recognize(file))


def described(contents: WeightsSummary) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {placed.tensor.name: (placed.tensor.dtype, placed.tensor.shape) for placed in contents.tensors}


def expected(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for name, tensor in tensors.items()}


FILES = ("state_dict", "legacy", "module", "script", "safetensors", "exported", "exported_2_6")


@pytest.mark.parametrize("name", FILES)
def test_tensors_are_those_of_the_state_dict(name: str, net: nn.Module, request: pytest.FixtureRequest) -> None:
    with request.getfixturevalue(f"{name}_file").open("rb") as file:
        found = recognize(file)
        contents = read_contents(file, found)
        digests = {placed.tensor.name: tensor_digest(file, found, placed) for placed in contents.tensors}
    assert contents.problem is None
    assert described(contents) == expected(net.state_dict())
    assert name == "exported_2_6" or digests == {  # its tensors are in zips of their own
        name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in net.state_dict().items()
    }


def test_a_checkpoint_names_tensors_by_their_path(checkpoint_file: Path) -> None:
    tensors = described(contents_of(checkpoint_file))
    assert tensors["model.a.weight"] == ("float32", (3, 4))
    assert tensors["optimizer.state.0.exp_avg"] == ("float32", (3, 4))
    assert tensors["rng"][0] == "uint8"


@pytest.mark.filterwarnings("ignore::UserWarning")  # of quantization and sparse layouts, by torch
def test_every_way_that_torch_rebuilds_a_tensor(save: Save) -> None:
    tensors = {
        "parameter": nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16)),
        "quantized": torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(3, 4, device="meta"),
        "complex": torch.zeros(2, dtype=torch.complex64),
        "float8": torch.zeros(4).to(torch.float8_e4m3fn),
        "uint16": torch.zeros(2, dtype=torch.uint16),
        "scalar": torch.tensor(1),
        "empty": torch.zeros(0, 5),
        "transposed": torch.zeros(3, 4).t(),
    }
    assert described(contents_of(save(tensors, "odd.pt"))) == expected(tensors)


def test_tied_weights_and_views_share_their_storage(save: Save) -> None:
    base = torch.zeros(10)
    contents = contents_of(save({"a": base, "b": base, "c": base[2:5]}, "tied.pt"))
    assert [placed.storage for placed in contents.tensors] == ["data/0"] * 3
    assert [placed.offset for placed in contents.tensors] == [0, 0, 8]
    assert {placed.storage_bytes for placed in contents.tensors} == {40}


def test_a_transposed_tensor_is_not_the_same_as_its_numbers_in_order(save: Save) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    path = save({"straight": base.t().contiguous(), "turned": base.t()}, "turned.pt")
    with path.open("rb") as file:
        found = recognize(file)
        digests = [tensor_digest(file, found, placed) for placed in read_contents(file, found).tensors]
    assert None not in digests
    assert digests[0] != digests[1]


def test_frozen_parameters_are_found_among_the_constants(traced_file: Path) -> None:
    contents = contents_of(traced_file)
    assert contents.kind is WeightsFormat.TORCHSCRIPT
    assert any(name.startswith("constants.") for name in described(contents))


class Talkative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, float]:
        return self.layer(x), scale

    @torch.jit.export
    def embed(self, words: list[str], first_long_argument: torch.Tensor, second_long: torch.Tensor) -> dict[str, int]:
        return {"words": len(words)}

    @torch.jit.export
    def answer(self) -> int:
        return 42


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_methods_have_their_signatures(weights_dir: Path) -> None:
    path = weights_dir / "talkative.pt"
    torch.jit.script(Talkative()).save(str(path))
    assert contents_of(path).methods == (
        ScriptMethod("forward", "(x: Tensor, scale: float=1.) -> Tuple[Tensor, float]"),
        ScriptMethod("answer", "() -> int"),
        ScriptMethod("embed", "(words: List[str], first_long_argument: Tensor, second_long: Tensor) -> Dict[str, int]"),
    )


def test_exported_programs_tell_inputs_and_outputs(exported_file: Path, exported_2_6_file: Path) -> None:
    for path in (exported_file, exported_2_6_file):
        contents = contents_of(path)
        (port,) = contents.inputs
        assert (port.name, port.dtype) == ("x", "float32")
        assert re.fullmatch(r"s\d+", str(port.shape[0]))  # the free batch size
        assert port.shape[1] == 4
        assert contents.outputs[0].shape[1] == 3


def test_onnx_headers_say_what_onnx_says(onnx_file: Path) -> None:
    contents = contents_of(onnx_file)
    model = onnx.load(onnx_file)
    assert contents.inputs == (Port(name="x", dtype="float32", shape=("batch", 4)),)
    assert contents.outputs == (Port(name="y", dtype="float32", shape=("batch", 3)),)
    assert described(contents) == {tensor.name: ("float32", tuple(tensor.dims)) for tensor in model.graph.initializer}
    assert contents.metadata == {"author": "tests"}
    assert contents.facts["producer"] == "marpack 1"
    assert contents.facts["nodes"] == str(len(model.graph.node))
    assert contents.facts["opsets"] == f"ai.onnx {model.opset_import[0].version}"


def test_onnx_with_external_data_says_so(tmp_path: Path, onnx_file: Path) -> None:
    model = onnx.load(onnx_file)
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=0)
    assert "external data" in contents_of(tmp_path / "net.onnx").facts


def test_onnx_inputs_of_every_type(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    tensor = helper.make_tensor_type_proto(TensorProto.INT64, None)
    inputs = [
        helper.make_tensor_value_info("scalar", TensorProto.DOUBLE, []),
        helper.make_tensor_value_info("unknown", TensorProto.FLOAT16, [None, 3]),
        helper.make_value_info("rankless", tensor),
        helper.make_tensor_sequence_value_info("sequence", TensorProto.FLOAT, [2]),
    ]
    graph = helper.make_graph([helper.make_node("Identity", ["scalar"], ["y"])], "g", inputs, [inputs[0]])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "types.onnx")
    assert contents_of(tmp_path / "types.onnx").facts["opsets"] == "ai.onnx 20, com.example 3"
    assert contents_of(tmp_path / "types.onnx").inputs == (
        Port(name="scalar", dtype="float64", shape=()),
        Port(name="unknown", dtype="float16", shape=("?", 3)),
        Port(name="rankless", dtype="int64", shape=None),
        Port(name="sequence"),
    )


def test_nothing_is_unpickled(save: Save, tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (mark,)

    contents = contents_of(save({"a": torch.zeros(2), "trap": Trap()}, "trap.pt"))
    assert described(contents) == {"a": ("float32", (2,))}
    assert not mark.exists()


def test_headers_alone_are_read(save: Save) -> None:
    class Counting(io.BytesIO):
        read_bytes = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.read_bytes += len(data)
            return data

    path = save({f"layer{number}": torch.zeros(50_000) for number in range(20)}, "large.pt")
    file = Counting(path.read_bytes())
    contents = read_contents(file, recognize(file))
    assert len(contents.tensors) == 20
    assert file.read_bytes < 20_000 < path.stat().st_size


def test_damage_is_a_problem_and_no_error(exported_file: Path) -> None:
    content = exported_file.read_bytes().replace(b"graph_module", b"\xff" * 12)
    file = io.BytesIO(content)
    assert read_contents(file, recognize(file)).problem is not None


def test_a_checkpoint_tells_its_keys_and_a_model_its_class(
    checkpoint_file: Path, module_file: Path, state_dict_file: Path
) -> None:
    assert contents_of(checkpoint_file).facts == {"keys": "model, optimizer, epoch, rng, dtype, shape"}
    assert contents_of(module_file).facts["class"].endswith(".Net")
    assert contents_of(state_dict_file).facts == {}


def test_a_checkpoint_shows_a_dozen_keys(save: Save) -> None:
    keys = [f"k{number}" for number in range(13)]
    assert contents_of(save(dict.fromkeys(keys[:12]), "twelve.pt")).facts == {"keys": ", ".join(keys[:12])}
    assert contents_of(save(dict.fromkeys(keys), "more.pt")).facts == {"keys": ", ".join(keys[:12]) + ", …"}


def test_an_exported_programs_tensors_lie_in_one_storage_by_bytes(tmp_path: Path) -> None:
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = torch.arange(10.0)
            self.register_buffer("both", both)
            self.register_buffer("tail", both[4:])

        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return numbers * self.tail.sum() + self.both.sum()

    torch.export.save(torch.export.export(Halves(), (torch.zeros(2),)), tmp_path / "halves.pt2")
    stored = {each.tensor.name: each for each in contents_of(tmp_path / "halves.pt2").tensors}
    assert (stored["both"].offset, stored["tail"].offset) == (0, 4 * 4)
    assert stored["both"].storage == stored["tail"].storage


@pytest.mark.parametrize(
    ("shape", "stride", "contiguous"),
    [((2, 3), (3, 1), True), ((2, 3), (1, 2), False), ((1, 3), (99, 1), True), ((3, 1), (1, 99), True), ((), (), True)],
)
def test_the_stride_of_a_single_step_says_nothing(shape, stride, contiguous) -> None:
    tensor = Tensor(name="t", dtype="float32", shape=shape)
    assert StoredTensor(tensor=tensor, stride=stride).contiguous is contiguous


def test_json_that_is_nested_without_end_is_a_problem_and_no_error() -> None:
    header = b'{"a":' * 200_000
    export = io.BytesIO()
    with zipfile.ZipFile(export, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/models/model.json", header)
    for file in (export, io.BytesIO(len(header).to_bytes(8, "little") + header)):
        found = recognize(file)
        assert found.kind in (WeightsFormat.TORCH_EXPORT, WeightsFormat.SAFETENSORS)
        assert read_contents(file, found).problem is not None


def kind_of(path: Path) -> WeightsFormat:
    with path.open("rb") as file:
        found = detect(file)
        assert file.tell() == 0
        return found


@pytest.mark.parametrize(
    ("fixture", "kind"),
    [
        ("state_dict_file", WeightsFormat.STATE_DICT),
        ("legacy_file", WeightsFormat.STATE_DICT),
        ("checkpoint_file", WeightsFormat.STATE_DICT),
        ("module_file", WeightsFormat.PICKLED_MODULE),
        ("script_file", WeightsFormat.TORCHSCRIPT),
        ("traced_file", WeightsFormat.TORCHSCRIPT),
        ("exported_file", WeightsFormat.TORCH_EXPORT),
        ("exported_2_6_file", WeightsFormat.TORCH_EXPORT),
        ("safetensors_file", WeightsFormat.SAFETENSORS),
        ("onnx_file", WeightsFormat.ONNX),
    ],
)
def test_each_format_is_known_by_its_content(fixture: str, kind: WeightsFormat, request: pytest.FixtureRequest) -> None:
    assert kind_of(request.getfixturevalue(fixture)) is kind


def test_the_layout_of_torch_2_6_is_one_that_torch_still_loads(exported_2_6_file: Path) -> None:
    program = torch.export.load(exported_2_6_file)
    assert program.module()(torch.zeros(2, 4)).shape == (2, 3)


def test_a_name_that_lies_changes_nothing(state_dict_file: Path, tmp_path: Path) -> None:
    lying = tmp_path / "model.onnx"
    lying.write_bytes(state_dict_file.read_bytes())
    assert kind_of(lying) is WeightsFormat.STATE_DICT


def test_a_legacy_whole_model_needs_trust(net: torch.nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "legacy_module.pt"
    torch.save(net, path, _use_new_zipfile_serialization=False)
    assert kind_of(path) is WeightsFormat.PICKLED_MODULE


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of torch's own making
def test_aot_inductor_libraries_and_packages(net: torch.nn.Module, tmp_path: Path) -> None:
    program = torch.export.export(net, (torch.zeros(2, 4),))
    package = tmp_path / "net.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    assert kind_of(package) is WeightsFormat.AOTI_PACKAGE
    with zipfile.ZipFile(package) as file:
        library = next(name for name in file.namelist() if name.endswith(".so"))
        assert detect(io.BytesIO(file.read(library))) is WeightsFormat.ELF


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(18),
        b"import torch\n",
        b"\x80\x04\x95",
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
        b"\x08\x08",
        b"{}",
        bytes(64),
        b'\x02\0\0\0\0\0\0\0["',
        b"\xff" * 64,
        pickle.dumps({"words": ["a", "b"]}),
    ],
)
def test_anything_else_is_unknown(content: bytes) -> None:
    assert detect(io.BytesIO(content)) is WeightsFormat.UNKNOWN


def test_every_truncation_is_answered(state_dict_file: Path, onnx_file: Path, legacy_file: Path) -> None:
    for path in (state_dict_file, onnx_file, legacy_file):
        whole = path.read_bytes()
        for length in range(0, len(whole), max(1, len(whole) // 200)):
            assert isinstance(detect(io.BytesIO(whole[:length])), WeightsFormat)


def test_a_zip_that_torch_did_not_write_is_unknown() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("readme.txt", "hello")
    assert detect(buffer) is WeightsFormat.UNKNOWN
