"""Real environments, made by the real pip from wheels on this disk."""

import os
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import msgspec
import pytest
from packaging.requirements import Requirement
from wheelhouse import write_wheel

import marpack
from marpack.runner.environments import Environment, IsolationError, isolated, shared_constraints

QUIBBLE = "quibble-1.5-py3-none-any.whl"
TORCH = metadata.version("torch")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    files = {"quibble.py": b"VERSION = '1.5'\n"}
    write_wheel(folder, QUIBBLE, files, "Requires-Dist: msgspec", "Requires-Dist: torch>=2")
    return folder


@pytest.fixture
def environ(tmp_path: Path, wheels: Path) -> dict[str, str]:
    settings = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": str(wheels)}
    return {**os.environ, **settings, "PIP_CACHE_DIR": str(tmp_path)}


@pytest.fixture
def small_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lend environments only what pip needs: it reads the metadata of all that is installed."""
    site = tmp_path / "site"
    site.mkdir()
    for name in ("pip", "msgspec", "numpy", "click"):
        (info,) = {file.locate() for file in metadata.files(name) or () if file.name == "METADATA"}
        for path in (Path(info).parent, Path(info).parents[1] / name):
            (site / path.name).symlink_to(path)
    (site / "marpack").symlink_to(Path(marpack.__file__).parent)
    (site / f"torch-{TORCH}.dist-info").mkdir()
    (site / f"torch-{TORCH}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}\n")
    monkeypatch.setattr("marpack.runner.environments._borrowed", lambda: [str(site)])


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "model" / "requirements.txt"
    path.parent.mkdir()
    path.write_text("quibble>=1\n")
    return path


def made(requirements: Path, environ: Mapping[str, str], **options: Any) -> Environment:
    options = {"content": lambda: "digest", **options}
    return isolated(requirements, root=root_of(requirements), environ=environ, **options)


def root_of(requirements: Path) -> Path:
    return requirements.parents[1] / "envs"


def left_behind(requirements: Path) -> list[str]:
    return sorted(path.suffix for path in root_of(requirements).glob("*"))


def asked(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.mark.usefixtures("small_site")
def test_requirements_are_installed_once_and_named_before(requirements: Path, environ: dict[str, str], monkeypatch):
    requirements.write_text(f"torch=={TORCH.partition('+')[0]}\nclick>=8\n-r more.txt\n")
    (requirements.parent / "more.txt").write_text("quibble>=1\n")
    # Modules of the archive are none of pip's.
    (requirements.parent / "json.py").write_text("raise SystemExit(3)\n")
    named: list[list[str]] = []
    first = made(requirements, environ, on_start=lambda lines: named.append([*lines, *left_behind(requirements)]))
    assert first.seconds is not None
    assert named == [[f"torch=={TORCH.partition('+')[0]}", "click>=8", "quibble>=1", ".lock"]]
    where = "import importlib.util as u; print(*(u.find_spec(n).origin for n in ('msgspec', 'click', 'quibble')))"
    *installed, quibble = asked(first.python, where).split()
    assert [Path(each).resolve() for each in installed] == [Path(msgspec.__file__), Path(click.__file__)]
    assert Path(quibble).is_relative_to(root_of(requirements))
    again = made(requirements, environ, on_start=named.append)
    assert (again.python, again.seconds, len(named)) == (first.python, None, 1)
    (root_of(requirements) / first.key / "made.json").unlink()  # as if it was not finished
    monkeypatch.setattr("marpack.runner.environments._run_pip", lambda *_: SimpleNamespace(returncode=0))
    assert made(requirements, environ).seconds is not None


@pytest.mark.usefixtures("small_site")
def test_a_requirement_of_a_requirement_cannot_replace_torch(requirements, environ, wheels):
    write_wheel(wheels, "visions-1.0-py3-none-any.whl", {"visions.py": b""}, "Requires-Dist: torch==99.1")
    write_wheel(wheels, "torch-99.1-py3-none-any.whl", {"torch.py": b""})
    requirements.write_text("visions\n")
    with pytest.raises(IsolationError) as caught:
        made(requirements, environ)
    assert "visions 1.0 depends on torch==99.1" in caught.value.output
    assert f"torch=={TORCH}" in caught.value.output
    assert caught.value.hint
    assert caught.value.exit_code == 4
    assert left_behind(requirements) == [".lock"]


def test_a_requirement_that_names_another_version_of_a_shared_package_is_told_by_its_line(requirements, environ):
    requirements.write_text("-r more.txt\nquibble\nnumpy<1 ; python_version < '3'\n")
    (requirements.parent / "more.txt").write_text("# ours\nPillow<1\ntorch==1.0\n")
    with pytest.raises(IsolationError) as caught:
        made(requirements, environ)
    assert caught.value.where == "more.txt:2"
    assert metadata.version("pillow") in caught.value.what
    assert "(and 1 more)" in caught.value.what


def test_versions_of_shared_packages_stay_with_their_local_label(monkeypatch: pytest.MonkeyPatch):
    lines = list(shared_constraints())
    assert f"torch=={TORCH}" in lines
    pinned = {name for name, equals, _ in (line.partition("==") for line in lines) if equals}
    assert {"torch", "numpy", "pillow", "onnxruntime", "psutil", "msgspec", "pyyaml", "marpack"} <= pinned
    (sympy,) = [Requirement(line) for line in lines if line.startswith("sympy")]  # torch's own requirement
    assert metadata.version("sympy") in sympy.specifier
    installed = metadata.distribution

    class Labelled:
        version, requires = "2.9.1+cu130", None

    monkeypatch.setattr(metadata, "distribution", lambda name: Labelled if name == "torch" else installed(name))
    assert "torch==2.9.1+cu130" in set(shared_constraints())


def test_everything_that_an_environment_depends_on_makes_another(requirements, environ, monkeypatch):
    monkeypatch.setattr("marpack.runner.environments._run_pip", lambda *_: SimpleNamespace(returncode=0))
    monkeypatch.setattr("marpack.runner.environments._make", lambda folder: folder.mkdir())
    more, keys = requirements.parent / "more.txt", []

    def key(**changed: str) -> None:
        keys.append(made(requirements, environ | changed, content=more.read_text).key)

    more.write_text("numpy\n")
    requirements.write_text("-r more.txt\n")
    key()
    key(HOME=environ.get("HOME", "/"))  # which is nothing to pip
    more.write_text("click\n")
    key()
    key(PIP_INDEX_URL="https://example.invalid/simple")
    requirements.write_text("-c more.txt\n")
    key()
    more.write_text("click<99\n")  # of which the archive's digest tells
    key()
    monkeypatch.setattr("marpack.runner.environments.shared_constraints", lambda: ["torch==2.9"])
    key()
    assert keys[0] == keys[1]
    assert len(set(keys[1:])) == len(keys[1:])
