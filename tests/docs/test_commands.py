"""Every command, script and file of the documentation, run in a copy of the examples: what a page says comes out."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from shlex import quote

import pytest
import yaml
from command import command
from docs.blocks import Block, Step, blocks, missing, setup, steps

pytestmark = pytest.mark.usefixtures("uncovered")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN = {"console", "sh", "python"}
PARSED = {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}
KNOWN = RUN | set(PARSED) | {"bash", "text", "ini", "dockerfile"}
ELSEWHERE = {
    *("pip", "make", "torchserve", "curl", "kubectl", "gsutil", "gcloud", "aws", "docker", "python", "git"),
    *("model_signing", "cd", "serve", "source", "tar", "hf", "oras"),
}
PYTHON = f'exec {quote(sys.executable)} "$@"'
MARPACK = f"""case $1 in
run | check | score) exec {{}} "$@" ;;
*) exec {quote(sys.executable)} -m marpack "$@" ;;
esac"""
INTERACTIVE = re.compile(r"marpack run .*(--in-process|--pdb|--watch)|marpack serve")
IN_CI = re.compile(r"^\s*- (?:run: )?(marpack .*)$", re.MULTILINE)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run(page: Path) -> bool:
    return any(block.language in RUN or block.title for block in blocks(page) if not block.excerpt)


class Session:
    """A shell that keeps its folder and its last exit code from command to command."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.code = 0
        self.environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "PYTHONWARNINGS": "ignore",
        }

    def run(self, command: str) -> str:
        """Run a command and return what it says, on both streams."""
        kept = self.folder / ".pwd"
        script = f"(exit {self.code})\n{command}\ncode=$?; pwd > '{kept}'; exit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        self.code = done.returncode
        if kept.exists():
            self.folder = Path(kept.read_text().strip())
            kept.unlink()
        return done.stdout


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Return a session in a folder with nothing but the examples."""
    ignored = shutil.ignore_patterns("*.mar", "__pycache__")
    shutil.copytree(ROOT / "examples", tmp_path / "work" / "examples", ignore=ignored)
    programs = tmp_path / "bin"
    programs.mkdir()
    for program, script in (("marpack", MARPACK.format(" ".join(map(quote, command("run")[:-1])))), ("python", PYTHON)):
        path = programs / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return Session(tmp_path / "work", programs)


RUN_PAGES = [name(page) for page in PAGES if is_run(page)]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.peer if page == "docs/tutorial.md" else pytest.mark.slow)
        for page in RUN_PAGES
    ],
)
def test_what_a_page_says_comes_out(page: str, session: Session):
    play_page(ROOT / page, session)


def play_page(page: Path, session: Session) -> None:
    first = session.run(f"set -e\n{setup(page)}")
    assert session.code == 0, first
    for block in blocks(page):
        if not block.excerpt:
            play(block, session, f"{name(page)}:{block.line}")


def play(block: Block, session: Session, where: str) -> None:
    if block.title:
        path = session.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        for command in IN_CI.findall(block.text) if block.language == "yaml" else ():
            said = session.run(command)
            assert session.code == 0, f"{where}: {command}\n{said}"
    elif block.language == "sh":
        said = session.run(f"set -e\n{block.text}")
        assert session.code == 0, f"{where}\n{said}"
    elif block.language == "python":
        (session.folder / "block.py").write_text(block.text)
        said = session.run("python block.py")
        assert session.code == 0, f"{where}\n{said}"
    elif block.language == "console":
        play_console(list(steps(block.text)), session, where)


def play_console(every: list[Step], session: Session, where: str) -> None:
    for step, following in zip(every, [*every[1:], None], strict=True):
        said = session.run(step.command)
        lost = missing(step.output, said)
        assert not lost, f"{where}: {step.command}\ndoes not say: {lost}\nbut:\n{said}"
        may_fail = following is not None and following.command == "echo $?"
        assert may_fail or session.code == 0, f"{where}: {step.command}\n{said}"


def test_what_no_reader_sees_is_done_only_for_what_readers_bring_along():
    assert {name(page) for page in PAGES if setup(page)} == {"README.md", "docs/how-to/migrate-deployment.md"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_looked_after(page: Path):
    for block in blocks(page):
        where = f"{name(page)}:{block.line}"
        assert block.language in KNOWN, where
        if block.language in PARSED and not block.excerpt and "…" not in block.text:
            values(block)
        if block.language == "bash":
            check_elsewhere(block.text, where)


def values(block: Block) -> object:
    """Parse a block; of JSON also one value a line."""
    if block.language != "json" or block.text.startswith("{\n"):
        return PARSED[block.language](block.text)
    return [json.loads(line) for line in block.text.splitlines()]


def check_elsewhere(text: str, where: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, f"{where}: {done.stderr}"
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        known = not words or words[0] in ELSEWHERE or INTERACTIVE.match(line)
        assert known, f"{where}: {line}: this can be run here, so it belongs into a sh or console block"


def test_an_output_is_compared_line_by_line():
    assert missing(["size 68.1 kB in 18 members", "…", "took …"], "size  7 kB in 2 members\nx\ntook 1 s") == []
    assert missing(["a whole line"], "a wholly other line") == ["a whole line"]
    assert missing(["b", "a"], "a\nb") == ["a"]
