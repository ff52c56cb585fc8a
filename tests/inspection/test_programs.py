"""Programs are found wherever they are, and what torch.export.load runs is not called safe."""

import bz2
import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspection.conftest import packed
from inspection.containers import tarred, written, zipped
from inspection.test_remote import HANDLER
from isal import isal_zlib
from lazy import torch
from weights.exports import changed, write_small

from marpack.archive.reader import open_archive
from marpack.findings import Severity
from marpack.inspection.inspect import inspect
from marpack.inspection.members import find_programs
from marpack.inspection.nested_files import NestedScan
from marpack.inspection.pickles import PickleVerdict
from marpack.project.plan import PlannedMember
from marpack.weights.contents import recognize
from marpack.weights.kind import Program, ProgramKind

LIBRARY = Path(isal_zlib.__file__).read_bytes()[:2000]


def programs(content: bytes, name: str = "notes.bin") -> list[Program]:
    file, walk = io.BytesIO(content), NestedScan()
    return [part for part in walk.file(name, file, recognize(file, walk.budget)) if isinstance(part, Program)]


def in_zip(content: bytes, name: str = "a.txt", method: int = zipfile.ZIP_STORED) -> bytes:
    return zipped({name: content}, method)


def in_tar(content: bytes) -> bytes:
    return tarred({"a.txt": content})


@pytest.mark.parametrize(
    "wrap",
    [
        bytes,
        in_zip,
        lambda content: in_zip(content, method=zipfile.ZIP_DEFLATED),
        in_tar,
        gzip.compress,
        bz2.compress,
        lambda content: gzip.compress(in_tar(content)),
        lambda content: in_zip(gzip.compress(in_zip(content))),
    ],
)
def test_native_code_is_found_within_other_files(wrap: Callable[[bytes], bytes]) -> None:
    (found,) = programs(wrap(LIBRARY))
    assert found.kind is ProgramKind.NATIVE
    assert found.where.startswith("notes.bin")


def test_native_code_among_torchs_numbers_is_found(saved: Callable[..., bytes]) -> None:
    numbers = torch.frombuffer(bytearray(LIBRARY), dtype=torch.uint8)
    (found,) = programs(saved({"a": numbers}), "net.pt")
    assert found == Program("net.pt!archive/data/0", ProgramKind.NATIVE)


@pytest.mark.parametrize("name", ["net.engine", "net.TRT", "kernels.fatbin", "net.metallib", "lib.so.1.2"])
def test_compiled_models_are_programs_by_their_names(name: str) -> None:
    assert [part.kind for part in programs(b"?", name)] == [ProgramKind.NATIVE]


def test_a_programs_name_counts_among_torchs_numbers(saved: Callable[..., bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(saved({"w": torch.ones(4)}))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (pickled,) = (name for name in files if name.endswith("data.pkl"))
    key = files[pickled].replace(b"X\x01\0\0\x000", b"X\x08\0\0\0evil.pyc")
    files = {name.replace("data/0", "data/evil.pyc"): data for name, data in (files | {pickled: key}).items()}
    (found,) = set(programs(zipped(files), "net.pt"))
    assert (found.where.rpartition("/")[2], found.kind) == ("evil.pyc", ProgramKind.BYTECODE)


def test_a_torch_package_needs_trust(tmp_path: Path, scan: Callable[..., Any]) -> None:
    """A module of its own that has the name of a safe one is what its pickles import."""
    with torch.package.PackageExporter(str(tmp_path / "p.pt")) as package:
        package.save_source_string("collections", "class OrderedDict(dict): pass")
        package.save_text("p", "t.txt", "x")
    content = (tmp_path / "p.pt").read_bytes()
    assert programs(content)[0].kind is ProgramKind.TORCH_PACKAGE
    assert scan(content).verdict is PickleVerdict.NEEDS_TRUST
    assert scan(in_zip(gzip.compress(content))).verdict is PickleVerdict.NEEDS_TRUST


AOTI = {"a.so": LIBRARY, "b.cpp": b"int main() {}", "c.json": b"{}"}


def test_an_aoti_package_is_reported_with_its_files() -> None:
    files = {"archive_format": b"pt2"}
    files |= {f"data/aotinductor/model/{name}": data for name, data in AOTI.items()}
    content = zipped({f"net/{name}": data for name, data in files.items()})
    found = {part.where.rpartition("/")[2]: part.kind for part in programs(content, "net.pt2")}
    kinds = {"net.pt2": ProgramKind.AOTI_PACKAGE, "a.so": ProgramKind.NATIVE, "b.cpp": ProgramKind.GENERATED}
    assert found == kinds


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("program") / "net.pt2")


@pytest.mark.parametrize("wrap", [bytes, gzip.compress, in_tar, in_zip])
def test_an_exported_program_is_a_program_wherever_it_is(
    wrap: Callable[[bytes], bytes], program: Path, scan: Callable[..., Any]
) -> None:
    content = wrap(program.read_bytes())
    found = scan(content)
    assert (found.verdict, found.needs_trust_pickle) == (PickleVerdict.NEEDS_TRUST, False)
    assert {part.kind for part in programs(content)} == {ProgramKind.TORCH_EXPORT}


@pytest.mark.parametrize(
    "files",
    [
        {"net/archive_format": b"pt2"},
        {"net/ARCHIVE_FORMAT": b"pt2"},
        {"Serialized_exported_program.json": b"{}"},
        {"net/archive_format": b"pt2", "net/data.pkl": b"}."},
        {"net/archive_format": b"pt2", "net/data/aotinductor/m/a.txt": b""},
        {"net/constants.pkl": b").", "net/data.pkl": b"}.", "net/archive_format": b"pt2"},
    ],
)
def test_a_file_that_torch_takes_for_a_program_is_never_safe(files: dict[str, bytes], scan: Callable[..., Any]) -> None:
    assert programs(zipped(files))[0].kind in (ProgramKind.TORCH_EXPORT, ProgramKind.AOTI_PACKAGE)
    assert scan(zipped(files), "net.safetensors").verdict is PickleVerdict.NEEDS_TRUST


def test_a_dangerous_pickle_in_a_program_is_dangerous(program: Path, tmp_path: Path, scan: Callable[..., Any]) -> None:
    for name in ("sample_inputs/model.pt", "weights/weight_0", "constants/tensor_0", "constants/opaque_obj_0"):
        evil = changed(program, tmp_path / "evil.pt2", lambda _: None, **{f"data/{name}": b"cos\nmkdir\n(S'a'\ntR."})
        assert scan(evil.read_bytes()).verdict is PickleVerdict.DANGEROUS, name


def test_numbers_in_a_program_that_look_like_a_pickle_are_numbers(
    program: Path, tmp_path: Path, scan: Callable[..., Any]
) -> None:
    odd = changed(program, tmp_path / "odd.pt2", lambda _: None, **{"data/weights/weight_0": b"\x80\x02(c" + bytes(60)})
    assert not scan(odd.read_bytes()).needs_trust_pickle


class Runs:
    def __reduce__(self) -> Any:
        return print, ("x",)


@pytest.mark.parametrize(
    ("folder", "name", "use_pickle"),
    [("weights", "weight_0", True), ("constants", "tensor_0", True), ("constants", "opaque_obj_0", False)],
)
def test_what_torch_unpickles_is_read_as_a_pickle(
    folder: str, name: str, use_pickle: bool, program: Path, tmp_path: Path, scan: Callable[..., Any]
) -> None:
    meta = {"path_name": name, "is_param": False, "use_pickle": use_pickle, "tensor_meta": None}
    files = {
        f"data/{folder}/model_{folder}_config.json": json.dumps({"config": {"w": meta}}).encode(),
        f"data/{folder}/{name}": b"1" + pickle.dumps(Runs(), 0),  # its first byte says nothing
    }
    evil = changed(program, tmp_path / "evil.pt2", lambda _: None, **files)
    assert scan(evil.read_bytes()).verdict is not PickleVerdict.SAFE


def test_a_remote_look_fetches_what_it_judges(program: Path, tmp_path: Path, serve: Any) -> None:
    members = {"data/constants/opaque_obj_0": b"cos\nx\n."}
    evil = changed(program, tmp_path / "evil.pt2", lambda _: None, **members)
    packed(tmp_path / "net.mar", evil, HANDLER)
    with open_archive(f"{serve.url}/net.mar") as archive:
        remote = inspect(archive)
    with open_archive(tmp_path / "net.mar") as archive:
        local = inspect(archive)
    assert remote.pickles.verdict is PickleVerdict.DANGEROUS
    assert remote.programs == local.programs != ()
    assert [each.where for each in remote.pickles.pickles] == [each.where for each in local.pickles.pickles]
    assert {"program", "dangerous-pickle"} <= {finding.code for finding in remote.findings}
    assert remote.weights[0].inputs == local.weights[0].inputs != ()


def test_numbers_stay_unfetched(tmp_path: Path, serve: Any) -> None:
    class Large(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(1_000_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.weight

    torch.export.save(torch.export.export(Large(), (torch.zeros(1),)), tmp_path / "large.pt2")
    packed(tmp_path / "net.mar", tmp_path / "large.pt2", HANDLER)
    with open_archive(f"{serve.url}/net.mar") as archive:
        found = inspect(archive)
    assert found.pickles.unscanned == ()
    assert (found.pickles.needs_trust_pickle, found.pickles.unfetched) == (False, 2)  # one is the example input's
    assert serve.sent < 500_000


def test_an_inspection_names_them_in_one_finding(tmp_path: Path, program: Path) -> None:
    members = (PlannedMember("notes.txt", LIBRARY), PlannedMember("wheel.zip", in_zip(LIBRARY, "a.so")))
    with open_archive(packed(tmp_path / "net.mar", program, HANDLER, *members)) as archive:
        found, quick = inspect(archive), list(find_programs(archive))
    names = {Program("notes.txt", ProgramKind.NATIVE), Program("wheel.zip!a.so", ProgramKind.NATIVE)}
    names.add(Program(program.name, ProgramKind.TORCH_EXPORT))
    assert set(found.programs) == set(quick) == names
    (finding,) = (each for each in found.findings if each.code == "program")
    assert finding.severity is Severity.NOTE
    assert found.pickles.verdict is PickleVerdict.NEEDS_TRUST


class Scripted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ops = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops(x)


@pytest.fixture(scope="module")
def script() -> bytes:
    return written(lambda file: torch.jit.save(torch.jit.script(Scripted()), file))


def with_code(script: bytes, line: str, **names: str) -> bytes:
    """Return a TorchScript file whose forward runs a line first, with members renamed."""
    with zipfile.ZipFile(io.BytesIO(script)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    code = next(name for name in files if b"Tensor:\n" in files[name] and b"ops : " in files[name])
    files[code] = files[code].replace(b"Tensor:\n", b"Tensor:\n    " + line.encode() + b"\n", 1)
    return zipped({names.get(name.rpartition("/")[2].partition(".")[0], name): data for name, data in files.items()})


def test_honest_torchscript_is_safe(script: bytes, scan: Callable[..., Any]) -> None:
    torch.jit.load(io.BytesIO(with_code(script, "_9 = torch.add(x, x)")))
    found = scan(with_code(script, "_9 = ops.aten.add(x, x)"))
    assert (found.verdict, found.unscanned) == (PickleVerdict.SAFE, ())


@pytest.mark.parametrize(
    "line",
    [
        'torch.save(x, "canary")',
        'x = torch.from_file("canary", True, 8)',
        't = torch; t.save(x, "canary")'.replace("; ", "\n    "),
        'ops.aten.save(x, "canary")',
        'getattr(torch, "sa" "ve")(x, "canary")',
        'getattr(torch, "s\\x61ve")(x, "canary")',
        'getattr(getattr(ops, "aten"), "s\\x61ve")(x, "canary")',
        'ops.image.write_file("canary", x)',
        'ops . image.write_file("canary", x)',
        'o = ops\n    o.image.write_file("canary", x)',
        "y = __torch__.torch.classes.other.Runs.__new__(__torch__.torch.classes.other.Runs)",
    ],
)
def test_torchscript_that_may_write_files_needs_trust(line: str, script: bytes, scan: Callable[..., Any]) -> None:
    assert scan(with_code(script, line)).verdict is PickleVerdict.NEEDS_TRUST
    assert scan(with_code(script, line, constants="Net/CONSTANTS.PKL")).verdict is not PickleVerdict.SAFE


def test_torchscript_of_old_needs_trust(scan: Callable[..., Any]) -> None:
    files = {"net/version": b"2", "net/model.json": b"{}", "net/code/net.py": b"x = 1"}
    assert scan(zipped(files)).verdict is PickleVerdict.NEEDS_TRUST
    assert scan(zipped({"a/model.json": b"{}", "a/code/net.py": b"torch.save()"})).verdict is PickleVerdict.SAFE


def test_torchscript_that_is_not_read_needs_trust(
    script: bytes, scan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marpack.weights.contents._CODE_LIMIT", 10)
    assert scan(script).verdict is PickleVerdict.NEEDS_TRUST
