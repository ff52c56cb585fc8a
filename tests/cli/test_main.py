import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from invoking import Invoked, invoke

from marpack.render.failure import Failure


def run(*args: str, cwd: Path | None = None) -> Invoked:
    return invoke(*args, cwd=cwd, code=None)


def test_help_lists_the_commands_without_importing_them():
    code = "import sys; from marpack.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "inspect" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "numpy", "rich", "msgspec", "jinja2", "yaml", "marpack.cli.run"}


@pytest.mark.parametrize(("word", "meant"), [("biuld", "build"), ("inspct", "inspect")])
def test_a_misspelt_command_is_guessed(word: str, meant: str):
    done = run(word)
    assert done.returncode == 2
    assert f"{meant}?" in done.stderr


@pytest.mark.parametrize("words", ["build --forse -q", "inspect nowhere.mar --quiet"])
def test_a_quiet_command_prints_no_hints(words: str):
    done = run(*words.split())
    assert (done.returncode, "hint:" in done.stderr) == (2, False)
    assert done.error is not None
    assert done.error.hint


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


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_looking_never_imports_torch(command: str, tmp_path: Path, make_mar):
    mar = make_mar("import torch\n")
    project = str(Path(__file__).parents[2] / "examples" / "digits")
    args = ["inspect", str(mar)] if command == "inspect" else ["build", project, "-o", str(tmp_path)]
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "marpack", *args], capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}
    assert not loaded & {"torch", "onnxruntime", "numpy", "jinja2"}


@pytest.mark.parametrize("words", [["zzzzzz"], ["--zzz"], ["--", "--zzz"]])
def test_a_word_like_no_command_is_only_refused(words: list[str]):
    done = run(*words)
    assert done.returncode == 2
    assert words[-1] in done.stderr
    assert "?" not in done.stderr


def test_a_bug_of_marpacks_own_is_a_sentence_and_a_file(tmp_path: Path):
    code = (
        "import marpack.cli.main as main\n"
        "def broken(**options): raise RuntimeError('a bug')\n"
        "main.marpack.main = broken\n"
        "main.main(['build'])\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "RuntimeError: a bug" in done.stderr
    assert "Traceback" not in done.stderr
    (report,) = tmp_path.glob("marpack-bug-*.txt")
    assert "Traceback" in report.read_text()


def test_a_reader_that_goes_away_is_no_bug(make_mar):
    mar = make_mar("def handle(data, context):\n    return ['x' * 100_000] if data else None\n")
    inputs = " ".join(["--data x"] * 50)
    command = f"set -o pipefail; {sys.executable} -m marpack run {mar} {inputs} --jsonl | head -c 10 >/dev/null"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr


FULL = "No space left on device"


def to(stdout: str, *args: str, **env: str) -> tuple[int, str]:
    """Return the exit code and stderr of a command whose stdout goes where a shell would lead it."""
    command = f'exec "$@" {stdout}'
    words = ["bash", "-c", command, "bash", sys.executable, "-m", "marpack", *args]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "", **env})
    assert "bug" not in done.stderr
    assert "Exception" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"], ["unpack", "--json"], ["--help"]])
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


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_what_was_printed_and_waits_is_written_before_the_end(as_json: list[str]):
    code = (
        f"import marpack.cli.main as m\nm.marpack.main = lambda **_: print('x' * 9)\nm.main({['inspect', *as_json]})\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("wb") as full:
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f": {FULL}")
    assert "Exception" not in done.stderr


def test_a_stdout_that_is_closed_is_written_to_in_vain(make_mar):
    mar = str(make_mar("def handle(data, context):\n    return data\n"))
    for words in (["inspect", mar], ["inspect", mar, "--json"]):
        assert to(">&-", *words) == (0, "")
    assert to("2>&-", "inspect", "nowhere")[0] == 2


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_what_a_stream_cannot_hold_looks_like_it(tmp_path: Path, env: dict[str, str]):
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
    told = {}
    for environment in (env | {"PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "utf-8"}):
        words = [sys.executable, str(tmp_path / "shows.py")]
        done = subprocess.run(words, capture_output=True, env={**os.environ, **environment})
        told[done.returncode, done.stdout.decode(), done.stderr.decode()] = environment
    assert list(told) == [(0, "+ x . > ?\n?\n", "|\n"), (0, "✓ ✗ … → é\n\\udcff\n", "│\n")]


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        ("run nowhere --data a", "source-not-found", 2),
        ("run --no-such-option", "usage", 2),
        ("inspect nowhere", "source-not-found", 2),
        ("inspect not.mar", "not-an-archive", 3),
        ("build .", "no-project", 2),
        ("diff nowhere nowhere", "source-not-found", 2),
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


def test_an_interruption_and_a_bug_are_json_too(tmp_path: Path):
    for raised, code, words in (("KeyboardInterrupt", 130, "interrupted"), ("KeyError('x')", 1, "a bug: KeyError")):
        source = (
            "import marpack.cli.main as main\n"
            f"def broken(**options): raise {raised}\n"
            "main.marpack.main = broken\n"
            "main.main(['inspect', '--json'])\n"
        )
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment)
        failure = msgspec.json.decode(done.stdout, type=Failure)
        assert (failure.exit_code, done.returncode) == (code, code)
        assert words in failure.error
