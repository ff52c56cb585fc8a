import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import marpack
from marpack.cli.main import Interrupts, interrupt_on_signals, main


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "marpack", *args], capture_output=True, text=True, cwd=cwd)


def test_help_lists_the_commands_without_importing_them():
    code = "import sys; from marpack.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "inspect" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "numpy", "rich", "msgspec", "jinja2", "yaml", "marpack.cli.run"}


def test_version():
    assert run("--version").stdout.startswith(f"marpack {marpack.__version__}\n")


@pytest.mark.parametrize(("word", "tip"), [("biuld", "'build'"), ("inspct", "'inspect'")])
def test_a_misspelt_command_is_guessed(word: str, tip: str):
    done = run(word)
    assert done.returncode == 2
    assert f"Did you mean {tip}" in done.stderr


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_looking_never_imports_torch(command: str, tmp_path: Path, make_mar):
    mar = make_mar("import torch\n")
    args = ["inspect", str(mar)] if command == "inspect" else ["build", str(tmp_path)]
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "marpack", *args], capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}
    assert not loaded & {"torch", "onnxruntime", "numpy", "jinja2"}


@pytest.mark.parametrize("words", [["zzzzzz"], ["--zzz"], ["--", "--zzz"]])
def test_a_word_like_no_command_is_only_refused(words: list[str]):
    done = run(*words)
    assert done.returncode == 2
    assert words[-1] in done.stderr
    assert "Did you mean" not in done.stderr


def test_without_a_nearer_hint_the_way_out_is_the_commands_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    wrong = ["build", ".", "--model-name", "m"]
    for argv in (wrong, None):
        monkeypatch.setattr(sys, "argv", ["marpack", *(wrong if argv is None else ["inspect"])])
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 2
        assert "marpack build --help" in capsys.readouterr().err


@pytest.fixture
def handlers() -> Iterator[None]:
    """Have the process's handlers of signals back in the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_every_request_to_end_interrupts_but_one_that_was_ignored_from_the_start():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    interrupt_on_signals()
    with Interrupts():
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    for number in (signal.SIGINT, signal.SIGTERM):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@pytest.mark.usefixtures("handlers")
def test_an_interruption_waits_for_what_is_being_told_and_counts_once():
    interrupt_on_signals()
    told = []

    def tell(number: int) -> int:
        signal.raise_signal(signal.SIGTERM)
        told.append(number)
        return number

    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.after(len, "ab") == 2
        with pytest.raises(KeyboardInterrupt):
            interrupts.after(tell, 1)
        assert told == [1]
        assert interrupts.after(len, "ab") == 2
        with pytest.raises(KeyboardInterrupt):  # nothing is being told
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
