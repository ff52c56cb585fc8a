"""The archive's requirements, told before anything starts, or installed into an environment of their own."""

import json
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.running import Terminal, marpack, results
from days import by_day
from wheelhouse import serve_index, write_wheel

from marpack import check as check_in_python
from marpack import run as run_in_python
from marpack.cli.main import main
from marpack.errors import UnconfirmedDownloadError
from marpack.runner.pip_sizes import Download

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
    assert told.index("(requirement-unmet)") < told.index("ModuleNotFoundError")
    assert "--env isolated" in told


def test_unmet_requirements_are_in_the_json_too(make_mar):
    handler = "def handle(data, context):\n    return data and ['ok']\n"
    mar = str(make_mar(handler, files={"r.txt": "msgspec<0.1\n"}, requirementsFile="r.txt"))
    report = json.loads(marpack("run", mar, "--data", "x", "--json").stdout)
    assert [finding["code"] for finding in report["findings"]] == ["requirement-unmet"]


@pytest.mark.slow
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


COMMANDS = {
    "run": ("run", "{mar}", "--data", "x"),
    "check": ("check", "{mar}", "--data", "x"),
    "across": ("check", "{mar}", "--data", "x", "--device", "cpu,auto"),
    "score": ("score", "{mar}", "--input", "{table}", "--text", "word", "--output", "{out}"),
}


@pytest.fixture
def large(make_mar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of whose requirements pip says that they have 600 MB; they are then installed without a download."""
    monkeypatch.setenv("MARPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("marpack.runner.environments._measure", lambda *_: Download(("big.whl",), 600_000_000))
    monkeypatch.setattr("marpack.runner.environments._run_pip", lambda *_: SimpleNamespace(returncode=0))
    handler = "def handle(data, context):\n    return data and ['ok' for _ in data]\n"
    mar: Path = make_mar(handler, files={"requirements.txt": "big\n"}, requirementsFile="requirements.txt")
    return mar


@pytest.fixture
def code_of(large: Path, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs a command in this process, with an isolated environment."""
    (tmp_path / "table.jsonl").write_text('{"word": "a"}\n')
    places = {"mar": large, "table": tmp_path / "table.jsonl", "out": tmp_path / "out"}

    def run(name: str, *more: str) -> int:
        words = [word.format(**places) for word in COMMANDS[name]]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--env", "isolated", *more])
        return int(ended.value.code or 0)

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_large_download_without_a_terminal_needs_a_yes(
    code_of: Callable[..., int], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert code_of(name) == 2
    told = capsys.readouterr()
    assert "600.0 MB" in told.err
    assert "--yes" in told.err
    assert told.out == "" or name == "check"  # which has told of other checks by then
    assert not list((tmp_path / "cache" / "environments").glob("*/bin"))


@pytest.mark.parametrize("name", by_day(COMMANDS, "run"))
def test_a_yes_confirms_it_once(code_of: Callable[..., int], name: str):
    assert code_of(name, "--yes") in (0, 1)  # where a check has other doubts
    if name != "score":  # whose output is there now
        assert code_of(name) in (0, 1)


def test_python_needs_a_yes_too(large: Path):
    for call in (run_in_python, check_in_python):
        with pytest.raises(UnconfirmedDownloadError):
            call(large, inputs=["x"], env="isolated")
    (answer,) = run_in_python(large, ["x"], env="isolated", yes=True).results
    assert answer.status == 200


@pytest.mark.parametrize("answer", by_day(["n", "Ctrl-C"], "Ctrl-C"))
@pytest.mark.parametrize("command", by_day(["run", "check"], "run"))
def test_a_question_on_a_terminal_may_be_declined(
    make_mar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, answer: str
):
    wheels, cache = tmp_path / "wheels", tmp_path / "cache"
    wheels.mkdir()
    write_wheel(wheels, "quibble-1.5-py3-none-any.whl", {"quibble.py": b""})
    mar = str(make_mar(HANDLER, files={"requirements.txt": "quibble\n"}, requirementsFile="requirements.txt"))
    with serve_index(wheels, 600_000_000) as index:
        for name, value in (index.environ | {"MARPACK_CACHE_DIR": str(cache)}).items():
            monkeypatch.setenv(name, value)
        with Terminal(command, mar, "--data", "x", "--env", "isolated") as terminal:
            terminal.wait_for(r"600\.0 MB\? \[y/N\] ")
            if answer == "Ctrl-C":
                terminal.process.send_signal(signal.SIGINT)
            else:
                terminal.type("n\n")
            assert terminal.end() == (130 if answer == "Ctrl-C" else 2)
    assert index.fetched == []
    assert not list((cache / "environments").glob("*/bin"))
