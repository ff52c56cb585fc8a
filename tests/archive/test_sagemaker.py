"""SageMaker's layout: a .tar.gz or a folder with code/inference.py, opened, inspected and refused as other archives."""

import hashlib
import io
import json
import tarfile

import pytest
from invoking import invoke

import marpack
from marpack.archive.cache import Cache
from marpack.archive.protocol import MANIFEST_NAME
from marpack.archive.reader import open_archive
from marpack.archive.sagemaker import HANDLER, SCRIPT, handler_source, has_adapter
from marpack.errors import ArchiveError, ExitCode, ManifestError, UnsafeArchiveError
from marpack.inspection.inspect import inspect

SCRIPT_TEXT = b"""
from helper import NAME

def model_fn(model_dir):
    return NAME

def transform_fn(model, body, content_type, accept):
    return f"{model}: {body}"
"""
FILES = {SCRIPT: SCRIPT_TEXT, "code/helper.py": b"NAME = 'helped'\n", "weights/w.bin": b"w" * 1000}


def model_tar(path, files, *headers):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
        for header in headers:
            archive.addfile(header)
    return path


def special(name, kind, target=""):
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, target
    return header


@pytest.fixture
def model(tmp_path):
    return model_tar(tmp_path / "model.tar.gz", FILES)


@pytest.fixture
def folder(tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "folder"


@pytest.fixture(params=["model", "folder"])
def source(request):
    return request.getfixturevalue(request.param)


def test_a_manifest_and_a_handler_are_added(source):
    with open_archive(source) as archive:
        assert archive.entries.keys() == {*FILES, HANDLER, MANIFEST_NAME}
        assert archive.open(HANDLER).read() == handler_source()
        assert (archive.manifest.model.name, archive.manifest.model.handler) == ("model", HANDLER)
        assert [(finding.code, finding.severity) for finding in archive.server_findings] == [
            ("sagemaker-layout", "note")
        ]
        handler = inspect(archive).handler
    assert handler is not None
    assert handler.problem == f"calls {SCRIPT}"


def test_requirements_are_those_in_code(tmp_path):
    with open_archive(model_tar(tmp_path / "m.tar.gz", {**FILES, "code/requirements.txt": b"six\n"})) as archive:
        assert archive.manifest.model.requirements_file == "code/requirements.txt"
    with open_archive(model_tar(tmp_path / "n.tar.gz", {**FILES, "requirements.txt": b"six\n"})) as archive:
        assert archive.manifest.model.requirements_file is None


def test_extracted_files_are_the_archive_s_own(source, tmp_path):
    cache = Cache(tmp_path / "cache")
    for _ in range(2):  # the second time a tar is not read
        with open_archive(source, cache=cache) as archive:
            place = archive.materialize()
            found = {
                path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()
            }
            assert found.keys() == {*FILES, HANDLER, MANIFEST_NAME}
            assert all((place / name).resolve().is_relative_to(place.resolve()) for name in found)  # read in the folder
            assert archive.manifest.model.handler == HANDLER
    if source.is_dir():
        assert {path.name for path in source.iterdir()} == {"code", "weights"}  # nothing was written
        assert not place.exists()


def test_another_version_s_handler_is_not_used_from_the_cache(model, tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")
    with monkeypatch.context() as patch:
        for module in ("tar_archive", "sagemaker"):
            patch.setattr(f"marpack.archive.{module}.handler_source", lambda: b"old = 1\n")
        with open_archive(model, cache=cache) as archive:
            assert (archive.materialize() / HANDLER).read_bytes() == b"old = 1\n"
    with open_archive(model, cache=cache) as archive:
        assert (archive.materialize() / HANDLER).read_bytes() == handler_source()


@pytest.mark.slow  # the test of content types is its representative
def test_it_responds(folder):
    headers = (("Content-Type", "application/json"),)
    with marpack.load(folder) as loaded:  # a .tar.gz is checked below
        (answer,) = loaded.answer([marpack.RawRequest(headers, b"[1]")])
    assert (answer.status, answer.body, answer.content_type) == (200, "helped: [1]", "application/json")


def test_the_adapter_of_an_earlier_marpack_is_recognized_byte_for_byte(monkeypatch):
    old = b"old = 1\n"
    assert has_adapter(HANDLER, lambda _: io.BytesIO(handler_source()))
    assert not has_adapter(HANDLER, lambda _: io.BytesIO(old))
    monkeypatch.setattr("marpack.archive.sagemaker._EARLIER", {hashlib.sha256(old).hexdigest()})
    assert has_adapter(HANDLER, lambda _: io.BytesIO(old))
    assert not has_adapter("handler.py", lambda _: io.BytesIO(old))
    for other in (old + b" ", old[:-1], handler_source() + b"import os\n"):
        assert not has_adapter(HANDLER, lambda _, other=other: io.BytesIO(other))


@pytest.mark.parametrize("name", ["MAR-INF/MANIFEST.json", "MAR-INF/other", "mar-inf/x"])
def test_an_archive_with_mar_inf_is_torchserve_s(tmp_path, name):
    manifest = json.dumps({"model": {"modelName": "own", "handler": "h.py"}}).encode()
    with open_archive(model_tar(tmp_path / "m.tar.gz", {**FILES, name: manifest})) as archive:
        assert HANDLER not in archive.entries
        if name == MANIFEST_NAME:
            assert archive.manifest.model.name == "own"
        else:
            with pytest.raises(ManifestError):
                _ = archive.manifest


def test_an_empty_folder_mar_inf_counts(tmp_path, folder):
    with open_archive(model_tar(tmp_path / "m.tar.gz", FILES, special("MAR-INF", tarfile.DIRTYPE))) as archive:
        assert HANDLER not in archive.entries
    (folder / "MAR-INF").mkdir()
    with pytest.raises(ArchiveError):
        open_archive(folder)


HOSTILE = {
    "symbolic link": special("code/x.py", tarfile.SYMTYPE, "/etc/passwd"),
    "link out": special("out", tarfile.SYMTYPE, ".."),
    "hard link": special("code/x.py", tarfile.LNKTYPE, "/etc/passwd"),
    "device": special("null", tarfile.CHRTYPE),
    "absolute name": special("/code/x.py", tarfile.REGTYPE),
    "climbing name": special("code/../../x.py", tarfile.REGTYPE),
    "climbing after ./": special("./../x.py", tarfile.REGTYPE),
    "backslashes": special("code\\..\\..\\x.py", tarfile.REGTYPE),
    "script twice": special(SCRIPT, tarfile.REGTYPE),
    "script in another case": special("code/Inference.py", tarfile.REGTYPE),
    "handler": special(HANDLER, tarfile.REGTYPE),
    "handler in another case": special(HANDLER.upper(), tarfile.REGTYPE),
    "handler as a folder": special(HANDLER + "/x", tarfile.REGTYPE),
    "manifest as a file's folder": special("MAR-INF", tarfile.REGTYPE),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_members_are_refused(tmp_path, name):
    path = model_tar(tmp_path / "model.tar.gz", FILES, HOSTILE[name])
    with open_archive(path, cache=Cache(tmp_path / "cache")) as archive:
        if name == "manifest as a file's folder":  # not SageMaker's layout, and no archive of TorchServe
            with pytest.raises(ManifestError):
                archive.materialize()
        else:
            with pytest.raises(UnsafeArchiveError):
                archive.materialize()
    assert {each.name for each in tmp_path.iterdir()} <= {"model.tar.gz", "cache"}
    assert not list((tmp_path / "cache").glob("*/model"))


def test_a_file_with_the_handler_s_name_is_refused_in_a_folder(folder):
    (folder / HANDLER).write_text("")
    with pytest.raises(UnsafeArchiveError):
        open_archive(folder)


@pytest.mark.parametrize("command", ["inspect", "inspect --verify", "init --from", "export --to ray-serve -o out"])
def test_nothing_runs_unless_it_is_run(tmp_path, command):
    script = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n".encode()
    model_tar(tmp_path / "model.tar.gz", {**FILES, SCRIPT: script, "code/__init__.py": script})
    invoke(*command.split(), "model.tar.gz", cwd=tmp_path)
    assert not (tmp_path / "ran").exists()


def preflight(tmp_path, text, **files):
    model_tar(tmp_path / "model.tar.gz", {SCRIPT: text, **{f"code/{name}": data for name, data in files.items()}})
    with open_archive(tmp_path / "model.tar.gz") as archive:
        return {
            (each.code, (each.where or "").rpartition("!")[2]) for each in inspect(archive, static_checks=True).findings
        }


def test_preflight_reads_the_script(tmp_path):
    missing = preflight(tmp_path, b"import no_such_package_anywhere\n")
    assert ("import-unlisted", "code/inference.py:1") in missing
    listed = preflight(tmp_path, b"import requests_toolbelt\n", **{"requirements.txt": b"requests-toolbelt\n"})
    assert not [code for code, _ in listed if code.startswith("import-")]
    assert ("source-syntax", "code/inference.py:1") in preflight(tmp_path, b"def model_fn(:\n")
    assert ("undefined-name", "code/inference.py:2") in preflight(tmp_path, b"def model_fn(d):\n    return torhc\n")
    own = preflight(
        tmp_path, b"import helper\nfrom package import part\n", **{"helper.py": b"", "package/part.py": b""}
    )
    assert not [code for code, _ in own if code.startswith("import-")]


def test_preflight_reads_a_handler_of_the_same_name(make_mar):
    own = "import no_such_package_anywhere\n\n\ndef handle(data, context):\n    return torhc\n"
    files = {HANDLER: own, SCRIPT: "def model_fn(folder): ...\n"}
    with open_archive(make_mar("", files=files, entry=HANDLER)) as archive:
        found = inspect(archive, static_checks=True)
    assert found.handler is not None
    assert found.handler.file == HANDLER
    codes = {(each.code, (each.where or "").rpartition("!")[2]) for each in found.findings}
    assert {("import-unlisted", f"{HANDLER}:1"), ("undefined-name", f"{HANDLER}:5")} <= codes


def test_a_script_that_fails_to_import_is_named(tmp_path):
    path = model_tar(tmp_path / "model.tar.gz", {SCRIPT: b"import torch\nimport no_such_package_anywhere\n"})
    done = invoke("run", str(path), "--data", "[1]", "--json", code=ExitCode.HANDLER)
    trouble = json.loads(done.stdout)["trouble"]
    frame = [each for each in trouble["frames"] if each["user"]][-1]
    assert (trouble["kind"], frame["file"], frame["line"]) == ("ModuleNotFoundError", "code/inference.py", 2)


@pytest.mark.parametrize("name", ["code/serve.py", "inference.py", "model/code/inference.py", "model.pt"])
def test_a_script_at_another_place_is_in_the_hint(tmp_path, name):
    archive = open_archive(model_tar(tmp_path / "m.tar.gz", {name: b""}))
    with archive, pytest.raises(ManifestError) as caught:
        _ = archive.manifest
    assert ("code/inference.py" if name == "model.pt" else f"'{name}'") in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"code/serve.py": b"", "code/helper.py": b""}, "predict_fn"),
        ({"config.json": b"", "m.bin": b""}, "marpack init"),
    ],
)
def test_a_hint_names_no_script_by_guess(tmp_path, files, words):
    with open_archive(model_tar(tmp_path / "m.tar.gz", files)) as archive, pytest.raises(ManifestError) as caught:
        _ = archive.manifest
    assert words in (caught.value.hint or "")
    assert "helper" not in (caught.value.hint or "")


def test_requirements_need_no_setting_of_torchserve(tmp_path):
    assert not [code for code, _ in preflight(tmp_path, b"", **{"requirements.txt": b"six\n"}) if "require" in code]


BY_TYPE = b"""
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    if content_type == "application/json":
        return json.dumps({"length": len(json.loads(body))})
    return body.decode().upper(), "text/plain"
"""


def test_a_response_may_depend_on_the_content_type(tmp_path):
    model_tar(tmp_path / "model.tar.gz", {SCRIPT: BY_TYPE})
    (tmp_path / "hello.txt").write_text("hello")
    done = invoke("check", "model.tar.gz", "--input", "hello.txt", "--json", cwd=tmp_path)
    verdicts = {check["name"]: check["verdict"] for check in json.loads(done.stdout)["checks"]}
    assert (verdicts["body-forms"], verdicts["proved"]) == ("skipped", "passed")
