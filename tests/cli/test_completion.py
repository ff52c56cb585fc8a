"""What TAB offers, asked the way each shell asks it."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from invoking import invoke

from marpack.cli.main import COMMANDS
from marpack.project.scaffold.template import template_names

SHELLS = ["bash", "zsh", "fish"]
Offered = Callable[..., list[str]]


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """Return a function that returns what a shell shows after a line and TAB."""

    def offered(line: str, shell: str = "bash") -> list[str]:
        words = line.split(" ")
        environment = {
            "_MARPACK_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": words[-1] if shell == "fish" and len(words) == 1 else line,
            "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
        }
        done = invoke(cwd=tmp_path, env=environment)
        assert done.stderr == ""
        if shell == "zsh":
            return done.stdout.splitlines()[1::3]  # kind, name, help
        return [entry.partition(",")[2].partition("\t")[0] for entry in done.stdout.splitlines() if entry]

    return offered


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_templates_are_offered(shell: str, offered: Offered):
    assert set(offered("marpack ", shell)) == set(COMMANDS)
    assert offered("marpack in", shell) == ["init", "inspect"]
    assert "--template" in offered("marpack init --t", shell)
    assert offered("marpack build --archive-f", shell) == ["--archive-format"]
    assert offered("marpack init -t ", shell) == template_names()
    assert offered("marpack init --template on", shell) == ["onnx"]


def test_after_a_misspelt_command_the_commands_are_offered_without_a_word(offered: Offered):
    assert set(offered("marpack biuld ")) == set(COMMANDS)


@pytest.mark.parametrize("command", ["build", "inspect", "run", "check", "unpack", "diff"])
def test_every_command_offers_archives_for_its_source(command: str, offered: Offered, tmp_path: Path, make_mar):
    make_mar("")
    (tmp_path / "notes.txt").touch()
    assert offered(f"marpack {command} ") == ["probe.mar"]


def test_archives_and_folders_are_offered(offered: Offered, tmp_path: Path, make_mar):
    make_mar("")
    (tmp_path / "models").mkdir()
    shutil.copy(tmp_path / "probe.mar", tmp_path / "models" / "other.tar.gz")
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".hidden.mar").touch()
    assert offered("marpack inspect ") == ["models/", "probe.mar"]
    assert offered("marpack inspect models/o") == ["models/other.tar.gz"]
    assert offered("marpack inspect gone/") == []


def test_members_of_the_archive_are_offered(offered: Offered, tmp_path: Path, make_mar):
    make_mar("", files={"data/a.json": "{}", "data/b.json": "{}"})
    assert offered("marpack unpack probe.mar --only da") == ["data/a.json", "data/b.json"]
    assert offered("marpack unpack gone.mar --only da") == []
    (tmp_path / "bad.mar").write_bytes(b"PK\x03\x04")
    assert offered("marpack unpack bad.mar --only da") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_and_its_shell_takes_it(shell: str, tmp_path: Path):
    done = invoke("completion", shell)
    assert "_MARPACK_COMPLETE" in done.stdout
    if shutil.which(shell):
        (tmp_path / "script").write_text(done.stdout)
        checked = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_still_completes_files(tmp_path: Path):
    asked = f"{invoke('completion', 'bash').stdout}\ncomplete -p marpack"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, cwd=tmp_path)
    assert {"default", "bashdefault"} <= set(done.stdout.split())
