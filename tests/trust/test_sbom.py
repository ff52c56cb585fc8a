"""The SBOM: valid by the specification's schema, complete, reproducible, and without secrets."""

import errno
import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from fsspec.implementations.memory import MemoryFileSystem
from refusals import has_code

import marpack
from marpack.archive.reader import open_archive
from marpack.archive.remote import RemoteFile, open_remote
from marpack.errors import DamagedArchiveError, UsageError
from marpack.inspection.inspect import inspect
from marpack.trust.sbom import sbom
from marpack.version import __version__

MakeMar = Callable[..., Path]
Json = dict[str, Any]
Far = Callable[[Path], tuple[str, list[RemoteFile]]]
EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/marpack.yaml"))
HANDLER = "def handle(data, context):\n    return data\n"
FORMS: dict[str, Any] = {".mar": "default", ".tar.gz": "tgz", "": "no-archive"}
# What any archive may say of itself in its index.
ODD = {
    "license": "my own <terms>",
    "authors": ["Ada <ada@b> x", "<a@b>", "Bob <bob@example.org>", "\u202e"],
    "description": "a\x00b",
    "homepage": "javascript:alert(1)",
}


@cache
def validator() -> Any:
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6)


def example(name: str, folder: Path) -> Path:
    """Return a copy of an example's folder."""
    return Path(shutil.copytree(EXAMPLES / name, folder / "in", ignore=shutil.ignore_patterns("*.mar", "__pycache__")))


def document(source: Path | str, folder: Path) -> Json:
    """Return the SBOM of an archive after a check by the schema and of its references, which the schema omits."""
    output = folder / "sbom.json"
    marpack.inspect(source, sbom=output)
    text = output.read_text()
    assert validator().validate_str(text) is None
    made: Json = json.loads(text)
    known = [component["bom-ref"] for component in components(made)]
    assert len(set(known)) == len(known)
    named = [made["dependencies"][0]["ref"], *made["dependencies"][0]["dependsOn"]]
    for part in made["compositions"]:
        named += [*part.get("assemblies", ()), *part.get("dependencies", ())]
    assert set(named) <= set(known)
    return made


def components(made: Json) -> Iterator[Json]:
    waiting = [made["metadata"]["component"], *made["components"]]
    for component in waiting:  # grows while it is walked
        yield component
        waiting.extend(component.get("components", ()))


def members(made: Json) -> dict[str, Json]:
    return {part["name"]: part for part in made["metadata"]["component"]["components"]}


def properties(component: Json) -> dict[str, str]:
    return {item["name"].removeprefix("marpack:"): item["value"] for item in component.get("properties", ())}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "function_handler" else pytest.mark.slow) for name in NAMES]
)
def test_of_every_example_it_is_valid_and_hashes_what_is_there(tmp_path: Path, name: str) -> None:
    path = Path(marpack.build(example(name, tmp_path), source_commit="c" * 40).path)
    made = document(path, tmp_path)
    assert (made["specVersion"], made["version"]) == ("1.6", 1)
    model = made["metadata"]["component"]
    assert model["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
    assert properties(model)["source_commit"] == "c" * 40
    with zipfile.ZipFile(path) as archive:
        found = {each: hashlib.sha256(archive.read(each)).hexdigest() for each in archive.namelist()}
    assert {each: part["hashes"][0]["content"] for each, part in members(made).items()} == found


def test_the_model_has_its_authors_license_and_ports(tmp_path: Path) -> None:
    said = "license: mit, authors: [Ada <ada@b.org>, Team], description: wine, homepage: 'https://ü.example/ä'"
    with (example("onnx", tmp_path) / "marpack.yaml").open("a") as file:
        file.write(f"metadata: {{{said}}}\n")
    made = document(tmp_path / "in", tmp_path)
    model = made["metadata"]["component"]
    assert (model["type"], model["name"], model["version"]) == ("machine-learning-model", "wine", "1.0")
    assert model["purl"] == "pkg:generic/wine@1.0"
    assert model["licenses"] == [{"license": {"id": "MIT"}}]
    assert model["authors"] == [{"name": "Ada", "email": "ada@b.org"}, {"name": "Team"}]
    assert model["description"] == "wine"
    assert model["externalReferences"] == [{"type": "website", "url": "https://%C3%BC.example/%C3%A4"}]
    assert model["modelCard"]["modelParameters"] == {
        "inputs": [{"format": "analyses: float32 [batch, 13]"}],
        "outputs": [{"format": "probabilities: float32 [batch, 3]"}],
    }
    assert properties(members(made)["wine.onnx"]) == {
        "size": "2059", "format": "ONNX", "parameters": "301", "tensors": "6", "dtypes": "float32 (6)",
    }  # fmt: skip
    assert members(made)["index_to_name.json"]["type"] == "data"
    assert made["metadata"]["tools"]["components"][0]["version"] == __version__
    made = document(example("digits", tmp_path / "torchscript"), tmp_path)
    card = made["metadata"]["component"]["modelCard"]["modelParameters"]
    assert card == {"inputs": [{"format": "scans: Tensor"}], "outputs": [{"format": "Tensor"}]}


LICENSES = {
    "apache-2.0": {"license": {"id": "Apache-2.0"}},
    "LicenseRef-Ours": {"license": {"name": "LicenseRef-Ours"}},
    "A OR B": {"license": {"name": "A OR B"}},
}
EXPRESSIONS = ("MIT OR LicenseRef-Ours", "LicenseRef-Ours AND MIT", "(MIT)", "Apache-2.0+")
LICENSES |= {text: {"expression": text} for text in (*EXPRESSIONS, "GPL-2.0-only WITH Classpath-exception-2.0")}


def test_a_licence_is_where_the_specification_wants_it(tmp_path: Path, make_folder: MakeMar) -> None:
    source = make_folder(HANDLER)
    for said, expected in LICENSES.items():
        indexed(source, {"license": said})
        assert document(source, tmp_path)["metadata"]["component"]["licenses"] == [expected]


def indexed(folder: Path, metadata: Json) -> None:
    """Give a model folder an index."""
    listed = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and each.name != "marpack.json"):
        data = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        listed.append({"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    index = {"members": listed, "metadata": metadata}
    (folder / "MAR-INF" / "marpack.json").write_text(json.dumps(index))


def test_whatever_an_archive_says_of_itself_it_is_valid(tmp_path: Path, make_folder: MakeMar) -> None:
    source = make_folder(HANDLER, name="ab")
    indexed(source, ODD)
    model = document(source, tmp_path)["metadata"]["component"]
    assert model["licenses"] == [{"license": {"name": "my own <terms>"}}]
    assert model["authors"] == [
        {"name": "Ada <ada@b> x"}, {"email": "a@b"}, {"name": "Bob", "email": "bob@example.org"}, {"name": "\u202e"},
    ]  # fmt: skip
    assert "externalReferences" not in model
    assert "hashes" not in model
    assert "left out" in properties(model)["hash"]


def test_odd_names_stay_apart(tmp_path: Path, make_mar: MakeMar) -> None:
    names = ("ä b/ü.txt", "日本.bin", "model", "urn:cdx:x", "member:model", "<a>&\"'.txt")
    made = document(make_mar(HANDLER, files=dict.fromkeys(names, "2")), tmp_path)
    assert {*names, "handler.py", "MAR-INF/MANIFEST.json"} == set(members(made))
    digest = hashlib.sha256(b"2").hexdigest()
    assert members(made)["日本.bin"]["hashes"][0]["content"] == digest
    for name in ("", "a b", "ü@1?x#y", "pkg:pypi/x", "\x1b[31m\u202e"):
        manifest = {"runtime": "python", "model": {"modelName": name, "modelVersion": "1/2 ü", "handler": "handler.py"}}
        with zipfile.ZipFile(tmp_path / "x.mar", "w") as archive:
            archive.writestr("handler.py", HANDLER)
            archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        model = document(tmp_path / "x.mar", tmp_path)["metadata"]["component"]
        assert model["name"] == name
        assert model["purl"].isascii()


def test_the_same_archive_gives_the_same_bytes_in_any_folder(tmp_path: Path, make_mar: MakeMar) -> None:
    other = document(make_mar(HANDLER), tmp_path)["serialNumber"]
    for form, name in FORMS.items():
        first = marpack.build(EXAMPLES / "function_handler", output=tmp_path / f"iris{form}", archive_format=name)
        made = document(first.path, tmp_path)
        moved = Path(shutil.move(first.path, tmp_path / f"other{form}"))
        assert document(moved, tmp_path) == made
        marpack.inspect(moved, sbom=tmp_path / "again.json", verify=True)
        assert (tmp_path / "again.json").read_bytes() == (tmp_path / "sbom.json").read_bytes()
        assert ("hashes" in made["metadata"]["component"]) is bool(form)
        assert made["serialNumber"].startswith("urn:uuid:")
        assert made["serialNumber"] != other


REQUIREMENTS = """\
# a comment
torch==2.6.0+cpu
numpy>=1.26,<3
Pillow[webp] == 10.3 ; python_version < "3.13"
torch==2.5.1; python_version < "3.9"
one==1.*
two==1.0,==2.0
three===odd/version
--extra-index-url https://me:hunter2@index.example/simple
-r more.txt
-r gone.txt
-c constraints.txt
wheel @ https://me:hunter2@host.example/wheel-1.0-py3-none-any.whl?token=hunter2#sha256=00
git+https://hunter2@host.example/repo.git@v1#egg=named
git+ssh://git@host.example/other.git#egg=reached
-e git+https://host.example/unnamed.git
https://host.example:bad/x#egg=port
./local.whl
what is this hunter2
plain --hash=sha256:00
"""


def test_requirements_are_components_and_what_names_none_is_said(tmp_path: Path, make_mar: MakeMar) -> None:
    files = {"requirements.txt": REQUIREMENTS, "more.txt": "scipy==1.15\n-r requirements.txt\n"}
    made = document(make_mar(HANDLER, files=files, requirementsFile="requirements.txt"), tmp_path)
    found = [(part["name"], part.get("version"), part.get("purl")) for part in made["components"]]
    assert found == [
        ("torch", "2.6.0+cpu", "pkg:pypi/torch@2.6.0%2Bcpu"),
        ("numpy", None, "pkg:pypi/numpy"),
        ("pillow", "10.3", "pkg:pypi/pillow@10.3"),
        ("torch", "2.5.1", "pkg:pypi/torch@2.5.1"),
        ("one", None, "pkg:pypi/one"),
        ("two", None, "pkg:pypi/two"),
        ("three", "odd/version", "pkg:pypi/three@odd%2Fversion"),
        ("wheel", None, None),
        ("named", None, None),
        ("reached", None, None),
        ("port", None, None),
        ("plain", None, "pkg:pypi/plain"),
        ("scipy", "1.15", "pkg:pypi/scipy@1.15"),
    ]
    assert made["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in made["components"]]
    by_name = {part["name"]: part for part in made["components"]}
    assert properties(by_name["numpy"]) == {"requirement": "numpy>=1.26,<3"}
    assert properties(by_name["pillow"]) == {"requirement": 'Pillow[webp] == 10.3 ; python_version < "3.13"'}
    assert by_name["wheel"]["externalReferences"] == [
        {"type": "distribution", "url": "https://host.example/wheel-1.0-py3-none-any.whl"}
    ]
    assert by_name["named"]["externalReferences"] == [{"type": "vcs", "url": "https://host.example/repo.git@v1"}]
    assert "externalReferences" not in by_name["reached"]
    assert "externalReferences" not in by_name["port"]
    said = made["metadata"]["component"]["properties"]
    listed = [item["value"] for item in said if item["name"] == "marpack:requirement_not_listed"]
    assert listed == ["requirements.txt:11", "requirements.txt:16", "requirements.txt:18", "requirements.txt:19"]
    assert "hunter2" not in (tmp_path / "sbom.json").read_text()


def test_lists_of_requirements_have_a_limit_and_may_be_empty(
    tmp_path: Path, make_mar: MakeMar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(text: str) -> tuple[int, str | None]:
        made = document(make_mar(HANDLER, requirementsFile="r.txt", files={"r.txt": text}), tmp_path)
        assert len(made["dependencies"][0]["dependsOn"]) == len(made["components"])
        return len(made["components"]), properties(made["metadata"]["component"]).get("requirement_not_listed")

    assert listed("") == (0, None)
    assert listed("numpy\n".ljust(1 << 20, "#")) == (1, None)
    assert listed("numpy\n".ljust((1 << 20) + 1, "#")) == (0, "r.txt")
    monkeypatch.setattr("marpack.trust.sbom._MAX_LINES", 4)
    assert [listed("a\n" * lines) for lines in (4, 5, 9)] == [(4, None), (4, "r.txt:5"), (4, "r.txt:5")]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """Return what puts an archive elsewhere, and lists the remote files that were opened."""
    opened: list[RemoteFile] = []

    def noted(address: str) -> RemoteFile:
        opened.append(open_remote(address))
        return opened[-1]

    def put(path: Path) -> tuple[str, list[RemoteFile]]:
        MemoryFileSystem().pipe(f"/{path.name}", path.read_bytes())
        return f"memory://{path.name}", opened

    monkeypatch.setattr(sys.modules[open_remote.__module__], "open_remote", noted)
    yield put
    MemoryFileSystem.store.clear()


def test_of_a_remote_archive_only_a_small_part_is_fetched(tmp_path: Path, far: Far) -> None:
    source = example("function_handler", tmp_path)
    (source / "big.bin").write_bytes(os.urandom(1 << 20))
    with (source / "marpack.yaml").open("a") as file:
        file.write("files: [big.bin]\n")
    path = Path(marpack.build(source, output=tmp_path / "far.mar").path)
    address, opened = far(path)
    here, there = document(path, tmp_path), document(address, tmp_path)
    assert members(there) == members(here)
    assert "hashes" not in there["metadata"]["component"]
    assert "left out" in properties(there["metadata"]["component"])["hash"]
    assert [file.fetched < 1 << 19 for file in opened] == [True]
    assert "memory:" not in (tmp_path / "sbom.json").read_text()


def test_without_an_index_nothing_remote_is_fetched_for_a_hash(tmp_path: Path, make_mar: MakeMar, far: Far) -> None:
    address, opened = far(make_mar(HANDLER, files={"big.bin": os.urandom(1 << 20)}))
    assert not any("hashes" in part for part in components(document(address, tmp_path)))
    assert [file.fetched < 1 << 19 for file in opened] == [True]


def test_a_damaged_archive_gets_none_and_an_old_one_stays(tmp_path: Path, make_mar: MakeMar) -> None:
    unreadable = make_mar(HANDLER, files={"words.txt": "x" * 100})
    unreadable.write_bytes(unreadable.read_bytes().replace(b"x" * 100, b"x" * 50 + b"y" + b"x" * 49))
    path, changed = Path(marpack.build(example("function_handler", tmp_path)).path), tmp_path / "bad.mar"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + b"#" * (name == "handler.py"))
    for output in (tmp_path / "new.json", tmp_path / "old.json"):
        (tmp_path / "old.json").write_text("old")
        with pytest.raises(DamagedArchiveError, check=has_code("content-mismatch", "marpack inspect")):
            marpack.inspect(changed, sbom=output)
        with pytest.raises(DamagedArchiveError):
            marpack.inspect(unreadable, sbom=output)
    assert not (tmp_path / "new.json").exists()
    assert (tmp_path / "old.json").read_text() == "old"
    path = make_mar(HANDLER)
    with open_archive(path) as archive:
        facts = inspect(archive)
        path.unlink()
        with pytest.raises(DamagedArchiveError, check=has_code("damaged-archive", os.strerror(errno.ENOENT))):
            sbom(archive, facts)


def test_an_invalid_output_is_refused_and_nothing_is_lost(
    tmp_path: Path, make_mar: MakeMar, make_folder: MakeMar
) -> None:
    archive, folder = make_mar(HANDLER), make_folder(HANDLER)
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(archive)
    before = archive.read_bytes()
    for output in ("probe.mar", "x/../probe.mar", "link", "", "none/sbom.json", "probe-folder/sbom.json"):
        with pytest.raises(UsageError) as caught:
            marpack.inspect(folder if "folder" in output else archive, sbom=f"{tmp_path}/{output}")
        assert caught.value.code == "output-in-archive" or output in {"", "none/sbom.json"}
        assert archive.read_bytes() == before
    assert not (folder / "sbom.json").exists()
