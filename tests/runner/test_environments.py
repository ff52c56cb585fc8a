"""Real environments, made by the real pip from wheels on this disk."""

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from marpack.runner.environments import IsolationError, isolated


def make_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "quibble", "1.5", "msgspec", "torch>=2")
    # Without uv, whichever machine this is: its own test is below.
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, "uv").exists())
    return {
        **os.environ,
        "PATH": path,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CACHE_DIR": str(tmp_path),
    }


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "model" / "requirements.txt"
    path.parent.mkdir()
    path.write_text("quibble>=1\n")
    return path


def asked(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_requirements_are_installed_once_and_torch_is_borrowed(tmp_path: Path, requirements: Path, environ):
    started: list[bool] = []
    made = isolated(requirements, root=tmp_path / "envs", environ=environ, on_start=lambda: started.append(True))
    assert made.seconds is not None
    assert asked(made.python, "import quibble; print(quibble.VERSION)") == "1.5"
    where = "import importlib.util as u; print(u.find_spec('{}').origin)"
    for borrowed in ("msgspec", "torch", "marpack.worker"):
        assert asked(made.python, where.format(borrowed)) == asked(sys.executable, where.format(borrowed))
    again = isolated(requirements, root=tmp_path / "envs", environ=environ, on_start=lambda: started.append(True))
    assert (again.python, again.seconds, len(started)) == (made.python, None, 1)
    with pytest.raises(subprocess.CalledProcessError):
        asked(sys.executable, "import quibble")  # nothing was installed here


@pytest.mark.nightly
def test_a_requirement_that_cannot_be_met_shows_what_pip_said(tmp_path: Path, requirements: Path, environ):
    requirements.write_text("quibble>=7\n")
    for _ in range(2):  # the second time, nothing half-made stands in the way
        with pytest.raises(IsolationError) as caught:
            isolated(requirements, root=tmp_path / "envs", environ=environ)
        assert "quibble>=7" in caught.value.output
        assert caught.value.exit_code == 4
    assert [path.suffix for path in (tmp_path / "envs").iterdir()] == [".lock"]


@pytest.mark.nightly
def test_an_environment_that_was_not_finished_is_made_anew(tmp_path: Path, requirements: Path, environ):
    made = isolated(requirements, root=tmp_path / "envs", environ=environ)
    (tmp_path / "envs" / made.key / "made.json").unlink()
    assert isolated(requirements, root=tmp_path / "envs", environ=environ).seconds is not None


def test_uv_is_told_to_leave_out_what_is_borrowed(tmp_path: Path, requirements: Path, environ, monkeypatch):
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(
        f'#!{sys.executable}\nimport sys\nopen({str(tmp_path / "said")!r}, "w").write(" ".join(sys.argv[1:]))\n'
    )
    uv.chmod(0o755)
    environ["PATH"] = f"{uv.parent}{os.pathsep}{environ['PATH']}"
    requirements.write_text("quibble\ntorch>=2\nmarpack==99\n")
    moments = iter([10.0, 12.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    made = isolated(requirements, root=tmp_path / "envs", environ=environ)
    assert made.seconds == 2.5
    said = (tmp_path / "said").read_text().split()
    assert said[:4] == ["pip", "install", "--python", made.python]
    overrides = Path(said[said.index("--overrides") + 1]).read_text()
    assert overrides == "torch; python_version < '0'\n"  # marpack, as asked for, is another
