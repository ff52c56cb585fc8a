from __future__ import annotations

import io
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest
from lazy import torch

from marpack.weights.detect import detect
from marpack.weights.kind import WeightsFormat


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


@pytest.mark.nightly
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
