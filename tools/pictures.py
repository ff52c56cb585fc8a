"""Make docs/pictures/: terminals as SVG, and a report as PNG, which needs Chromium. Every command is run.

From the repository's root: python -m tools.pictures [FOLDER]
"""

import io
import os
import platform
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
COLUMNS = 84
SECONDS = 300
_FETCHED_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # a picture fetches nothing
_CONTROLS = re.compile(r"(\n|\r|\x1b\[1A|\x1b\[2K|\x1b\[\?\w+)")  # move the cursor, clear a line, hide the cursor
_FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"


class Scene(NamedTuple):
    """The commands of one picture, run in a copy of an example."""

    project: str
    commands: tuple[str, ...]
    before: str = ""  # commands that the picture does not show


SCENES = {
    "inspect": Scene("digits", ("marpack inspect digits.mar",), before="marpack build"),
    "run": Scene(
        "digits",
        ("marpack run --input samples/one.png samples/five.png notes.txt",),
        before="marpack build && echo 'no picture' > notes.txt",
    ),
    "check": Scene("digits", ("marpack check",), before="marpack build"),
    "init": Scene(
        "image_classifier",
        ("ls", "marpack init", "marpack build"),
        before="rm -rf marpack.yaml README.md train.py samples/[!cs]*",
    ),
    "mistakes": Scene(
        "digits",
        ("marpack build",),
        before="sed -i -e 's/labels:/lables:/' -e 's/^version.*/version:/' marpack.yaml",
    ),
}


def main(folder: Path = ROOT / "docs" / "pictures") -> None:
    """Write every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        (folder / f"{name}.svg").write_text(picture(scene))
        print(folder / f"{name}.svg")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("Chromium is not installed; report.png needs it")
    report(browser, folder / "report.png")
    print(folder / "report.png")


def picture(scene: Scene) -> str:
    """Return the terminal after a scene's commands as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False)
    with tempfile.TemporaryDirectory() as home:
        project = copy_of(scene.project, Path(home))
        environment = environment_of(Path(home))
        subprocess.run(["bash", "-c", scene.before], cwd=project, env=environment, check=True, capture_output=True)
        for command in scene.commands:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            output = screen(run_in_terminal(command, project, environment)).replace(home, "~")
            console.print(Text.from_ansi(output), overflow="fold")
    svg = console.export_svg(title=f"~/{scene.project}", theme=MONOKAI, unique_id=scene.project)
    return _FETCHED_FONT.sub("", svg).replace("Fira Code, monospace", _FONTS)


def report(browser: str, file: Path) -> None:
    """Take a screenshot of the page of `marpack run --report`, without the name of this machine's system."""
    with tempfile.TemporaryDirectory() as home:
        project, page = copy_of("object_detector", Path(home)), Path(home, "report.html")
        command = ["marpack", "run", "--input", "samples/", "--report", str(page)]
        subprocess.run(command, cwd=project, env=environment_of(Path(home)), check=True, capture_output=True)
        text = page.read_text().replace(platform.platform(), platform.system())
        page.write_text(re.sub(r"\d+ x [^<]*", "…", text))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1240"]
        target = [f"--user-data-dir={home}/browser", f"--screenshot={file}", page.as_uri()]
        subprocess.run([browser, *options, *target], check=True, capture_output=True)


def copy_of(example: str, home: Path) -> Path:
    ignored = shutil.ignore_patterns("*.mar", "__pycache__")
    return Path(shutil.copytree(ROOT / "examples" / example, home / example, ignore=ignored))


def environment_of(home: Path) -> dict[str, str]:
    """Return an environment for a terminal with colors, in which `marpack` is this checkout's."""
    programs = home / "bin"
    programs.mkdir()
    (programs / "marpack").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -W ignore -m marpack "$@"\n')
    (programs / "marpack").chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    return environment | {
        "PATH": f"{programs}{os.pathsep}{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "MARPACK_CACHE_DIR": str(home / ".cache"),
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LINES": "60",
    }


def run_in_terminal(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command on a terminal and return its output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    output = b""
    while select.select([ours], [], [], SECONDS)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        output += part
    process.wait(SECONDS)
    os.close(ours)
    return output.decode().replace("\r\n", "\n").rstrip("\n")


def screen(output: str) -> str:
    """Return the screen after the output, in which spinners and bars overwrite their own lines."""
    lines = [""]
    row = 0
    for part in _CONTROLS.split(output):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part in {"\r", "\x1b[2K"}:
            lines[row] = ""
        elif not part.startswith("\x1b[?"):
            lines[row] += part
    return "\n".join(lines).rstrip("\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
