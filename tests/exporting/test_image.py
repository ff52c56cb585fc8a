"""Images: what they install, their Dockerfile and entry point, their lock and marpack's wheel; without a container."""

import csv
import hashlib
import io
import json
import os
import runpy
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from exporting.exports import ECHO, WHEEL, MakeMar, exported
from refusals import has_code, has_facts

from marpack.errors import UsageError
from marpack.exporting import image
from marpack.exporting.image import make_lock, read_lock, wheel
from marpack.project.vendoring import UnresolvedError
from marpack.version import __version__

ROOT = Path(__file__).parents[2]
TORCH = version("torch").partition("+")[0]
HASH = "0" * 64


def steps(folder: str) -> list[tuple[str, str]]:
    lines = Path(folder, "Dockerfile").read_text().splitlines()
    return [(step, rest) for step, _, rest in (line.partition(" ") for line in lines) if step != "#"]


@pytest.mark.parametrize(
    ("device", "torch", "index"),
    [("cpu", f"torch=={TORCH}+cpu", "https://download.pytorch.org/whl/cpu"), ("cuda", f"torch=={TORCH}", None)],
)
def test_torch_is_pinned_from_the_index_of_the_device(device: str, torch: str, index: str | None, make_mar: MakeMar):
    more = {"more.txt": "scipy ; python_version > '3'\n"}
    files = {"requirements.txt": "-r more.txt\nnumpy>=1 --hash=sha256:00 # why\n"} | more
    archive = make_mar(ECHO, files=files, requirementsFile="requirements.txt")
    done = exported(archive, "docker", device=device)
    lines = Path(done.folder, "requirements.txt").read_text().splitlines()
    assert lines[0] == torch
    assert set(lines[1:-1]) == {"numpy>=1", "scipy ; python_version > '3'"}
    assert lines[-1] == f"./{WHEEL}[serve]"
    text = Path(done.folder, "Dockerfile").read_text()
    assert (f"ARG TORCH_INDEX={index}" in text) == ("--extra-index-url" in text) == (index is not None)
    assert not Path(done.folder, "requirements.lock").exists()
    assert "requirements.lock" not in Path(done.folder, "README.md").read_text()
    assert "--require-hashes" not in text


def test_a_given_lock_is_unchanged_and_the_image_installs_nothing_else(make_mar: MakeMar, tmp_path: Path):
    lock = f"# mine\ntorch=={TORCH}+cpu --hash=sha256:{HASH} --hash=sha256:{HASH}\n"
    (tmp_path / "lock").write_text(lock)
    done = exported(make_mar(ECHO), "docker", lock=tmp_path / "lock")
    assert Path(done.folder, "requirements.lock").read_text() == lock
    assert "requirements.lock" in Path(done.folder, "README.md").read_text()
    installs = [rest for step, rest in steps(done.folder) if step == "RUN" and "pip" in rest]
    assert ["--require-hashes -r requirements.lock" in installs[0], "--no-deps" in installs[1]] == [True, True]
    assert len(installs) == 2
    assert "export-requirements-unhashed" not in {finding.code for finding in done.findings}


def test_the_image_has_this_python_and_the_server_is_not_root(make_mar: MakeMar):
    found = steps(exported(make_mar(ECHO), "docker").folder)
    assert found[0] == ("FROM", f"python:{sys.version_info.major}.{sys.version_info.minor}-slim")
    order = [step for step, _ in found]
    assert dict(found)["USER"] == "1000"
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert not {"RUN", "COPY"} & set(order[order.index("USER") :])
    assert "--healthy" in dict(found)["HEALTHCHECK"]


@pytest.mark.parametrize("to", ["docker", "kserve", "sagemaker"])
def test_every_copied_file_exists(to: str, make_mar: MakeMar):
    done = exported(make_mar(ECHO), to)
    assert [file.name for file in done.files if file.name.endswith(".mar")] == ["model/probe.mar"]
    folder = Path(done.folder, "" if to == "docker" else "image")
    copied = [name for step, rest in steps(str(folder)) if step == "COPY" for name in rest.split()[:-1]]
    assert copied
    assert all((folder / name).exists() for name in copied)
    assert ("model/" in copied) == (to == "docker")


Start = Callable[..., list[str]]
VARIABLES = ("MODEL_FOLDERS", "MODEL_NAME", "PORT", "SAGEMAKER_BIND_TO_PORT")


@pytest.fixture
def start(make_mar: MakeMar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts a container's entry and returns the command that it becomes."""
    folder = Path(exported(make_mar(ECHO), "docker", device="cuda").folder)

    def start(*words: str, **environment: str) -> list[str]:
        become: list[list[str]] = []
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("MODEL_FOLDERS", f"{tmp_path}/mnt:{tmp_path}/opt:{folder}/model")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(os, "execv", lambda _, command: become.append(command))
        monkeypatch.setattr(sys, "argv", ["entrypoint.py", *words])
        runpy.run_path(str(folder / "entrypoint.py"), run_name="__main__")
        return become[0][4:]

    return start


def test_the_entry_point_serves_the_archive_by_words_and_variables(start: Start, tmp_path: Path):
    ways: list[tuple[tuple[str, ...], dict[str, str], list[str], str]] = [
        ((), {}, [], ""),
        (("serve",), {}, [], ""),
        (("--model-name", "net"), {}, [], "net="),
        (("--model_name=net", "--envelope", "kserve"), {}, ["--envelope", "kserve"], "net="),
        ((), {"MODEL_NAME": "net"}, [], "net="),
        (("serve", "--workers", "2"), {}, ["--workers", "2"], ""),
        (("serve",), {"SAGEMAKER_BIND_TO_PORT": "9000"}, [], ""),
        (("serve",), {"PORT": "9001"}, [], ""),
        (("serve",), {"PORT": "9001", "SAGEMAKER_BIND_TO_PORT": "9000"}, [], ""),
        (("serve",), {"SAGEMAKER_BIND_TO_PORT": ""}, [], ""),
    ]
    for words, environment, further, name in ways:
        port = environment.get("SAGEMAKER_BIND_TO_PORT") or environment.get("PORT", "8080")
        fixed = ["--host", "0.0.0.0", "--port", port, "--no-page", "--device", "cuda"]
        assert start(*words, **environment) == [*fixed, *further, f"{name}{tmp_path}/docker/model/probe.mar"]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (["mnt/net.mar"], "mnt/net.mar"),
        (["opt/net.mar"], "opt/net.mar"),
        (["mnt/a.mar", "opt/b.mar"], "mnt/a.mar"),
        (["mnt/model-store/net.mar", "mnt/config/config.properties"], "mnt/model-store/net.mar"),
        (["opt/net.tar.gz", "opt/notes.txt"], "opt/net.tar.gz"),
        (["opt/MAR-INF/MANIFEST.json", "opt/other.mar"], "opt"),
        (["opt/net/MAR-INF/MANIFEST.json"], "opt/net"),
        (["opt/code/inference.py", "opt/model.pt"], "opt"),
        (["opt/net/code/inference.py"], "opt/net"),
    ],
)
def test_the_first_folder_with_an_archive_is_served(made: list[str], found: str, start: Start, tmp_path: Path):
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({}))
    assert start()[-1] == str(tmp_path / found)


def test_several_archives_or_none_and_an_unhealthy_server_are_errors(start: Start, tmp_path: Path):
    (tmp_path / "opt").mkdir()
    for name in ("a.mar", "b.mar"):
        (tmp_path / "opt" / name).write_text("")
    with pytest.raises(SystemExit, match=r"several archives: a\.mar, b\.mar"):
        start()
    with pytest.raises(SystemExit, match="no archive"):
        start(MODEL_FOLDERS=str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit) as end:
        start("--healthy", PORT="1")
    assert end.value.code == 1


def wheel_of(name: str, version: str, *requires: str) -> bytes:
    """Return a wheel without a module."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", "Provides-Extra: serve"]
    metadata = "\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires), ""])
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", wheel)
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Make a folder of wheels the only index of pip."""
    wheels = {"shop": wheel_of("shop", "1.0", "Till_Roll>=2"), "till_roll": wheel_of("till_roll", "2.5")}
    for name, data in wheels.items():
        (tmp_path / f"{name}-{'1.0' if name == 'shop' else '2.5'}-py3-none-any.whl").write_bytes(data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return wheels


OWN = ("marpack-0.1.0-py3-none-any.whl", wheel_of("marpack", "0.1.0", "till-roll; extra == 'serve'"))


@pytest.mark.skipif(sys.platform != "linux", reason="images are Linux")
def test_a_lock_pins_every_package_but_marpack_with_its_hash(index: dict[str, bytes], tmp_path: Path):
    lock = make_lock(("shop>=1",), OWN, None)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in index.items()}
    expected = f"shop==1.0 --hash=sha256:{hashes['shop']}\ntill-roll==2.5 --hash=sha256:{hashes['till_roll']}\n"
    assert lock == expected.encode()
    (tmp_path / "lock").write_bytes(lock)
    assert read_lock(tmp_path / "lock", ["Shop", "till_roll"]) == lock


def test_a_lock_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "linux")
    reasons = {
        "shop @ https://example.org/shop.tar.gz": "'shop @ https://example.org/shop.tar.gz' is an address",
        "git+https://example.org/shop": "is an address",
    }
    for line, reason in reasons.items():
        with pytest.raises(UnresolvedError, match=reason):
            make_lock((line,), OWN, None)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnresolvedError, match="Linux"):
        make_lock(("shop",), OWN, None)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name, data = wheel(None)
    path = tmp_path_factory.mktemp("wheel") / name
    path.write_bytes(data)
    return path


def test_the_wheel_has_code_types_templates_metadata_and_a_correct_record(file: Path):
    names = zipfile.ZipFile(file).namelist()
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*") if path.is_file()}
    assert {"marpack/py.typed", "marpack/__main__.py", "marpack/torchserve/server_modules.json"} <= set(names)
    assert {f"marpack/{name}" for name in templates} <= set(names)
    metadata = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert {f"marpack-{__version__}.dist-info/{name}" for name in metadata} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert len(names) == len(set(names))
    with zipfile.ZipFile(file) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert set(rows) == set(archive.namelist())
        for name, (digest, size) in rows.items():
            data = archive.read(name)
            expected = urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (("", "") if name == record else (f"sha256={expected}", str(len(data))))


def test_the_wheel_is_reproducible(file: Path):
    assert wheel(None) == wheel(file) == (file.name, file.read_bytes())


def test_there_is_no_wheel_without_an_installation_of_this_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with monkeypatch.context() as patch:
        patch.setattr(image, "__version__", "99.0")
        with pytest.raises(UsageError, match=r"marpack 99\.0, but the installed", check=has_facts("--wheel")):
            wheel(None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UsageError, check=has_code("not-installed", "--wheel")):
        wheel(None)
