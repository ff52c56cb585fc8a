"""Programs are recognized by their first bytes, by their names, and by a zip's members."""

import io
import marshal
import py_compile
import sys
import zipfile
from collections.abc import Callable
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from isal import isal_zlib
from lazy import torch

from marpack.weights.contents import TorchZip, recognize
from marpack.weights.kind import FIRST_BYTES, ProgramKind, WeightsFormat, named_kind, package_kind, program_kind

NATIVE, BYTECODE = ProgramKind.NATIVE, ProgramKind.BYTECODE


def kind_of(content: bytes, name: str = "notes.txt") -> ProgramKind | None:
    return program_kind(name, content[:512], io.BytesIO(content))


def windows(offset: int) -> bytes:
    return b"MZ".ljust(0x3C, b"\0") + offset.to_bytes(4, "little") + b"PE\0\0".rjust(offset + 4 - 0x40, b"\0")


@pytest.mark.parametrize(
    "content",
    [
        Path(isal_zlib.__file__).read_bytes()[:4096],
        Path(sys.executable).resolve().read_bytes()[:4096],
        bytes.fromhex("cffaedfe") + b"\0" * 28,
        bytes.fromhex("feedfacf") + b"\0" * 28,
        bytes.fromhex("cafebabe") + b"\0" * 28,
        windows(0x80),
        windows(1000),
        b"!<arch>\n" + b"a.o/",
        b"\0asm\x01\0\0\0",
        b"BC\xc0\xde" + b"\0" * 12,
    ],
)
def test_native_code_is_known_under_any_name(content: bytes) -> None:
    assert kind_of(content) is NATIVE
    assert content[:1] in FIRST_BYTES


def test_bytecode_is_known_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    compiled = Path(py_compile.compile(str(tmp_path / "a.py"), cfile=str(tmp_path / "a.txt")) or "")
    assert kind_of(compiled.read_bytes()) is BYTECODE
    code = marshal.dumps(compile("1", "a", "eval"))
    assert kind_of(MAGIC_NUMBER + b"\3\0\0\0" + b"\0" * 8 + code) is BYTECODE
    assert kind_of(b"\x03\xf3\r\n" + b"\0" * 4 + code) is BYTECODE  # Python 2.7


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lib.so", NATIVE),
        ("LIB.SO.1.2", NATIVE),
        ("a/b.cpython-311-x86_64-linux-gnu.so", NATIVE),
        ("x.pyd", NATIVE),
        ("x.DLL", NATIVE),
        ("x.dylib", NATIVE),
        ("x.exe", NATIVE),
        ("__pycache__/x.cpython-311.pyc", BYTECODE),
        ("net/data/aotinductor/model/a.cpp", ProgramKind.GENERATED),
        ("net/DATA/AOTInductor/model/a.PY", ProgramKind.GENERATED),
        ("net/data/aotinductor/model/a.json", None),
        ("a.cpp", None),
        ("handler.py", None),
        ("x.sox", None),
        ("so", None),
    ],
)
def test_names_tell_as_well(name: str, kind: ProgramKind | None) -> None:
    assert named_kind(name) is kind
    assert kind_of(b"plain text", name) is kind


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"M",
        b"MZ",
        b"MZ-80 computers\n" * 20,
        b"dex\ncat\n",
        b"ab\r\ncd\r\n" * 9,
        b"\x7fELE",
        b"\0asm",
        "ÿÿ\r\nüü\r\n".encode() * 9,
        b"PK\x03\x04",
    ],
)
def test_other_files_are_no_programs(content: bytes) -> None:
    assert kind_of(content) is None


def zip_kind(*names: str) -> ProgramKind | None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return package_kind(TorchZip(file).entries)


@pytest.mark.parametrize(
    "compute",
    [
        torch.nn.functional.gelu,
        lambda x: x + torch.linspace(0, 1, 3),
        lambda x: x + torch.logspace(0, 1, 3),
        lambda x: torch.div(x, 2, rounding_mode="floor"),
    ],
    ids=["gelu", "linspace", "logspace", "div"],
)
def test_operators_that_raise_the_file_version_make_no_package(compute: Callable[..., object]) -> None:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(compute, torch.ones(3)), file)
    assert package_kind(TorchZip(file).entries) is None
    assert recognize(file).kind is WeightsFormat.TORCHSCRIPT


def test_packages_are_known_by_their_members(tmp_path: Path, state_dict_file: Path, exported_file: Path) -> None:
    with torch.package.PackageExporter(str(tmp_path / "p.zip")) as package:
        package.save_source_string("mine", "x = 1")
    for path, kind in [
        (tmp_path / "p.zip", ProgramKind.TORCH_PACKAGE),
        (state_dict_file, None),
        (exported_file, ProgramKind.TORCH_EXPORT),
    ]:
        with path.open("rb") as file:
            assert package_kind(TorchZip(file).entries) is kind
    assert zip_kind("a/.DATA/Extern_Modules", "a/archive_format") is ProgramKind.TORCH_PACKAGE
    assert zip_kind("a/.data/version", "a/data.pkl") is None
    assert zip_kind("a/.data/version", "a/archive_format") is ProgramKind.TORCH_EXPORT
    assert zip_kind("a/archive_format", "a/data/aotinductor/model/a.cpp") is ProgramKind.AOTI_PACKAGE
    assert zip_kind("a/b", "version") is None
