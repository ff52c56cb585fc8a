"""What --quiet leaves out, and what --verbose adds; spellings that are the same for all commands."""

from pathlib import Path

import pytest
from invoking import Invoked, invoke

from marpack.cli.main import COMMANDS

PROJECT = 'name: shout\nversion: "1.0"\nhandler: handler.py\n'
HANDLER = "def handle(data, context):\n    return [row['body'] for row in data or ()]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "marpack.yaml").write_text(PROJECT)
    (tmp_path / "handler.py").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: str, code: int = 0) -> Invoked:
    return invoke(*words.split(), code=code)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_quiet_and_verbose(command: str):
    shown = run(f"{command} --help").stdout
    assert "-q, --quiet" in shown
    assert ("-v, --verbose" in shown) == (command != "build")
    has_result = command not in {"serve", "completion"}
    assert (" --json" in shown.partition(":\n  -")[2]) == has_result


@pytest.mark.usefixtures("project")
def test_quiet_prints_results_and_errors_only():
    assert run("build -q").stderr == ""
    shown = run("run -q --data sea")
    assert ("sea" in shown.stdout, shown.stderr) == (True, "")
    assert run("run --data sea").stderr != ""
    error = run("run nowhere -q", 2).stderr
    assert "hint:" not in run("build --forse -q", 2).stderr
    assert ("error:" in error, "hint:" in error) == (True, False)
    assert "hint:" in run("run nowhere", 2).stderr


@pytest.mark.usefixtures("project")
def test_the_last_of_quiet_and_verbose_counts():
    assert "hint:" not in run("inspect nowhere --verbose -q", 2).stderr
    assert "hint:" in run("inspect nowhere -q -v", 2).stderr


@pytest.mark.usefixtures("project")
def test_verbose_shows_the_stages_of_loading():
    brief, whole = (run(f"run --data sea {word}").stderr for word in ("", "-v"))
    assert whole.count(" s") > brief.count(" s") > 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("option", ["-o", "--output", "-d", "--directory"])
def test_an_archive_is_unpacked_into_a_folder_by_old_and_new_spellings(option: str):
    run("build")
    run(f"unpack shout.mar {option} new")
    assert Path("new/handler.py").is_file()
    assert "--directory" not in run("unpack --help").stdout
