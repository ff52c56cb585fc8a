import subprocess
import sys
from pathlib import Path

import pytest

import marpack


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "marpack", *args], capture_output=True, text=True, cwd=cwd)


def test_help_lists_the_commands_without_importing_them():
    code = "import sys; from marpack.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "inspect" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "numpy", "rich", "msgspec", "jinja2", "yaml", "marpack.cli.run"}


def test_version():
    assert run("--version").stdout.strip() == f"marpack, version {marpack.__version__}"


@pytest.mark.parametrize(("word", "tip"), [("biuld", "'build'"), ("inspct", "'inspect'")])
def test_a_misspelt_command_is_guessed(word: str, tip: str):
    done = run(word)
    assert done.returncode == 2
    assert f"Did you mean {tip}" in done.stderr


@pytest.mark.parametrize("command", ["build", "inspect", "run"])
def test_every_commands_help_opens_with_examples(command: str):
    done = run(command, "--help")
    assert done.returncode == 0
    head = done.stdout.partition("Options:")[0]
    assert head.count(f"marpack {command}") >= 3  # usage and two examples
    assert "\\b" not in head
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_looking_never_imports_torch(command: str, tmp_path: Path, make_mar):
    mar = make_mar("import torch\n")
    args = ["inspect", str(mar)] if command == "inspect" else ["build", str(tmp_path)]
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "marpack", *args], capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}
    assert not loaded & {"torch", "onnxruntime", "numpy", "jinja2"}
