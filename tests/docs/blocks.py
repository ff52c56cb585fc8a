"""The fenced blocks of a Markdown page, and what its author wants done with them.

- `console`: commands after `$ `, run one by one; the lines below each must come out, numbers and times aside, and …
  stands for anything. A command may fail only if `$ echo $?` is what comes next.
- `sh`: run as one script, which must not fail.
- any language with `title="name"`: written to a file of that name.
- `python`: run. `yaml`, `json`, `toml`: parsed.
- `bash`: commands for another place (a cluster, a cloud, a package index); only their syntax is looked at.
- `{ .lang .excerpt }`: a part of something, nothing is done.
- `<!-- setup: … -->`: commands that no reader sees, run before everything else of the page.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE)
_SETUP = re.compile(r"<!-- setup: (.*?) -->", re.DOTALL)


class Block(NamedTuple):
    """One block."""

    language: str
    text: str
    line: int
    title: str | None
    excerpt: bool


class Step(NamedTuple):
    """One command of a console, and the lines that must come out."""

    command: str
    output: list[str]


def blocks(page: Path) -> Iterator[Block]:
    """Yield a page's blocks in order."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        info, indent = match["info"].strip(), match["indent"]
        title = re.search(r'title="([^"]+)"', info)
        language = re.match(r"\{?\s*\.?([\w-]*)", info)
        assert language is not None
        body = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        yield Block(language[1], body, line, title and title[1], ".excerpt" in info)


def setup(page: Path) -> str:
    """Return the commands that come before everything else."""
    match = _SETUP.search(page.read_text())
    return match[1] if match else ""


def steps(console: str) -> Iterator[Step]:
    """Yield the commands of a console block; one that ends in a backslash goes on."""
    command: str | None = None
    output: list[str] = []
    for line in console.splitlines():
        if command is not None and command.endswith("\\"):
            command += f"\n{line}"
        elif line.startswith("$ "):
            if command is not None:
                yield Step(command, output)
            command, output = line[2:], []
        else:
            output.append(line)
    if command is not None:
        yield Step(command, output)


def pattern(line: str) -> re.Pattern[str]:
    """Return what a line must look like: … is anything, numbers are any numbers, blanks any blanks."""
    text = re.escape(re.sub(r"\s+", " ", line.strip()))
    text = re.sub(r"\d[\d,]*(?:\\\.\d+)?", r"[\\d.,]+", text)
    return re.compile(text.replace("…", ".*").replace(r"\ ", r"\s+"))


def missing(expected: list[str], actual: str) -> list[str]:
    """Return the lines that do not come out, in order."""
    lines = iter(actual.splitlines())
    return [
        line
        for line in expected
        if line.strip("… ") and not any(pattern(line).search(re.sub(r"\s+", " ", each.strip())) for each in lines)
    ]
