"""The wheel, the sdist and the editable install: all find the templates, all run `marpack`, types included."""

import email
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import marpack

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("--wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("--sdist", tmp_path_factory.mktemp("sdist"))


def built(form: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--no-isolation", form, "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.iterdir())


@pytest.mark.peer
def test_the_wheel_holds_code_types_and_templates(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert "marpack/py.typed" in names
    templates = {f"marpack/templates/{path.relative_to(ROOT / 'templates')}" for path in files(ROOT / "templates")}
    assert templates
    assert templates <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "examples/", "templates/"))]


@pytest.mark.slow
def test_the_sdist_holds_what_building_and_reading_need(sdist: Path):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    templates = {path.relative_to(ROOT).as_posix() for path in files(ROOT / "templates")}
    assert templates | {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "marpack/py.typed"} <= names
    assert "examples/digits/samples/seven.png" in names  # the tutorial begins with them
    assert not [name for name in names if name.startswith(("tests/", "docs/", ".github/")) or name.endswith(".mar")]


@pytest.mark.parametrize(
    "form", [pytest.param("wheel", marks=pytest.mark.peer), pytest.param("sdist", marks=pytest.mark.slow)]
)
def test_it_installs_into_a_new_venv_and_works_there(form: str, request: pytest.FixtureRequest, tmp_path: Path):
    file: Path = request.getfixturevalue(form)
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    # What it depends on is at hand already: only the file itself is new.
    site = next(path for path in map(Path, sys.path) if (path / "msgspec").exists())
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    how = ["--no-deps", "--no-index", "--no-build-isolation", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *how, str(file)], check=True, capture_output=True)
    code = (
        f"import sys; sys.path.append({str(site)!r})\n"
        "import marpack, pathlib\n"
        f"assert pathlib.Path(marpack.__file__).is_relative_to({target!r}), marpack.__file__\n"
        "from marpack.project.scaffold.template import templates as folder\n"
        f"assert folder().is_relative_to({target!r}) and any(folder().rglob('*.j2'))\n"
        "from marpack.cli.main import main\nmain(sys.argv[1:])\n"
    )
    for arguments, said in ((["--version"], "marpack "), (["init", "shop"], "wrote"), (["build", "shop"], "built")):
        done = subprocess.run([python, "-I", "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


@pytest.mark.peer
def test_the_metadata_is_complete_and_the_index_would_take_it(wheel: Path):
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    for field in ("Name", "Version", "Summary", "License-Expression", "License-File", "Keywords", "Requires-Python"):
        assert metadata[field], field
    assert metadata["Version"] == marpack.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"docs", "dev", "explain", "onnx"} <= set(metadata.get_all("Provides-Extra"))
    assert "Typing :: Typed" in metadata.get_all("Classifier")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
