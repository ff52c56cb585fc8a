"""Exported programs and libraries, as their headers and the JSON beside them describe them."""

import io
import json
import pickle
import zipfile
from struct import pack
from typing import Any

import pytest
import torch

from marpack.weights import contents
from marpack.weights.contents import TorchZip, library_facts, read_contents, read_program, recognize
from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle import OpcodeBudget
from marpack.weights.tensors import Port, WeightsSummary


def zipped(members: dict[str, Any]) -> io.BytesIO:
    """Return a zip as torch writes one, of texts and of what becomes JSON."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"net/{name}", content if isinstance(content, str) else json.dumps(content))
    return file


def meta(dtype: int = 7, **fields: Any) -> dict[str, Any]:
    return {"dtype": dtype, "sizes": [{"as_int": 2}], **fields}


def program(values: dict[str, Any], inputs: list[Any] = (), outputs: list[Any] = (), **members: Any) -> io.BytesIO:
    signature = {
        "input_specs": [{"user_input": {"arg": arg}} for arg in inputs],
        "output_specs": [{"user_output": {"arg": arg}} for arg in outputs],
    }
    module = {"graph": {"tensor_values": values}, "signature": signature}
    return zipped({"archive_format": "pt2", "models/model.json": {"graph_module": module}, **members})


def contents_of(file: io.BytesIO, **options: Any) -> WeightsSummary:
    return read_contents(file, recognize(file), **options)


def test_the_numbers_of_dtypes_are_torchs_own() -> None:
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE as NUMBERS

    args = [{"as_tensor": {"name": str(dtype)}} for dtype in NUMBERS]
    found = contents_of(program({str(dtype): meta(number.value) for dtype, number in NUMBERS.items()}, args))
    assert [f"torch.{port.dtype}" for port in found.inputs] == [port.name for port in found.inputs]
    assert len(found.inputs) == len(NUMBERS)


def test_inputs_are_tensors_or_whatever_else_is_given() -> None:
    sizes = [{"as_int": 0}, {"as_expr": {"expr_str": "2*Symbol('s0', integer=True)"}}, {"as_expr": {}}]
    args = [
        {"as_tensor": {"name": "x"}},
        {"as_tensor": {"name": "unknown"}},
        {"as_int": 3},
        {"as_custom_obj": {"name": "x"}},
        {},
        None,
    ]
    found = contents_of(program({"x": meta(sizes=sizes)}, args, args[:1]))
    assert found.inputs == (
        Port(name="x", dtype="float32", shape=(0, "2*s0", "?")),
        Port(name="unknown"),
        Port(name="3"),
        Port(name="x"),
        Port(name="None"),
    )
    assert found.outputs == found.inputs[:1]
    assert "inputs" not in found.facts


def test_tensors_lie_in_the_members_that_the_config_names() -> None:
    stored = {
        "a": {"path_name": "weight_0", "tensor_meta": meta(storage_offset={"as_int": 3}, strides=[{"as_int": 5}])},
        "b": {"path_name": "gone", "tensor_meta": meta(99, sizes=[{"as_expr": {}}])},
        "c": {"path_name": "object", "tensor_meta": None},
    }
    folder, other = "data/weights/", "data/elsewhere/"
    members = {f"{folder}{name}_config.json": {"config": stored} for name in ("model",)}
    members |= {
        f"{folder}weight_0": "x" * 50,
        f"{other}more_config.json": {"config": stored},
        f"{folder}note.json": "?",
    }
    one, two = contents_of(program({}, **members)).tensors
    assert (one.tensor.name, one.tensor.dtype, one.tensor.shape) == ("a", "float32", (2,))
    assert (one.storage, one.inside, one.storage_bytes) == (f"{folder}weight_0", f"{folder}weight_0", 50)
    assert (one.offset, one.stride) == (12, (5,))
    assert (two.tensor.dtype, two.tensor.shape, two.storage_bytes, two.offset) == ("unknown", (0,), 0, 0)


def test_a_description_is_read_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    file = TorchZip(program({"x": meta()}, [{"as_tensor": {"name": "x"}}]))
    size = file.members["models/model.json"].size
    monkeypatch.setattr(contents, "_JSON_LIMIT", size)
    assert read_program(file).inputs
    monkeypatch.setattr(contents, "_JSON_LIMIT", size - 1)
    assert not read_program(file).inputs


def test_the_torch_that_wrote_it_is_told() -> None:
    file = program({})
    assert "torch" not in contents_of(file).facts
    module = {"graph": {}, "signature": {}}
    file = zipped({"archive_format": "", "models/m.json": {"graph_module": module, "torch_version": "2.9"}})
    assert contents_of(file).facts == {"torch": "2.9"}


def test_a_package_tells_what_its_compiler_noted() -> None:
    library = "data/aotinductor/model/net.so"
    noted = {"AOTI_DEVICE_KEY": "cpu", "AOTI_MACHINE": "x86", "empty": ""}
    found = contents_of(zipped({library: "", "data/aotinductor/model/net_metadata.json": noted}))
    assert found.kind is WeightsFormat.AOTI_PACKAGE
    assert found.facts == {"device key": "cpu", "machine": "x86"}
    assert contents_of(zipped({library: ""})).facts == {}


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["data/aotinductor/model/net.so"], WeightsFormat.AOTI_PACKAGE),
        (["archive_format", "models/net.json", "data/aotinductor/model/net.dll"], WeightsFormat.AOTI_PACKAGE),
        (["data/aotinductor/net.so"], WeightsFormat.UNKNOWN),
        (["data/aotinductor/model/net.so.txt"], WeightsFormat.UNKNOWN),
        (["archive_format", "models/net.json"], WeightsFormat.TORCH_EXPORT),
        (["archive_format", "other", "models/net.json"], WeightsFormat.TORCH_EXPORT),
        (["archive_format", "models/deeper/net.json"], WeightsFormat.UNKNOWN),
        (["archive_format"], WeightsFormat.UNKNOWN),
        (["models/net.json"], WeightsFormat.UNKNOWN),
        (["serialized_exported_program.json"], WeightsFormat.TORCH_EXPORT),
        (["data.pkl", "constants.pkl"], WeightsFormat.TORCHSCRIPT),
        (["data.pkl"], WeightsFormat.UNKNOWN),  # an empty one
    ],
)
def test_a_zip_of_torchs_is_known_by_its_members(names: list[str], kind: WeightsFormat) -> None:
    assert recognize(zipped(dict.fromkeys(names, ""))).kind is kind


def test_members_are_named_without_their_one_folder() -> None:
    def members(*names: str) -> set[str]:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, "")
        return set(TorchZip(file).members)

    assert members("net/a", "net/b/c") == {"a", "b/c"}
    assert members("net/a", "other/b") == {"net/a", "other/b"}
    assert members("net/a", "b") == {"net/a", "b"}
    assert members("a") == {"a"}
    assert members() == set()


def elf(*, bits: int = 64, order: str = "<", kind: int = 3, machine: int = 0x3E) -> bytes:
    return b"\x7fELF" + bytes([bits // 32, 2 if order == ">" else 1]) + bytes(10) + pack(f"{order}HH", kind, machine)


@pytest.mark.parametrize(
    ("head", "machine", "kind"),
    [
        (elf(), "x86-64, 64 bit", "shared object"),
        (elf(order=">"), "x86-64, 64 bit", "shared object"),
        (elf(bits=32, kind=1, machine=3), "x86, 32 bit", "object file"),
        (elf(bits=32, kind=2, machine=40), "arm, 32 bit", "executable"),
        (elf(machine=183), "aarch64, 64 bit", "shared object"),
        (elf(machine=243), "riscv, 64 bit", "shared object"),
        (elf(machine=9, kind=4), "machine 9, 64 bit", "type 4"),
    ],
)
def test_a_library_tells_its_machine_in_either_byte_order(head: bytes, machine: str, kind: str) -> None:
    assert library_facts(io.BytesIO(head)) == {"machine": machine, "type": kind}


@pytest.mark.parametrize("head", [elf()[:19], b"\xcf\xfa\xed\xfe" + bytes(60), b""])
def test_another_library_tells_nothing(head: bytes) -> None:
    assert library_facts(io.BytesIO(head)) == {}


@pytest.mark.parametrize("count", [2**70, -1])
def test_a_storage_of_impossible_size_has_no_end(count: int) -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, value: object) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", count, None) if value is Ellipsis else None

    file = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, {}, [...], ["0"]):
        Pickler(file, 2).dump(value)
    file.write(bytes(8))
    pickles = contents.read_legacy_pickles(file, OpcodeBudget())
    assert len(pickles) == 5
    assert contents.end_of_legacy_storages(file, pickles) is None
