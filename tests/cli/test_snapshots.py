"""What each command prints, as terminal sessions in tests/snapshots; `make snapshots` writes them anew.

A file holds the sessions of a command with a blank line between them; each is typed in a folder as `prepared` makes it.
To add one, add its lines `$ marpack …`. A change of wording changes these files, and no test of what a command does.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoking import invoke
from trust import vouched

from marpack.api import doctor
from marpack.cli.main import COMMANDS

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
HANDLER = '''
def handle(data, context):
    """Return each text in capitals."""
    texts = [row["body"] for row in data or ()]
    if "" in texts or "bad" in texts:
        raise ValueError("an empty text" if "" in texts else "a bad text")
    return [{"text": text.upper(), "length": len(text)} for text in texts]
'''
PROJECT = """
name: shout
version: "1.0"
handler: handler.py
samples:
  - {input: samples/sea.txt, expect: {status: 200, json: {text: SEA, length: 3}}}
  - {input: samples/sky.txt, expect: {status: 200}}
"""
# What differs between machines, days and versions → what stands in its place.
NORMAL = {
    r"(seconds\W+)[\d.e-]+": r"\1<time>",
    r"\b[0-9a-f]{40,64}\b": "<sha256>",
    r"\b[0-9a-f]{12,16}\b": "<id>",
    r"\b\d[\d.,]*/s\b": "<rate>",
    r"\b\d+ requests, [+-][\d.]+ MiB": "<requests>, <size>",
    r"\b\d[\d.]* and (?=\d)": "<time> and ",
    r" *-?\b\d[\d.,]* ?(ms|s|min)\b": " <time>",
    r"(stage|p50|p90) +(?=p\d\d)": r"\1 ",  # columns as wide as the times
    r" *\b\d[\d.,]* (bytes|[kMG]B)\b": " <size>",
    r"marpack \d[\w.+]*": "marpack <version>",
    r"[ \t]+$": "",
    r"^! opening the archive.*\n": "",  # on a busy machine
}
MACHINE = r"(?m)^[✓·✗] (.{22}).*\n(?: {24}.*\n)*"  # of a line of doctor


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a project, archives of it, sound and not, a table, and keys."""
    folder = tmp_path_factory.mktemp("prepared")
    project(folder / "shout", HANDLER)
    project(folder / "other", HANDLER.replace("upper", "lower"))
    project(folder / "dies", "import nothing_like_it\n" + HANDLER)
    for name in ("shout", "other", "dies"):
        invoke("build", name, "--output", f"{name}.mar", cwd=folder)
    project(folder / "broken", HANDLER.replace("data or ()]", "data or ()"), PROJECT.replace("sky", "cloud"))
    (folder / "cut.mar").write_bytes((folder / "shout.mar").read_bytes()[:900])
    (folder / "note.txt").write_text("buy milk\n")
    (folder / "deployment").mkdir()
    (folder / "deployment" / "config.properties").write_text("load_models=all\nmodel_store=.\nvmargs=-Xmx1g\n")
    shutil.copy(folder / "shout.mar", folder / "deployment")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("sea", "bad", "sky")))
    for name in ("signer", "other"):
        vouched.keys_in(folder, name)
    return folder


def project(folder: Path, handler: str, settings: str = PROJECT) -> None:
    (folder / "samples").mkdir(parents=True)
    for name in ("sea", "sky"):
        (folder / "samples" / f"{name}.txt").write_text(name)
    (folder / "handler.py").write_text(handler)
    (folder / "marpack.yaml").write_text(settings.lstrip())


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"completion"}))
def test_what_a_command_prints_is_what_its_snapshot_holds(
    command: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "_PROBE", "print('here')")  # importing torch takes its time
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1", "MARPACK_CACHE_DIR": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    path, printed = SNAPSHOTS / f"{command}.txt", []
    for number, session in enumerate(re.split(r"(?m)^\n(?=\$ marpack )", path.read_text())):
        folder = shutil.copytree(prepared, tmp_path / str(number) / "here")
        commands = re.findall(r"(?m)^\$ marpack (.+)$", session)
        lines = [line for words in commands for line in typed(words, folder)]
        printed.append("".join(lines).replace(f"{folder}", "HERE"))
    text = normal("\n".join(printed), command)
    if os.environ.get("SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text(), "if this is as it should be: make snapshots"


def typed(words: str, folder: Path) -> Iterator[str]:
    """Yield what a terminal shows of a command: its line, stdout, stderr, and the exit code."""
    done = invoke(*words.split(), cwd=folder, code=None)
    yield f"$ marpack {words}\n"
    yield done.stdout
    yield "".join(f"! {line}\n" for line in done.stderr.splitlines())
    yield f"[{done.returncode}]\n"


def normal(text: str, command: str) -> str:
    """Return what is printed on every machine."""
    if command == "doctor":
        text = re.sub(MACHINE, lambda line: f"· {line[1].rstrip()}\n", text)
    for pattern, stands in NORMAL.items():
        text = re.sub(pattern, stands, text, flags=re.MULTILINE)
    return text


def test_every_command_has_its_snapshot():
    assert {path.stem for path in SNAPSHOTS.iterdir()} == COMMANDS.keys() - {"completion"}
