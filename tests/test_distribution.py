"""The wheel and the editable install: both find the templates, both run `marpack`, types included."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_templates_are_found_from_the_checkout():
    from marpack.render.templates import folder

    assert folder().name == "templates"
    assert any(folder().rglob("*.j2"))


@pytest.mark.slow
def test_the_wheel_holds_code_types_and_templates(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert "marpack/py.typed" in names
    templates = {f"marpack/templates/{path.relative_to(ROOT / 'templates')}" for path in files(ROOT / "templates")}
    assert templates
    assert templates <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "examples/", "templates/"))]


@pytest.mark.slow
def test_a_wheel_in_a_new_venv_runs_and_finds_its_templates(wheel: Path, tmp_path: Path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    # What the wheel depends on is at hand already: only the wheel itself is new.
    site = next(path for path in map(Path, sys.path) if (path / "msgspec").exists())
    target = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", target, str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    code = (
        f"import sys; sys.path.append({str(site)!r})\n"
        "import marpack, pathlib\n"
        f"assert pathlib.Path(marpack.__file__).is_relative_to({target!r}), marpack.__file__\n"
        "from marpack.render.templates import folder\n"
        f"assert folder().is_relative_to({target!r}) and any(folder().rglob('*.j2'))\n"
        "from marpack.cli.main import main\nmain(['--version'])\n"
    )
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "marpack, version" in done.stdout


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
