"""Real environments, made by the real pip from wheels on this disk, or from an index on this machine."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from days import by_day
from packaging.requirements import Requirement
from wheelhouse import serve_index, write_wheel

import marpack
from marpack.runner.environments import Environment, IsolationError, isolated, shared_constraints
from marpack.runner.pip_sizes import Download

QUIBBLE = "quibble-1.5-py3-none-any.whl"
SIZES = {"large": 600_000_000, "unknown": None}  # that an index states
TORCH = metadata.version("torch")


class Refused(Exception):
    """What a user who does not confirm comes to."""


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
    """Lend environments only what the dry run needs: pip reads the metadata of all that is installed."""
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
    defaults: dict[str, Any] = {"approve": lambda _: None, "content": lambda: "digest"}
    return isolated(requirements, root=root_of(requirements), environ=environ, **(defaults | options))


def root_of(requirements: Path) -> Path:
    return requirements.parents[1] / "envs"


def left_behind(requirements: Path) -> list[str]:
    return sorted(path.suffix for path in root_of(requirements).glob("*"))


def refuse(download: Download) -> None:
    raise Refused(download)


def refused(requirements: Path, environ: Mapping[str, str]) -> Download:
    """Return the download that has to be confirmed, and refuse it."""
    with pytest.raises(Refused) as caught:
        made(requirements, environ, approve=refuse)
    return caught.value.args[0]


def asked(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.mark.slow
def test_requirements_are_installed_once_and_torch_is_borrowed(requirements: Path, environ: dict[str, str]):
    # Modules of the archive are none of pip's.
    (requirements.parent / "json.py").write_text("raise SystemExit(3)\n")
    download: list[Download] = []
    first = made(requirements, environ, approve=download.append)
    assert first.seconds is not None
    assert download == [Download((QUIBBLE,), 0)]
    assert asked(first.python, "import quibble; print(quibble.VERSION)") == "1.5"
    where = (
        "import importlib.util as u; print(*(u.find_spec(n).origin for n in ('msgspec', 'torch', 'marpack.worker')))"
    )
    assert asked(first.python, where) == asked(sys.executable, where)
    again = made(requirements, environ, approve=refuse, on_start=lambda: pytest.fail("it is there already"))
    assert (again.python, again.seconds) == (first.python, None)
    with pytest.raises(subprocess.CalledProcessError):
        asked(sys.executable, "import quibble")  # nothing was installed here
    (root_of(requirements) / first.key / "made.json").unlink()  # as if it was not finished
    assert made(requirements, environ).seconds is not None


@pytest.mark.usefixtures("small_site")
def test_what_is_installed_already_is_neither_downloaded_nor_asked_about(requirements: Path, environ: dict[str, str]):
    requirements.write_text(f"torch=={TORCH.partition('+')[0]}\nnumpy\nclick>=8\n")
    assert made(requirements, environ, approve=refuse).seconds is not None


@pytest.mark.usefixtures("small_site")
@pytest.mark.parametrize("size", by_day(SIZES, "large"))
@pytest.mark.parametrize("with_metadata", [True, False])
def test_the_index_is_asked_for_sizes_and_nothing_is_downloaded_without_a_yes(
    requirements, environ, wheels, size, with_metadata
):
    stated = SIZES[size]
    with serve_index(wheels, stated, with_metadata=with_metadata) as index:
        download = refused(requirements, environ | index.environ)
    assert index.fetched == []  # nor to learn what a large wheel requires
    if with_metadata:
        assert (download.files, download.size, bool(download.reason)) == ((QUIBBLE,), stated, stated is None)
    assert left_behind(requirements) == [".lock"]


@pytest.mark.slow
def test_what_is_confirmed_is_downloaded(requirements: Path, environ: dict[str, str], wheels: Path):
    size = (wheels / QUIBBLE).stat().st_size
    download: list[Download] = []
    with serve_index(wheels, size) as index:
        python = made(requirements, environ | index.environ, approve=download.append).python
    assert (download, index.fetched) == ([Download((QUIBBLE,), size)], [QUIBBLE])
    assert asked(python, "import quibble; print(quibble.VERSION)") == "1.5"


@pytest.mark.usefixtures("small_site")
@pytest.mark.parametrize("line", by_day(["./source", "-e ./source", "source @ file://{folder}/source"], "./source"))
def test_what_has_to_be_built_is_of_unknown_size_and_not_built_to_learn_it(requirements, environ, line):
    source = requirements.parent / "source"
    source.mkdir()
    (source / "setup.py").write_text("open('../ran', 'w')\n")
    requirements.write_text(line.format(folder=requirements.parent) + "\n")
    download = refused(requirements, environ)
    assert (download.size, "source" in download.reason) == (None, True)
    assert not (requirements.parent / "ran").exists()


@pytest.mark.usefixtures("small_site")
def test_a_requirement_of_another_torch_is_a_conflict_that_names_both(requirements, environ, wheels):
    write_wheel(wheels, "visions-1.0-py3-none-any.whl", {"visions.py": b""}, "Requires-Dist: torch==99.1")
    write_wheel(wheels, "torch-99.1-py3-none-any.whl", {"torch.py": b""})
    requirements.write_text("visions\n")
    with pytest.raises(IsolationError) as caught:
        made(requirements, environ, approve=refuse)
    assert "visions 1.0 depends on torch==99.1" in caught.value.what
    assert f"torch {TORCH} is installed" in caught.value.what
    assert caught.value.hint
    assert caught.value.exit_code == 4
    assert left_behind(requirements) == [".lock"]


def test_a_requirement_that_names_another_version_of_a_shared_package_is_told_by_its_line(requirements, environ):
    requirements.write_text("-r more.txt\nquibble\nnumpy<1 ; python_version < '3'\n")
    (requirements.parent / "more.txt").write_text("# ours\nPillow<1\ntorch==1.0\n")
    with pytest.raises(IsolationError) as caught:
        made(requirements, environ, approve=refuse)
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


def test_everything_that_an_environment_depends_on_makes_another(requirements, environ, tmp_path, monkeypatch):
    monkeypatch.setattr("marpack.runner.environments._measure", lambda *_: Download((), 0))
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
    (tmp_path / "pip.conf").write_text("[global]\n")
    key(PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text("[global]\npre = yes\n")
    key(PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    requirements.write_text("-c more.txt\n")
    key()
    more.write_text("click<99\n")  # of which the archive's digest tells
    key()
    monkeypatch.setattr("marpack.runner.environments.shared_constraints", lambda: ["torch==2.9"])
    key()
    assert keys[0] == keys[1]
    assert len(set(keys[1:])) == len(keys[1:])


@pytest.mark.usefixtures("small_site")
def test_an_unknown_pip_is_not_trusted_with_a_dry_run(requirements: Path, environ: dict[str, str], tmp_path: Path):
    other = tmp_path / "other" / "pip" / "_internal"
    for name, text in {"../__init__.py": "", "__init__.py": "", "cli/__init__.py": "", "operations/__init__.py": "",
                       "cli/main.py": "def main(_): open('ran', 'w')\n",
                       "operations/prepare.py": "class RequirementPreparer: pass\n"}.items():  # fmt: skip
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(text)
    download = refused(requirements, environ | {"PYTHONPATH": str(tmp_path / "other")})
    assert (download.size, bool(download.reason)) == (None, True)
    assert not (requirements.parent / "ran").exists()
