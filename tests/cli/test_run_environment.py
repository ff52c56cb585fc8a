"""The archive's requirements, told before anything starts, or installed into an environment of their own."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from cli.running import marpack, results

HANDLER = "import quibble, sys\ndef handle(data, context):\n    return data and [f'{quibble.VERSION} {sys.prefix}']\n"


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    info = "quibble-1.5.dist-info"
    files = {
        "quibble.py": "VERSION = '1.5'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: quibble\nVersion: 1.5\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"quibble.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    with zipfile.ZipFile(wheels / "quibble-1.5-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    links = str(wheels)
    cache = str(tmp_path / "cache")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links, "UV_NO_INDEX": "1", "UV_FIND_LINKS": links,
            "MARPACK_CACHE_DIR": cache}  # fmt: skip


def test_unmet_requirements_are_told_before_the_model_fails_of_them(make_mar):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=1\n"}, requirementsFile="requirements.txt"))
    told = marpack("run", mar, "--data", "x", code=4).stderr
    assert told.index("quibble is not installed here") < told.index("ModuleNotFoundError")
    assert "--env isolated" in told


def test_unmet_requirements_are_in_the_json_too(make_mar):
    handler = "def handle(data, context):\n    return data and ['ok']\n"
    mar = str(make_mar(handler, files={"r.txt": "msgspec<0.1\n"}, requirementsFile="r.txt"))
    report = json.loads(marpack("run", mar, "--data", "x", "--json").stdout)
    assert [finding["code"] for finding in report["findings"]] == ["requirement-unmet"]


@pytest.mark.nightly
def test_an_isolated_environment_has_what_the_archive_asks_for(make_mar, offline: dict[str, str]):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=1\n"}, requirementsFile="requirements.txt"))
    told = marpack("run", mar, "--data", "x", "--env", "isolated", env=offline)
    assert "installing the archive's requirements" in told.stderr
    (item,) = results(mar, "--data", "x", "--env", "isolated", "--workers", "2", env=offline)
    assert item["body"].startswith("1.5 ")
    assert item["body"].removeprefix("1.5 ") != sys.prefix
    assert "installing" not in marpack("run", mar, "--data", "x", "--env", "isolated", env=offline).stderr


@pytest.mark.nightly
def test_what_cannot_be_installed_is_shown_with_the_installers_words(make_mar, offline: dict[str, str]):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=7\n"}, requirementsFile="requirements.txt"))
    told = marpack("run", mar, "--data", "x", "--env", "isolated", env=offline, code=4).stderr
    assert "quibble>=7" in told
    assert "cannot be installed" in told


def test_an_archive_without_requirements_needs_no_environment(make_mar, tmp_path: Path):
    mar = str(make_mar("def handle(data, context):\n    return data and ['ok']\n"))
    env = {"MARPACK_CACHE_DIR": str(tmp_path / "cache")}
    assert "no requirements" in marpack("run", mar, "--data", "x", "--env", "isolated", env=env).stderr
    assert not (tmp_path / "cache" / "environments").exists()


@pytest.mark.nightly
def test_a_check_runs_in_an_isolated_environment(make_mar, offline: dict[str, str]):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=1\n"}, requirementsFile="requirements.txt"))
    told = marpack("check", mar, "--data", "x", env=offline, code=1).stdout
    assert "quibble is not installed here" in told
    told = marpack("check", mar, "--data", "x", "--env", "isolated", env=offline).stdout
    assert "installed in an environment of their own" in told
    assert "may be deployed" in told
    none = str(make_mar(HANDLER, name="none", files={"r.txt": "quibble>=7\n"}, requirementsFile="r.txt"))
    told = marpack("check", none, "--data", "x", "--env", "isolated", env=offline, code=1).stdout
    assert "cannot be installed" in told
    compared = marpack("check", mar, "--against", mar, "--data", "x", "--env", "isolated", env=offline).stdout
    assert "answer alike" in compared
