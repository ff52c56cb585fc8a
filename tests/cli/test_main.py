import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from command import command
from invoking import Invoked, invoke

from marpack.cli import main as cli
from marpack.render.console import STDERR
from marpack.render.failure import Failure


def run(*args: str, cwd: Path | None = None) -> Invoked:
    return invoke(*args, cwd=cwd, code=None)


def test_a_misspelt_command_is_guessed():
    done = run("biuld")
    assert (done.returncode, "build?" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "where", "hint"),
    [
        ("build --forse", None, "--force?"),
        ("serve --strt", None, "marpack serve --help"),  # --start is hidden
        ("run --timeout soon", "--timeout", "marpack run --help"),
        ("export --to mainframe", "--to", "marpack export --help"),
        ("export", None, "marpack export --help"),
        ("diff one", None, "marpack diff --help"),
    ],
)
def test_clicks_usage_errors_look_like_ours(words: str, where: str | None, hint: str):
    done = run(*words.split())
    assert (done.returncode, done.cause) == (2, "usage")
    assert done.error is not None
    assert done.error.where == where
    assert str(done.error.hint).endswith(hint)
    assert done.stderr.startswith("error: ")
    assert "Usage:" not in done.stderr


def test_without_a_command_the_help_is_shown():
    done = run()
    assert (done.returncode, "  init " in done.stdout + done.stderr) == (2, True)


# Runs one command after the other, and prints after each of them the heavy modules that it has imported.
LOOK = """
import os, sys
from marpack.api import doctor
from marpack.cli.main import main
doctor._PROBE = "print('torch')"
HEAVY = {"torch", "onnxruntime", "numpy", "jinja2", "fsspec", "onnx", "safetensors", "aiohttp", "pyarrow", "ray", "PIL"}
COMMANDS = (
    "doctor", "build project -o m.mar", "inspect m.mar", "inspect m.mar --json", "inspect m.mar --verify",
    f"inspect m.mar --sbom {os.devnull}", "diff m.mar project", "unpack m.mar -d out", "init new --weights digits.pt",
)
for words in COMMANDS:
    HEAVY -= {"jinja2"} if "init" in words else set()
    try:
        main(words.split())
    except SystemExit as end:
        assert not end.code, words
    assert not HEAVY & sys.modules.keys(), (words, HEAVY & sys.modules.keys())
"""


def test_looking_imports_nothing_heavy(tmp_path: Path):
    for name in ("handler.py", "digits.pt"):
        (tmp_path / "project").mkdir(exist_ok=True)
        shutil.copy(Path(__file__).parents[2] / "examples" / "digits" / name, tmp_path / "project")
    shutil.copy(tmp_path / "project" / "digits.pt", tmp_path)
    settings = 'name: m\nversion: "1.0"\nhandler: handler.py\nweights: digits.pt\n'
    (tmp_path / "project" / "marpack.yaml").write_text(settings)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["zzzzzz"], ["--zzz"], ["--", "--zzz"]])
def test_a_word_like_no_command_is_only_refused(words: list[str]):
    done = run(*words)
    assert done.returncode == 2
    assert words[-1] in done.stderr
    assert "?" not in done.stderr


def fail(raised: BaseException, words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a command that raises something unexpected."""

    def broken(**_: object) -> None:
        raise raised

    monkeypatch.setattr(cli.marpack, "main", broken)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize(
    ("raised", "code", "words"), [(KeyboardInterrupt(), 130, "interrupted"), (KeyError("x"), 1, "a bug: KeyError")]
)
def test_an_interruption_and_a_bug_have_an_exit_code_and_json(
    raised: BaseException, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert fail(raised, ["inspect", "--json"], monkeypatch) == code
    shown = capsys.readouterr()
    failure = msgspec.json.decode(shown.out, type=Failure)
    assert (failure.exit_code, words in failure.error) == (code, True)
    assert "Traceback" not in shown.err
    assert ["Traceback" in path.read_text() for path in tmp_path.glob("marpack-bug-*.txt")] == [True] * (code == 1)


def test_verbose_shows_the_traceback_of_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(STDERR, "verbose", True)
    assert fail(RuntimeError("a bug"), ["inspect"], monkeypatch) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_bug(make_mar):
    mar = make_mar("def handle(data, context):\n    return ['x' * 100_000] if data else None\n")
    words = command("run", str(mar), *["--data", "x"] * 20, "--jsonl")
    pipe = ["bash", "-c", 'set -o pipefail; "$@" | head -c 10 >/dev/null', "bash", *words]
    done = subprocess.run(pipe, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")


FULL = "No space left on device"


def to(stdout: str, *args: str, **env: str) -> tuple[int, str]:
    """Return the exit code and stderr of a command whose stdout goes where a shell would lead it."""
    command = f'exec "$@" {stdout}'
    words = ["bash", "-c", command, "bash", sys.executable, "-m", "marpack", *args]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "", **env})
    assert "bug" not in done.stderr
    assert "Exception" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["inspect"], ["unpack", "--json"], ["--help"]])
def test_a_full_disk_behind_stdout_is_said(make_mar, tmp_path: Path, words: list[str]):
    mar = str(make_mar("def handle(data, context): ..."))
    place = ["--directory", str(tmp_path / "new")] if "unpack" in words else []
    code, stderr = to("> /dev/full", *words, *([mar] if words != ["--help"] else []), *place)
    assert code == 1
    assert stderr.splitlines()[0].endswith(f": {FULL}")
    assert stderr.count("error: ") == 1


def test_an_error_that_cannot_be_told_as_json_is_told_all_the_same():
    code, stderr = to("> /dev/full", "inspect", "nowhere", "--json")
    assert (code, stderr.count("error: "), "nowhere" in stderr) == (2, 1, True)
    assert "Traceback" not in stderr


def test_what_was_printed_and_waits_is_written_before_the_end():
    code = "import marpack.cli.main as m\nm.marpack.main = lambda **_: print('x' * 9)\nm.main(['inspect', '--json'])\n"
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("wb") as full:
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f": {FULL}")
    assert "Exception" not in done.stderr


def test_a_stdout_that_is_closed_is_written_to_in_vain(make_mar):
    mar = str(make_mar("def handle(data, context):\n    return data\n"))
    assert to(">&-", "inspect", mar, "--json") == (0, "")
    assert to("2>&-", "inspect", "nowhere")[0] == 2


def test_what_a_stream_cannot_hold_looks_like_it(tmp_path: Path):
    (tmp_path / "shows.py").write_text(
        "from marpack.cli import main\n"
        "from marpack.render.console import show_lines, talk\n"
        "def show(**options):\n"
        "    show_lines(['✓ ✗ … → é'])\n"
        "    talk().print('│')\n"
        "    print('\\udcff')\n"
        "main.marpack.main = show\n"
        "main.main([])\n",
        encoding="utf-8",
    )
    ascii_only, utf8 = ("+ x . > ?\n?\n", "|\n"), ("✓ ✗ … → é\n\\udcff\n", "│\n")
    for environment, shown in (
        ({"PYTHONIOENCODING": "ascii"}, ascii_only),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ascii_only),
        ({"PYTHONIOENCODING": "utf-8"}, utf8),
    ):
        words = [sys.executable, str(tmp_path / "shows.py")]
        done = subprocess.run(words, capture_output=True, env={**os.environ, **environment})
        assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, *shown)


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        ("inspect nowhere", "source-not-found", 2),
        ("build .", "no-project", 2),
        ("check not.mar --only nothing", "unknown-check", 2),
        ("unpack not.mar", "not-an-archive", 3),
        ("init --template nothing", "usage", 2),
    ],
)
def test_where_json_is_expected_an_error_is_json_too(tmp_path: Path, words: str, code: str, exit_code: int):
    (tmp_path / "not.mar").write_text("this is no zip")
    done = run(*words.split(), "--json", cwd=tmp_path)
    failure = msgspec.json.decode(done.stdout, type=Failure)
    assert (failure.code, failure.exit_code, done.returncode) == (code, exit_code, exit_code)
    assert failure.error.removeprefix(f"{failure.where}: ") in done.stderr
    assert run(*words.split(), cwd=tmp_path).stdout == ""


def test_lines_end_with_an_error_on_a_line(tmp_path: Path):
    done = run("run", "nowhere", "--data", "a", "--jsonl", cwd=tmp_path)
    (line,) = done.stdout.splitlines()
    assert msgspec.json.decode(line, type=Failure).where == "nowhere"
