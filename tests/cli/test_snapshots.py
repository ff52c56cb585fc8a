"""What each command prints, as terminal sessions in tests/snapshots; `make snapshots` writes them anew.

A change of wording changes these files, and no test of what a command does.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoking import invoke
from registries import FakeRegistry
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
ADDRESS = "oci://REGISTRY/team/shout:1.0"
# Command → the sessions of its file; each is typed in a folder as `folder` makes it.
SESSIONS: dict[str, list[list[str]]] = {
    "init": [
        ["init new --template function", "init new --template function"],
        ["init new --template nothing"],
        ["init"],
        ["init one two"],
    ],
    "build": [
        ["build shout"],
        ["build shout --json"],
        ["build broken"],
        ["build nowhere"],
        ["build ."],
        ["build --model-name shout"],
        ["build shout --model-name shout"],
        ["build shout --source-commit main"],
        ["build shout --forse"],
    ],
    "inspect": [
        ["inspect shout.mar"],
        ["inspect shout.mar --verify"],
        ["inspect nowhere.mar"],
        ["inspect note.txt"],
        ["inspect note.txt --json"],
        ["inspect cut.mar"],
        ["inspect"],
    ],
    "diff": [
        ["diff shout.mar shout.mar"],
        ["diff shout.mar other.mar"],
        ["diff shout.mar nowhere.mar"],
        ["diff shout.mar note.txt"],
        ["diff shout.mar"],
    ],
    "unpack": [
        ["unpack shout.mar", "unpack shout.mar", "unpack shout.mar --force"],
        ["unpack shout.mar --only handler.py --directory part"],
        ["unpack shout.mar --only nothing.py"],
        ["unpack nowhere.mar"],
        ["unpack cut.mar"],
    ],
    "run": [
        ["run shout.mar --data sea"],
        ["run shout.mar --input shout/samples"],
        ["run shout.mar --data sea --data bad"],
        ["run dies.mar --data sea"],
        ["run shout.mar"],
        ["run nowhere.mar --data sea"],
        ["run nowhere.mar --data sea --json"],
        ["run note.txt --data sea"],
        ["run --data sea"],
        ["run shout.mar --input nowhere.txt"],
        ["run shout.mar --data sea --batch-size 0"],
        ["run shout.mar --data sea --timeout soon"],
        ["run shout.mar --data sea --in-process --workers 2"],
        ["run shout.mar --data sea --device tpu"],
        ["run shout.mar --data sea --report report.txt"],
        ["run shout.mar --data sea --header X"],
        ["run shout.mar --dta sea"],
    ],
    "check": [
        ["check shout.mar"],
        ["check other.mar --only samples"],
        ["check dies.mar"],
        ["check shout.mar --against other.mar --only digests"],
        ["check nowhere.mar"],
        ["check shout.mar --only sampels"],
        ["check shout.mar --only loads --skip loads"],
        ["check shout.mar --input nowhere.txt"],
        ["check shout.mar --junit nowhere/out.xml"],
    ],
    "score": [
        ["score shout.mar --input texts.jsonl --text text --output out --format jsonl",
         "score shout.mar --input texts.jsonl --text text --output out --format jsonl",
         "score shout.mar --input texts.jsonl --text text --output out --format jsonl --resume"],
        ["score shout.mar --input nowhere.jsonl --text text --output out"],
        ["score shout.mar --input texts.jsonl --text words --output out"],
        ["score shout.mar --input texts.jsonl --output out"],
        ["score shout.mar --input texts.jsonl --text text"],
        ["score shout.mar --text text --output out"],
        ["score nowhere.mar --input texts.jsonl --text text --output out"],
    ],
    "serve": [
        ["serve nowhere.mar"],
        ["serve note.txt"],
        ["serve"],
        ["serve shout.mar --port 99999"],
        ["serve shout.mar shout.mar"],
        ["serve shout.mar --model-store nowhere"],
        ["serve shout.mar --workers 0"],
        ["serve shout.mar --trust-native"],
    ],
    "export": [
        ["export shout.mar --to docker --no-lock", "export shout.mar --to docker --no-lock"],
        ["export shout.mar --to mainframe"],
        ["export shout.mar"],
        ["export nowhere.mar --to docker"],
    ],
    "sign": [
        ["sign shout.mar --key signer.pem"],
        ["sign shout.mar"],
        ["sign shout.mar --key nowhere.pem"],
        ["sign shout.mar --key signer.pub"],
        ["sign shout --key signer.pem"],
    ],
    "verify": [
        ["sign shout.mar --key signer.pem", "verify shout.mar --key signer.pub",
         "verify shout.mar --key other.pub", "verify shout.mar"],
        ["verify shout.mar --key signer.pub"],
        ["verify nowhere.mar --key signer.pub"],
    ],
    "migrate": [["migrate deployment -o new"], ["migrate shout"], ["migrate nowhere"]],
    "push": [
        [f"push shout.mar {ADDRESS}", f"push shout.mar {ADDRESS}"],
        ["push shout.mar"],
        ["push shout.mar shout:1.0"],
        [f"push nowhere.mar {ADDRESS}"],
        [f"push shout {ADDRESS}"],
    ],
    "pull": [
        [f"push shout.mar {ADDRESS}", f"pull {ADDRESS} -o pulled.mar", f"pull {ADDRESS} -o pulled.mar"],
        [f"pull {ADDRESS}"],
        ["pull"],
        ["pull shout:1.0"],
    ],
    "doctor": [["doctor"], ["doctor now"]],
}  # fmt: skip
# What differs between machines, days and versions → what stands in its place.
NORMAL = {
    r"(seconds\W+)[\d.e-]+": r"\1<time>",
    r"\b[0-9a-f]{40,64}\b": "<sha256>",
    r"\b[0-9a-f]{12,16}\b": "<id>",
    r"127\.0\.0\.1:\d+": "REGISTRY",
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


@pytest.mark.parametrize("command", SESSIONS)
def test_what_a_command_prints_is_what_its_snapshot_holds(
    command: str, prepared: Path, tmp_path: Path, fake: FakeRegistry, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "_PROBE", "print('here')")  # importing torch takes its time
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1", "MARPACK_CACHE_DIR": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    printed = []
    for number, session in enumerate(SESSIONS[command]):
        folder = shutil.copytree(prepared, tmp_path / str(number) / "here")
        fake.blobs.clear()
        fake.manifests.clear()
        lines = [line for words in session for line in typed(words, folder, fake.host)]
        printed.append("".join(lines).replace(f"{folder}", "HERE"))
    text = normal("\n".join(printed), command)
    path = SNAPSHOTS / f"{command}.txt"
    if os.environ.get("SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text(), "if this is as it should be: make snapshots"


def typed(words: str, folder: Path, registry: str) -> Iterator[str]:
    """Yield what a terminal shows of a command: its line, stdout, stderr, and the exit code."""
    done = invoke(*words.replace("REGISTRY", registry).split(), cwd=folder, code=None)
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
    assert set(SESSIONS) == COMMANDS.keys() - {"completion"}
    assert {path.stem for path in SNAPSHOTS.iterdir()} == set(SESSIONS)
