"""What `marpack --help` and `--version` tell, and what they import for it."""

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest
from invoking import invoke

import marpack
from marpack.cli.main import COMMANDS, GROUPS, main


def test_version_tells_what_an_answer_depends_on_without_importing_it():
    code = "import sys; from marpack.cli.main import main\ntry: main(['--version'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *versions, loaded = done.stdout.splitlines()
    assert versions == [
        f"marpack {marpack.__version__}",
        f"Python {platform.python_version()}",
        f"torch {version('torch')}",
        f"onnxruntime {version('onnxruntime')}",
    ]
    assert not set(loaded.split()) & {"torch", "onnxruntime", "numpy"}


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def gone(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", gone)  # an environment without torch
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.search("^torch .*not installed$", capsys.readouterr().out, re.MULTILINE)


def test_help_groups_every_command_by_what_one_does_with_it():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    shown = invoke("--help").stdout
    places = [shown.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    for name, (_, text) in COMMANDS.items():
        assert f"\n  {name.ljust(max(map(len, COMMANDS)))}  {text}\n" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_opens_with_examples_and_fits_a_terminal(command: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke(command, "--help")
    whole = invoke(command, "--help-all") if "--help-all" in done.stdout else done
    head = done.stdout.partition("Options:")[0]
    assert head.count(f"marpack {command}") >= 3  # usage and two examples
    assert "\\b" not in head
    assert max(map(len, whole.stdout.splitlines())) <= 80


def test_help_imports_hardly_more_than_its_library():
    code = "import sys, click; before = set(sys.modules); from marpack.cli.main import main\n"
    code += "try: main(['--help'])\nfinally: print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "marpack" in names
    assert not {name for name in names if name not in sys.stdlib_module_names} - {"marpack", "click"}


@pytest.mark.parametrize(
    ("command", "rare"), [("run", "pdb"), ("check", "patience"), ("score", "actors"), ("serve", "drain")]
)
def test_help_has_the_daily_options_and_help_all_the_others(command: str, rare: str):
    general = {"--quiet", "--verbose", "--help", "--help-all"}
    brief, whole = (
        set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", invoke(command, word).stdout, re.MULTILINE))
        for word in ("--help", "--help-all")
    )
    assert 10 <= len(brief - general) <= 14
    assert general <= brief < whole
    assert (f"--{rare}" in brief, f"--{rare}" in whole) == (False, True)
    assert "--start" not in whole  # it has no effect


def test_the_help_of_a_command_with_few_options_is_whole():
    assert "--help-all" not in invoke("build", "--help").stdout


def test_help_and_errors_link_to_the_docs_once_there_is_a_site(monkeypatch: pytest.MonkeyPatch):
    calls = {("build", "--help"): 0, ("--help",): 0, ("inspect", "nowhere"): 2}
    assert all("ocs:" not in "".join(_printed(*words, code=code)) for words, code in calls.items())
    monkeypatch.setattr("marpack.version.DOCS_URL", "https://docs.example/")
    last = [_printed(*words, code=code)[-1].split() for words, code in calls.items()]
    assert last == [
        ["Docs:", "https://docs.example/reference/commands/#marpack-build"],
        ["Docs:", "https://docs.example/reference/commands/"],
        ["docs:", "https://docs.example/errors/#usage"],
    ]


def _printed(*words: str, code: int) -> list[str]:
    done = invoke(*words, code=code)
    return (done.stdout + done.stderr).splitlines()
