"""An export as a folder: the same bytes again, all of it or nothing, and nothing of anybody else's replaced."""

import errno
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from exporting.exports import ECHO, HOSTILE, WHEEL, MakeMar, contents, exported, texts
from refusals import has_code, has_facts

from marpack.archive.index import Index, Vendored, VendoredPackage
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, OutputError, OutputExistsError, UsageError
from marpack.exporting.export import MARKER, TARGETS
from marpack.exporting.image import as_code
from marpack.exporting.plan import ExportOptions, read_export, slug_of
from marpack.exporting.platforms import unsupported

DOCKER = {"#", "FROM", "ENV", "WORKDIR", "COPY", "ARG", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}


@pytest.mark.parametrize("to", TARGETS)
def test_an_export_is_reproducible_names_no_folder_and_lists_its_files(to: str, make_mar: MakeMar, tmp_path: Path):
    archive = make_mar(ECHO)
    done = exported(archive, to, tmp_path / "one")
    before = os.umask(0o077)
    try:
        exported(archive, to, tmp_path / "two" / "deep")
    finally:
        os.umask(before)
    first, second = contents(tmp_path / "one"), contents(tmp_path / "two" / "deep")
    assert first == second
    assert {mode for mode, _ in first.values()} == {0o644}
    assert not [name for name, (_, data) in first.items() if str(tmp_path).encode() in data]
    assert "\n".join(done.commands) in first["README.md"][1].decode()
    assert len(done.commands) == 3
    marker = json.loads(first[MARKER][1])
    digests = {name: hashlib.sha256(data).hexdigest() for name, (_, data) in first.items() if name != MARKER}
    assert {file["name"]: file["sha256"] for file in marker["files"]} == digests
    assert {file.name: file.sha256 for file in done.files} == digests


@pytest.mark.parametrize("to", TARGETS)
def test_a_hostile_name_breaks_out_of_no_language(to: str, make_mar: MakeMar, tmp_path: Path):
    archive = make_mar(ECHO, modelName=HOSTILE, modelVersion=HOSTILE, envelope=HOSTILE, description=HOSTILE)
    done = exported(archive, to)
    for name, text in texts(Path(done.folder)).items():
        if name.endswith(".yaml"):
            (document,) = yaml.safe_load_all(text)
            assert "evil" not in document
            assert "evil" not in document.get("metadata", {})
        elif name.endswith(".py"):
            compile(text, name, "exec")
        elif name.endswith("Dockerfile"):
            assert {line.split()[0] for line in text.splitlines()} <= DOCKER
        elif name.endswith(".sh"):
            subprocess.run(["sh", "-n", "-c", text], check=True)
        if not name.endswith((".md", ".json")):
            assert "rm -rf" not in text, name
    for command in done.commands:
        words = shlex.split(command, comments=True)
        assert "rm" not in words
        assert "\n" not in command


def test_names_are_made_valid_for_platforms_and_addresses(make_mar: MakeMar):
    slugs = {"digits": "digits", "My_Model v2": "my-model-v2", "../../etc": "etc", "": "model", "日本": "model"}
    slugs |= {"7segments": "model-7segments", "-a-": "a", "x" * 80: "x" * 53, "9" * 80: "model-" + "9" * 47}
    slugs["a" * 52 + "-b"] = "a" * 52
    assert {name: slug_of(name) for name in slugs} == slugs
    command = exported(make_mar(ECHO, modelName="a/b c?"), "docker").commands[2]
    assert re.search(r"/predictions/a%2Fb%20c%3F -T FILE$", command)


def test_inline_code_ends_at_its_own_fence():
    for text in ("a", "a`b", "``", "a\nb", "", "`x```y"):
        code = as_code(text)
        fence = code[: len(code) - len(code.lstrip("`"))]
        assert code.endswith(fence)
        assert fence not in code[len(fence) : -len(fence)]
        assert "\n" not in code


def test_force_replaces_an_export_and_nothing_else(make_mar: MakeMar, tmp_path: Path):
    archive, folder = make_mar(ECHO), tmp_path / "out"
    folder.mkdir()
    exported(archive, "docker", folder)  # an empty folder may be used
    with pytest.raises(OutputExistsError, check=has_facts("--force")):
        exported(archive, "docker", folder)
    exported(archive, "kserve", folder, replace=True)
    assert (folder / "serving-runtime.yaml").exists()
    assert not (folder / "Dockerfile").exists()
    (folder / "image" / "mine.txt").write_text("hours of work")
    with pytest.raises(OutputExistsError, check=has_code("output-holds-other-files", "image/mine.txt")):
        exported(archive, "kserve", folder, replace=True)
    assert (folder / "image" / "mine.txt").read_text() == "hours of work"


@pytest.mark.parametrize("longer", [True, False])
def test_an_edited_file_is_not_replaced(longer: bool, make_mar: MakeMar, tmp_path: Path):
    exported(make_mar(ECHO), "ray-serve", tmp_path / "out")
    file = tmp_path / "out" / "deployment.py"
    text = file.read_text()
    edited = f"# mine\n{text}" if longer else text.replace("import", "Import", 1)
    file.write_text(edited)
    with pytest.raises(OutputExistsError, match=r"an edited deployment\.py"):
        exported(make_mar(ECHO), "ray-serve", tmp_path / "out", replace=True)
    assert file.read_text() == edited
    file.unlink()
    exported(make_mar(ECHO), "ray-serve", tmp_path / "out", replace=True)
    assert file.read_text() == text


@pytest.mark.parametrize("to", TARGETS)
def test_an_archive_inside_the_replaced_export(to: str, make_mar: MakeMar, tmp_path: Path):
    done = exported(make_mar(ECHO), to, tmp_path / "out")
    before = contents(tmp_path / "out")
    (inside,) = [file.name for file in done.files if file.name.endswith(".mar")]
    exported(tmp_path / "out" / inside, to, tmp_path / "out", replace=True, wheel=tmp_path / WHEEL)
    assert contents(tmp_path / "out") == before


FOREIGN_MARKER = '{"marpack": "0.1.0", "target": "x", "model": "m", "content_digest": null, "files": []}'
FOREIGN_OUTPUTS = {
    "other files": {"out/thesis.tex": "x"},
    "a model folder": {"out/MAR-INF/MANIFEST.json": "{}"},
    "a marker of somebody else": {"out/thesis.tex": "x", f"out/{MARKER}": FOREIGN_MARKER},
    "a file": {"out": "x"},
}


@pytest.mark.parametrize("files", FOREIGN_OUTPUTS.values(), ids=FOREIGN_OUTPUTS)
def test_files_of_others_are_never_replaced(files: dict[str, str], make_mar: MakeMar, tmp_path: Path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(OutputExistsError):
        exported(make_mar(ECHO), "docker", tmp_path / "out", replace=True)
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert not list(tmp_path.glob(".*marpack-tmp"))


# target, option, problem → values
WRONG: dict[tuple[str, str, str], list[Any]] = {
    ("dockr", "device", "'dockr' is not an export target"): ["cpu"],
    ("docker", "device", "'tpu' is not a device"): ["tpu"],
    ("docker", "image", "invalid value for --image"): ["Digits", "--privileged", "a b", "a;id", ""],
    ("docker", "storage_uri", "docker does not use --"): ["s3://b/x.mar"],
    ("kserve", "storage_uri", "invalid value for --storage-uri"): [
        *("/tmp/x.mar", "s3://b/'x", "s3://b/x\n- a", "ftp://b/x")
    ],
    ("ray-serve", "lock", "ray-serve does not use --"): [Path("x.lock")],
    ("kserve", "role", "kserve does not use --"): ["arn:aws:iam::123456789012:role/r"],
    ("sagemaker", "role", "invalid value for --role"): ["admin"],
    ("docker", "wheel", "not a wheel"): [Path("nothing.whl"), Path("odd", WHEEL)],
    ("docker", "wheel", "cannot be read"): [Path("marpack-1.0-py3-none-any.whl")],
    ("docker", "wheel", "not marpack's"): [Path("odd", "shop-0.1.0-py3-none-any.whl"), Path("odd", "a", WHEEL)],
    ("docker", "lock", "the lock cannot be read"): [Path("nothing.lock"), Path()],
    ("docker", "lock", "does not pin"): [Path("odd", "unhashed")],
    ("docker", "lock", "not a text"): [Path("odd", "binary")],
    ("docker", "lock", "the lock has no torch"): [Path("odd", "short"), Path("odd", "nil")],
}


@pytest.fixture
def odd_files(tmp_path: Path) -> Path:
    folder = tmp_path / "odd"
    (folder / "a").mkdir(parents=True)
    (folder / WHEEL).write_text("hello")
    for name in ("shop-0.1.0-py3-none-any.whl", f"a/{WHEEL}"):
        with zipfile.ZipFile(folder / name, "w") as wheel:
            wheel.writestr("shop/__init__.py", "")
    (folder / "unhashed").write_text("# mine\ntorch==2.13.0\n")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    (folder / "short").write_text(f"numpy==2.0 --hash=sha256:{'0' * 64}\n")
    (folder / "nil").write_text("")
    return tmp_path


@pytest.mark.parametrize(("case", "values"), WRONG.items(), ids=[" ".join(case) for case in WRONG])
def test_wrong_options_are_refused_and_nothing_is_written(
    case: tuple[str, str, str], values: list[Any], make_mar: MakeMar, odd_files: Path
):
    to, option, problem = case
    archive = make_mar(ECHO)
    for value in values:
        given = odd_files / value if isinstance(value, Path) else value
        with pytest.raises(UsageError, match=problem) as caught:
            exported(archive, to, odd_files / "out", **{option: given})
        assert caught.value.where or caught.value.hint
        assert not (odd_files / "out").exists()


def test_sources_and_places(make_mar: MakeMar, make_folder: MakeMar, tmp_path: Path):
    (tmp_path / "x.mar").write_text("x")
    with pytest.raises(ArchiveError):
        exported(tmp_path / "x.mar", "docker", tmp_path / "out")
    folder = make_folder(ECHO)
    with pytest.raises(UsageError, check=has_code("archive-required", "marpack build")):
        exported(folder, "docker", tmp_path / "out")
    with pytest.raises(OutputError, check=has_facts(os.strerror(errno.EEXIST))):
        exported(make_mar(ECHO), "docker", tmp_path / "x.mar" / "out")
    assert not (tmp_path / "out").exists()
    with tarfile.open(tmp_path / "probe.tar.gz", "w:gz") as archive:
        archive.add(folder, "probe")
    done = exported(tmp_path / "probe.tar.gz", "docker", tmp_path / "out")
    assert "model/probe.tar.gz" in {file.name for file in done.files}


@pytest.mark.parametrize(
    ("wheel", "codes"),
    [
        ("till-1.0-py3-none-any.whl", set()),
        (f"till-1.0-cp{sys.version_info[0]}{sys.version_info[1]}-abi3-manylinux2014_s390x.whl", set()),
        ("till-1.0-cp39-cp39-manylinux2014_x86_64.whl", {"export-vendored"}),
        ("till", {"export-vendored"}),
    ],
)
def test_vendored_packages_must_fit_the_images_python(wheel: str, codes: set[str], make_mar: MakeMar):
    package = VendoredPackage(name="till", version="1.0", file=wheel, sha256="0" * 64, modules=("till",))
    index = Index(members=(), vendored=Vendored(python="3.9", platform="any", packages=(package,), server=("numpy",)))
    files = {"MAR-INF/marpack.json": msgspec.json.encode(index), "till.py": "def set_response_status(): ..."}
    archive = make_mar(ECHO, files=files)
    for to in HERE.keys() - {"ray-serve"}:
        done = exported(archive, to)
        assert {finding.code for finding in done.findings} - EVERYWHERE == codes
    requirements = (archive.parent / "docker" / "requirements.txt").read_text()
    assert "\nnumpy\n" in requirements
    assert "till" not in requirements


SENDS = "send_intermediate_predict_response"
FOUND: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "nothing": (ECHO, {}, set()),
    "a status": ("def handle(d, c):\n    c.set_response_status(404, 'Gone fishing')\n", {}, {"export-reason-phrase"}),
    "headers": ("def handle(d, c):\n    c.set_response_header(0, 'x', 'y')\n", {}, {"export-response-headers"}),
    "request headers": ("def handle(d, c):\n    c.get_request_header(0, 'x')\n", {}, {"export-request-headers"}),
    "streams": (f"from ts.handler_utils.utils import {SENDS}\n", {}, {"export-streaming"}),
    "metrics": ("def handle(d, c):\n    c.metrics.add_counter('Asked', 1)\n", {}, {"export-metrics"}),
    "GPUs": (ECHO, {"deviceType": "gpu"}, {"export-no-gpu"}),
    "some GPUs": (ECHO, {"deviceIds": [0, 1]}, {"export-no-gpu"}),
    "a queue": (ECHO, {"jobQueueSize": 5}, {"export-queue"}),
    "slow answers": (ECHO, {"responseTimeout": 90}, {"export-slow-answers"}),
    "batches": (ECHO, {"batchSize": 8}, {"export-batches"}),
    "a file of requirements": (ECHO, {"requirements": "./wheels/x.whl\nnumpy\n"}, {"export-requirement-left-out"}),
    "an index of requirements": (ECHO, {"requirements": "-i https://x\n"}, {"export-requirement-left-out"}),
    "an envelope": (ECHO, {"envelope": "json"}, {"export-own-envelope"}),
    "a pickle": (ECHO, {"pickle": b"cos\nsystem\n(S'id'\ntR."}, {"export-needs-trust"}),
}
EVERYWHERE = {"export-requirements-unhashed", "export-placeholder"}
HERE = {
    "docker": {"export-no-gpu", "export-requirement-left-out", "export-needs-trust"},
    "kserve": {
        *("export-no-gpu", "export-requirement-left-out", "export-needs-trust", "export-reason-phrase"),
        *("export-streaming", "export-queue", "export-batches", "export-own-envelope"),
    },
    "sagemaker": {
        *("export-no-gpu", "export-requirement-left-out", "export-needs-trust", "export-reason-phrase"),
        *("export-streaming", "export-queue", "export-response-headers", "export-metrics", "export-slow-answers"),
    },
    "ray-serve": {
        *("export-no-gpu", "export-requirement-left-out", "export-needs-trust", "export-reason-phrase"),
        *("export-streaming", "export-request-headers", "export-response-headers", "export-metrics"),
    },
}


@pytest.mark.parametrize("case", FOUND)
def test_features_without_support_on_the_platform_are_reported(case: str, make_mar: MakeMar):
    handler, given, codes = FOUND[case]
    config = {key: value for key, value in given.items() if key not in {"requirements", "envelope", "pickle"}}
    files: dict[str, str | bytes] = {"config.yaml": yaml.safe_dump(config)} if config else {}
    model = {"configFile": "config.yaml"} if config else {}
    if "requirements" in given:
        files["requirements.txt"] = given["requirements"]
        model["requirementsFile"] = "requirements.txt"
    if "pickle" in given:
        files["extra.pkl"] = given["pickle"]
    if "envelope" in given:
        model["envelope"] = given["envelope"]
    path = make_mar(handler, files=files, **model)
    with open_archive(path) as archive:
        planned = read_export(archive, path, ExportOptions())
    for to, reported in HERE.items():
        findings = unsupported(planned, to)
        assert {finding.code for finding in findings} - EVERYWHERE == codes & reported
        assert all(finding.hint for finding in findings)


@pytest.mark.parametrize("to", ["sagemaker", "ray-serve"])
@pytest.mark.parametrize(("call", "codes"), [("", set()), ("c.set_response_status(404)", {"export-reason-phrase"})])
def test_marpacks_handler_for_sagemakers_layout_is_not_reported(call: str, codes: set[str], to: str, tmp_path: Path):
    script = tmp_path / "code" / "inference.py"
    script.parent.mkdir()
    script.write_text(f"def predict_fn(data, model, c):\n    {call or 'pass'}\n")
    archive = tmp_path / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(script, "code/inference.py")
    assert {finding.code for finding in exported(archive, to).findings} - EVERYWHERE == codes


def test_names_that_are_given_leave_no_placeholder(make_mar: MakeMar, tmp_path: Path):
    given = {
        "image": "r.example:5000/a/b:1",
        "storage_uri": "s3://b/m.tar.gz",
        "role": "arn:aws:iam::123456789012:role/r",
    }
    done = exported(make_mar(ECHO), "sagemaker", **given)
    assert "export-placeholder" not in {finding.code for finding in done.findings}
    assert not [name for name, text in texts(Path(done.folder)).items() if "YOUR-" in text or "REGION" in text]
    assert all(any(value in text for text in texts(Path(done.folder)).values()) for value in given.values())


NESTED = {
    "requirements.txt": "-rsub/more.txt\n--constraint=limits.txt\n-cgone.txt\nnumpy\n",
    "sub/more.txt": "shapely\n--requirement=deeper.txt\n",
    "sub/deeper.txt": "six\n",
    "limits.txt": "numpy==1.26.4\nSix<2\nunasked==1\n",
}


def test_an_image_has_what_nested_files_require_within_their_limits(make_mar: MakeMar) -> None:
    archive = make_mar(ECHO, files=NESTED, requirementsFile="requirements.txt")
    made = exported(archive, "docker")
    lines = (archive.parent / "docker" / "requirements.txt").read_text().splitlines()
    assert {"numpy", "shapely", "six", "numpy==1.26.4", "Six<2"} < set(lines)
    assert not [line for line in lines if line.startswith("-")]
    left = [each.message for each in made.findings if each.code == "export-requirement-left-out"]
    assert ["gone.txt" in text or "unasked==1" in text for text in left] == [True, True]


USED = {
    "a call": (f"from ts.protocol import otf_message_handler as o\no.{SENDS}()\n", True),
    "an import": (f"from ts.protocol.otf_message_handler import {SENDS}\n", True),
    "a comment": (f"# {SENDS} is not for us\n", False),
    "a docstring": (f'"""Without {SENDS}()."""\n', False),
    "a text": (f"x = '{SENDS}'\n", False),
    "another name": (f"{SENDS}_not = 1\n", False),
    "no Python": (f"{SENDS}(\n", False),
}


@pytest.mark.parametrize("name", USED)
def test_a_stream_is_found_in_code_only(name: str, make_mar: MakeMar) -> None:
    source, streams = USED[name]
    made = exported(make_mar(ECHO, files={"more.py": source}), "sagemaker")
    assert ("export-streaming" in {each.code for each in made.findings}) is streams
