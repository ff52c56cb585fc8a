"""The archive's requirements, told before anything starts, or installed into an environment of their own."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.running import marpack, results
from wheelhouse import write_wheel

from marpack.cli.main import main

HANDLER = "import quibble, sys\ndef handle(data, context):\n    return data and [f'{quibble.VERSION} {sys.prefix}']\n"


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "quibble-1.5-py3-none-any.whl", {"quibble.py": b"VERSION = '1.5'\n"})
    links = str(wheels)
    cache = str(tmp_path / "cache")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links, "MARPACK_CACHE_DIR": cache}


def test_unmet_requirements_are_told_before_the_model_fails_of_them(make_mar):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=1\n"}, requirementsFile="requirements.txt"))
    told = marpack("run", mar, "--data", "x", code=4).stderr
    assert told.index("(requirement-unmet)") < told.index("ModuleNotFoundError")
    assert "--env isolated" in told


def test_unmet_requirements_are_in_the_json_too(make_mar):
    handler = "def handle(data, context):\n    return data and ['ok']\n"
    mar = str(make_mar(handler, files={"r.txt": "msgspec<0.1\n"}, requirementsFile="r.txt"))
    report = json.loads(marpack("run", mar, "--data", "x", "--json").stdout)
    assert [finding["code"] for finding in report["findings"]] == ["requirement-unmet"]


@pytest.mark.peer
def test_an_isolated_environment_has_what_the_archive_asks_for(make_mar, offline: dict[str, str]):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=1\n"}, requirementsFile="requirements.txt"))
    told = marpack("run", mar, "--data", "x", "--env", "isolated", env=offline)
    assert "installing" in told.stderr
    (item,) = results(mar, "--data", "x", "--env", "isolated", "--workers", "2", env=offline)
    assert item["body"].startswith("1.5 ")
    assert item["body"].removeprefix("1.5 ") != sys.prefix
    assert "installing" not in marpack("run", mar, "--data", "x", "--env", "isolated", env=offline).stderr


@pytest.mark.slow
def test_requirements_of_sagemaker_s_layout_are_installed_only_when_isolated(tmp_path: Path, offline: dict[str, str]):
    (tmp_path / "model/code").mkdir(parents=True)
    script = "import quibble\ndef model_fn(folder): return 1\ndef transform_fn(a, b, c, d): return quibble.VERSION\n"
    (tmp_path / "model/code/inference.py").write_text(script)
    (tmp_path / "model/code/requirements.txt").write_text("-r more.txt\n")
    (tmp_path / "model/code/more.txt").write_text("quibble>=1\n")
    model = str(tmp_path / "model")
    refused = marpack("run", model, "--data", "x", env=offline, code=4).stderr
    assert "(requirement-unmet)" in refused
    assert "installing" not in refused
    (item,) = results(model, "--data", "x", "--env", "isolated", env=offline)
    assert item["body"] == "1.5"


@pytest.mark.slow
def test_what_cannot_be_installed_is_shown_with_the_installers_words(make_mar, offline: dict[str, str]):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=7\n"}, requirementsFile="requirements.txt"))
    told = marpack("run", mar, "--data", "x", "--env", "isolated", env=offline, code=4).stderr
    assert "quibble>=7" in told


def test_an_archive_without_requirements_needs_no_environment(make_mar, tmp_path: Path):
    mar = str(make_mar("def handle(data, context):\n    return data and ['ok']\n"))
    env = {"MARPACK_CACHE_DIR": str(tmp_path / "cache")}
    assert "no requirements" in marpack("run", mar, "--data", "x", "--env", "isolated", env=env).stderr
    assert not (tmp_path / "cache" / "environments").exists()


@pytest.mark.slow
def test_a_check_runs_in_an_isolated_environment(make_mar, offline: dict[str, str]):
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble>=1\n"}, requirementsFile="requirements.txt"))
    told = marpack("check", mar, "--data", "x", env=offline, code=1).stdout
    assert "quibble" in told
    told = marpack("check", mar, "--data", "x", "--env", "isolated", env=offline).stdout
    assert "✓ requirements" in told
    none = str(make_mar(HANDLER, name="none", files={"r.txt": "quibble>=7\n"}, requirementsFile="r.txt"))
    told = marpack("check", none, "--data", "x", "--env", "isolated", env=offline, code=1).stdout
    assert "✗ requirements" in told
    alone = "--against", mar, "--only", "alike"
    assert "✓ alike" in marpack("check", mar, *alone, "--data", "x", "--env", "isolated", env=offline).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{mar}", "--data", "x", "--yes"),
        pytest.param(("check", "{mar}", "--data", "x"), marks=pytest.mark.slow),
        pytest.param(
            ("score", "{mar}", "--input", "{table}", "--text", "word", "--output", "{out}"), marks=pytest.mark.slow
        ),
    ],
    ids=lambda words: words[0],
)
def test_each_command_names_what_it_installs_and_does_not_ask(make_mar, tmp_path, monkeypatch, capsys, words):
    installed: list[str] = []

    def run_pip(*_: object) -> SimpleNamespace:
        installed.append(capsys.readouterr().err)
        return SimpleNamespace(returncode=0)

    monkeypatch.setenv("MARPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("marpack.runner.environments._run_pip", run_pip)
    handler = "def handle(data, context):\n    return data and ['ok' for _ in data]\n"
    mar = make_mar(handler, files={"requirements.txt": "big\n"}, requirementsFile="requirements.txt")
    (tmp_path / "table.jsonl").write_text('{"word": "a"}\n')
    places = {"mar": mar, "table": tmp_path / "table.jsonl", "out": tmp_path / "out"}
    with pytest.raises(SystemExit) as ended:
        main([*[word.format(**places) for word in words], "--env", "isolated"])
    assert ended.value.code in (0, 1)  # a check has other doubts
    (told,) = installed
    assert "installing the archive's requirements: big" in told
