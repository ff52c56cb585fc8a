"""An archive's project rebuilds the same members; what cannot be carried over is said."""

import hashlib
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from project.conftest import write

import marpack
from marpack.archive.reader import open_archive
from marpack.archive.sagemaker import handler_source
from marpack.errors import DamagedArchiveError, ProjectError
from marpack.project.load import load_project
from marpack.project.scaffold.from_archive import read_project
from marpack.project.scaffold.write_files import write_files

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/marpack.yaml"))
HANDLER = "def handle(data, context):\n    return data\n"


def reclaimed(source: Path, folder: Path) -> list[str]:
    with open_archive(source) as archive:
        found = read_project(archive)
        write_files(folder, found.files, replace=False)
    return [finding.message for finding in found.findings]


def members(source: Path) -> dict[str, bytes]:
    with open_archive(source) as archive:
        names = [name for name in archive.entries if name not in {"MAR-INF/MANIFEST.json", "MAR-INF/marpack.json"}]
        return {name: archive.open(name).read() for name in names}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [".mar", ".tar.gz"])
def test_our_own_archives_come_back_byte_for_byte(tmp_path, name, form):
    shutil.copytree(EXAMPLES / name, tmp_path / "in", ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    first = marpack.build(tmp_path / "in", output=tmp_path / f"first{form}")
    losses = reclaimed(Path(first.path), tmp_path / "out")
    second = marpack.build(tmp_path / "out", output=tmp_path / f"second{form}")
    assert losses == []
    assert second.content_digest == first.content_digest
    assert Path(second.path).read_bytes() == Path(first.path).read_bytes()


def test_an_archive_made_elsewhere_comes_back_with_the_same_members(tmp_path, make_mar):
    files = {
        "model.pt": b"\x80weights",
        "index_to_name.json": '{"0": "a"}',
        "config.yaml": "batchSize: 2\n",
        "words.py": "ONE = 1\n",
        "assets/a.bin": b"1",
        "assets/deep/b.bin": b"2",
    }
    source = make_mar("import words\n" + HANDLER, files=files, serializedFile="model.pt", configFile="config.yaml")
    assert reclaimed(source, tmp_path / "out") == []
    project = load_project(tmp_path / "out")
    assert (project.weights, project.labels, project.config) == ("model.pt", "index_to_name.json", "config.yaml")
    assert project.files == ["words.py", "assets/"]
    assert members(Path(marpack.build(tmp_path / "out").path)) == members(source)


def test_names_that_a_project_needs_itself_lie_apart(tmp_path, make_mar):
    files = {
        "marpack.yaml": "theirs: 1\n",
        "probe.mar": b"nested",
        "samples/x.png": b"a member, no sample",
        ".hidden/y": b"1",
        "lib/__pycache__/z.txt": b"2",
        "lib/plain.txt": b"3",
        "odd [1]*.txt": b"4",
        "members/m.txt": b"5",
        "labels: #.txt": b"6",
    }
    source = make_mar(HANDLER, files=files)
    assert reclaimed(source, tmp_path / "out") == []
    assert members(Path(marpack.build(tmp_path / "out").path)) == members(source)


@pytest.mark.parametrize("labels", ['["a", "b"]', "{", "\ufeff{}", "NaN"])
def test_labels_that_are_no_object_stay_as_they_are(tmp_path, make_mar, labels):
    source = make_mar(HANDLER, files={"index_to_name.json": labels})
    reclaimed(source, tmp_path / "out")
    assert load_project(tmp_path / "out").labels is None
    assert members(source)["index_to_name.json"] == (tmp_path / "out" / "index_to_name.json").read_bytes()


@pytest.mark.parametrize("entry", ["handler.py", "handler:handle"])
def test_every_spelling_of_the_handler_is_understood(tmp_path, make_mar, entry):
    source = make_mar(HANDLER, entry=entry)
    assert reclaimed(source, tmp_path / "out") == []
    assert load_project(tmp_path / "out").handler.startswith("handler.py")
    assert members(Path(marpack.build(tmp_path / "out").path)) == members(source)
    reclaimed(make_mar(HANDLER, entry="image_classifier"), tmp_path / "built-in")
    project = load_project(tmp_path / "built-in")
    assert (project.handler, project.files) == ("image_classifier", ["handler.py"])


def test_what_cannot_be_carried_over_is_said(tmp_path):
    model = {"modelName": "a b", "handler": "handler.py", "modelFile": "sub/net.py"}
    manifest = {"runtime": "python3", "license": "MIT", "model": {**model, "description": "…", "envelope": "body"}}
    source = tmp_path / "x.mar"
    with zipfile.ZipFile(source, "w") as archive:
        for name in ("handler.py", "sub/net.py", "MAR-INF/extra.txt"):
            archive.writestr(name, HANDLER)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
    losses = " | ".join(reclaimed(source, tmp_path / "out"))
    for piece in (
        "'a b' is not a model name, so the project's is 'model'",
        "has no version, so the project's is 1.0",
        "'python3' of the manifest becomes 'python'",
        "envelope, description, license",
        "modelFile is sub/net.py, which is in a folder",
        "MAR-INF/extra.txt",
    ):
        assert piece in losses


def test_what_is_recorded_and_no_project_can_say_is_said(tmp_path, make_folder):
    source = make_folder(HANDLER)
    index = {"members": [], "provenance": {"source_commit": "a" * 40}}
    (source / "MAR-INF" / "marpack.json").write_text(json.dumps(index | {"metadata": {"license": "?", "authors": []}}))
    licensed, commit = reclaimed(source, tmp_path / "out")
    assert " license " in licensed
    assert "MAR-INF/marpack.json" in licensed
    assert "a" * 40 in commit
    assert marpack.build(tmp_path / "out").members


def test_samples_survive(tmp_path):
    expected: dict[str, Any] = {"status": 200, "json": {"0": {"min": 0.5}, "yes": [1, None]}, "text": "a\nb: #c"}
    mark = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    samples = [{"input": "samples/made.txt", "expect": expected, "generated": mark}]
    samples.append({"input": "samples/changed.txt", "generated": mark})
    project = {"name": "m", "version": "010", "handler": "handler.py", "target": "marpack", "samples": samples}
    files = {"samples/made.txt": "x", "samples/changed.txt": "y", "handler.py": HANDLER}
    first = marpack.build(write(tmp_path / "in", files | {"marpack.yaml": json.dumps(project)}))
    made = marpack.init(from_=Path(first.path), folder=tmp_path / "out")
    assert made.generated == ("samples/made.txt",)
    assert marpack.build(tmp_path / "out").content_digest == first.content_digest


def test_an_archive_that_is_damaged_leaves_nothing(tmp_path, make_mar):
    source = make_mar(HANDLER, files={"model.pt": b"x" * 5000}, serializedFile="model.pt")
    data = bytearray(source.read_bytes())
    data[data.index(b"xxxx") + 9] ^= 1
    source.write_bytes(data)
    with pytest.raises(DamagedArchiveError):
        reclaimed(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sagemaker_s_layout_becomes_a_project_and_comes_back(tmp_path):
    files = {
        "code/inference.py": b"import lib\n",
        "code/lib/__init__.py": b"",
        "code/requirements.txt": b"six\n",
        "model.pt": b"weights",
        "index_to_name.json": b'{"0": "a"}',
        "config/words.txt": b"x",
    }
    source = tmp_path / "in"
    for name, data in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    assert reclaimed(source, tmp_path / "out") == []
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files
    built = marpack.build(tmp_path / "out")
    added = {"sagemaker_handler.py": handler_source(), "requirements.txt": b"six\n"}
    assert members(Path(built.path)) == files | added
    back = marpack.build(tmp_path / "out", archive_format="sagemaker")
    assert (Path(back.path).name, back.members) == ("model.tar.gz", len(files))
    with tarfile.open(back.path) as archive:
        found = {each.name: archive.extractfile(each).read() for each in archive}
    assert found == files
    (tmp_path / "out" / "sagemaker_handler.py").write_bytes(handler_source() + b"# changed\n")
    with pytest.raises(ProjectError):  # AWS's images would run without the change
        marpack.build(tmp_path / "out", archive_format="sagemaker", force=True)
    (tmp_path / "out" / "sagemaker_handler.py").write_bytes(handler_source())
    again = marpack.build(tmp_path / "out", archive_format="sagemaker")
    assert again.content_digest == back.content_digest
    reclaimed(Path(back.path), tmp_path / "again")
    assert members(Path(marpack.build(tmp_path / "again").path)) == files | added


def test_only_projects_of_sagemaker_s_layout_have_its_format(tmp_path):
    (tmp_path / "handler.py").write_text(HANDLER)
    (tmp_path / "marpack.yaml").write_text("name: m\nversion: 1\nhandler: handler.py\n")
    with pytest.raises(ProjectError) as caught:
        marpack.build(tmp_path, archive_format="sagemaker")
    assert [finding.code for finding in caught.value.findings] == ["output"]
    assert not (tmp_path / "m.tar.gz").exists()
