"""`marpack inspect`, as one types it: the page, JSON, exit codes, and the sentence for each mistake."""

import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from invoking import invoke
from lazy import torch
from msgspec import Struct

from marpack.render.console import cells

MakeMar = Callable[..., Path]
HANDLER = (
    "from ts.torch_handler.base_handler import BaseHandler\n\nclass Own(BaseHandler):\n"
    "    def initialize(s, c): ...\n    def preprocess(s, d): ...\n"
)


class Outcome(Struct, frozen=True):
    code: int
    out: str
    err: str
    cause: str  # the error's code


Look = Callable[..., Outcome]


@pytest.fixture
def look() -> Look:
    """Return a function that runs `marpack inspect` with its arguments."""

    def run(*arguments: str | Path) -> Outcome:
        done = invoke("inspect", *map(str, arguments), code=None)
        return Outcome(done.returncode, done.stdout, done.stderr, done.cause)

    return run


@pytest.fixture
def mar(make_mar: MakeMar, tmp_path: Path) -> Path:
    torch.save({"layer.weight": torch.zeros(3, 4), "layer.bias": torch.zeros(3)}, tmp_path / "net.pt")
    return make_mar(HANDLER, files={"net.pt": (tmp_path / "net.pt").read_bytes(), "data/words.txt": "a\nb\n"})


def test_the_page_says_what_it_is(mar: Path, look: Look) -> None:
    outcome = look(mar)

    assert outcome.code == 0
    assert outcome.err == ""
    for text in ("probe 1.0", "class Own(BaseHandler), defines initialize,", "15 parameters in 2 tensors", "[3, 4]"):
        assert text in outcome.out
    assert "pickles  safe, 1 read" in outcome.out
    assert "\x1b" not in outcome.out


def test_a_full_archive_shows_every_part(make_mar: MakeMar, look: Look, tmp_path: Path) -> None:
    from safetensors.torch import save

    many = {f"module{number}/handler.py": "x = 1\n" for number in range(3)}
    many |= {f"deep/file{number}.txt": "x" for number in range(60)}
    program = torch.export.export(torch.nn.Linear(2, 3), (torch.zeros(1, 2),))
    torch.export.save(program, tmp_path / "net.pt2")
    mar = make_mar(
        HANDLER,
        files=many
        | {
            "net.pt2": (tmp_path / "net.pt2").read_bytes(),
            "net.safetensors": save({"w": torch.zeros(2)}, {"author": "me"}),
            "whole.pkl": pickle.dumps(torch.nn.ReLU()),
            "words.pkl": pickle.dumps({"a": 1}, protocol=2),
            "requirements.txt": "\n".join(f"package{number}" for number in range(20)),
            "index_to_name.json": '{"0": "cat"}',
            "model-config.yaml": "# hello\nbatchSize: 2\n" + "".join(f"key{number}: 1\n" for number in range(30)),
            "bad.7z": b"7z\xbc\xaf\x27\x1c",
        },
        requirementsFile="requirements.txt",
        configFile="model-config.yaml",
        createdOn="today",
    )

    outcome = look(mar)

    assert outcome.code == 0
    for text in (
        "labels 1: cat",
        "package0, package1",
        "and 12 more",
        "config\n  batchSize: 2",
        "… and 11 more",
        "net.pt2  torch.export program",
        "input  input float32 [1, 2]",
        "author: me",
        "… and 20 more",
        "pickles  needs trust",
        "whole.pkl  needs trust",
        "untrusted-pickle",
        "unscanned",
        "hint: Save the state_dict",
    ):
        assert text in outcome.out


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_page_fits_its_width(columns: int, look: Look, make_mar: MakeMar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = "a_rather_long_name_for_a_member_that_somebody_gave_without_thinking_of_terminals"
    model = pickle.dumps({"net": torch.nn.Linear(2, 2)})
    mar = make_mar(HANDLER, files={f"{long}/{long}.txt": "x", "模型/標籤.txt": "x", f"{long}.bin": model})

    monkeypatch.chdir(mar.parent)

    page, _, findings = look(mar.name).out.partition("\nfindings\n")
    assert f"probe.mar!{long}.bin: " in findings  # for copying: never broken
    assert max(cells(line) for line in page.splitlines()) <= columns


def test_a_crowd_of_members_does_not_flood_the_page(make_mar: MakeMar, look: Look) -> None:
    mar = make_mar(HANDLER, files={f"folder{number % 30}/file{number}": "x" for number in range(600)})

    outcome = look(mar)

    assert "--json" in outcome.out
    assert len(outcome.out.splitlines()) < 230
    assert len(json.loads(look(mar, "--json").out)["members"]) == 602


def test_json_is_the_result_and_nothing_else(mar: Path, look: Look) -> None:
    outcome = look(mar, "--json")

    assert outcome.code == 0
    assert outcome.err == ""
    assert json.loads(outcome.out)["manifest"]["model"]["modelName"] == "probe"


def test_an_sbom_is_written_beside_the_page_or_the_json(mar: Path, look: Look, tmp_path: Path) -> None:
    plain = look(mar, "--verify")  # what has an SBOM is read to the last byte
    shown = look(mar, "--sbom", tmp_path / "one.json")
    assert (shown.code, shown.err, shown.out) == (0, "", plain.out)
    shown_json = look(mar, "--json", "--sbom", tmp_path / "two.json").out
    assert json.loads(shown_json) == json.loads(look(mar, "--json", "--verify").out)
    made = json.loads((tmp_path / "one.json").read_bytes())
    assert made["metadata"]["component"]["name"] == "probe"
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()


def test_an_archive_that_falls_short_gets_its_sbom_all_the_same(make_mar: MakeMar, look: Look, tmp_path: Path) -> None:
    mar = make_mar(HANDLER, files={"vocab.pkl": b"cposix\nsystem\n(S'id'\ntR."})
    assert look(mar, "--sbom", tmp_path / "sbom.json").code == 1
    assert (tmp_path / "sbom.json").is_file()


@pytest.mark.parametrize("name", ["", ".", "none/x.json", "probe.mar/x.json", "probe.mar", "x" * 300, "/dev/full"])
def test_an_sbom_that_cannot_be_written_is_refused(
    name: str, mar: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mar.parent)
    before = mar.read_bytes()
    outcome = look(mar.name, "--sbom", name)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--sbom" in outcome.err or mar.name in outcome.err
    assert mar.read_bytes() == before


def test_a_damaged_archive_gets_no_sbom(mar: Path, look: Look, tmp_path: Path) -> None:
    content = bytearray(mar.read_bytes())
    content[content.index(b"class Own")] ^= 1
    mar.write_bytes(content)
    outcome = look(mar, "--sbom", tmp_path / "sbom.json")
    assert (outcome.code, outcome.out, outcome.cause) == (3, "", "content-mismatch")
    assert not (tmp_path / "sbom.json").exists()


def test_verify_says_that_every_byte_was_read(mar: Path, look: Look) -> None:
    assert "CRCs" in look(mar, "--verify").out


def test_a_dangerous_archive_falls_short(make_mar: MakeMar, look: Look) -> None:
    outcome = look(make_mar(HANDLER, files={"vocab.pkl": b"cposix\nsystem\n(S'id'\ntR."}))

    assert outcome.code == 1
    assert "dangerous" in outcome.out
    assert "posix.system" in outcome.out


def test_a_damaged_archive_is_no_safe_archive(mar: Path, look: Look) -> None:
    content = bytearray(mar.read_bytes())
    content[content.index(b"class Own")] ^= 1
    mar.write_bytes(content)

    outcome = look(mar)

    assert outcome.code == 3
    assert "damaged-member" in outcome.out


def test_what_a_terminal_would_obey_is_shown_instead(make_mar: MakeMar, look: Look) -> None:
    mar = make_mar(
        HANDLER, description="\x1b[2Jgone", files={"index_to_name.json": '{"0": "\\u001b[31mred", "1": "\\u202eb"}'}
    )

    out = look(mar).out

    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31mred" in out


def test_a_folder_and_a_tar_are_archives_too(make_folder: MakeMar, look: Look, tmp_path: Path) -> None:
    assert "class Own" in look(make_folder(HANDLER)).out


def test_with_no_source_the_project_here_is_built_and_inspected(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "handler.py").write_text("def handle(data, context):\n    return data\n")
    (tmp_path / "marpack.yaml").write_text("name: here\nversion: '1'\nhandler: handler.py\n")
    monkeypatch.chdir(tmp_path)

    for arguments in ((), (".",), (str(tmp_path),)):
        outcome = look(*arguments)
        assert outcome.code == 0, outcome
        assert "here 1" in outcome.out
    assert (tmp_path / "here.mar").is_file()


WRONG = {  # words → exit code
    "none.mar": 2,
    "text.mar": 3,
    "empty.mar": 3,
    "folder": 2,
    "http://127.0.0.1:1/x.mar": 3,
    "http://": 3,
    "a.mar b.mar": 2,
    "pipe": 3,
    "/dev/null": 3,
    "--verfy": 2,
    "x\udcff.mar": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code(words: str, tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.mar").write_text("hello")
    (tmp_path / "empty.mar").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    outcome = look(*words.split())
    assert (outcome.code, outcome.out, bool(outcome.err)) == (WRONG[words], "", True)
    assert "Traceback" not in outcome.err


def test_no_manifest_is_exit_3(tmp_path: Path, look: Look) -> None:
    with zipfile.ZipFile(tmp_path / "x.mar", "w") as file:
        file.writestr("a", "b")

    outcome = look(tmp_path / "x.mar")

    assert outcome.code == 3
    assert "MANIFEST.json" in outcome.err


def fresh(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_nothing_heavy_is_imported(mar: Path) -> None:
    for option in ((), ("--json",), ("--verify",), ("--sbom", os.devnull)):
        done = fresh("-X", "importtime", "-m", "marpack", "inspect", mar, *option)
        imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
        assert done.returncode == 0
        assert not imported & {"torch", "onnxruntime", "numpy", "jinja2", "fsspec", "onnx", "safetensors"}


def test_an_sbom_goes_into_a_pipe_too(mar: Path) -> None:
    done = fresh("-m", "marpack", "inspect", mar, "--sbom", "/dev/stderr")
    assert json.loads(done.stderr)["bomFormat"] == "CycloneDX"
    assert "probe 1.0" in done.stdout


def test_a_closed_pipe_is_no_traceback(mar: Path) -> None:
    command = f"{sys.executable} -m marpack inspect {mar} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr


def test_no_color_is_respected_on_a_terminal(mar: Path) -> None:
    import pty

    for environment, coloured in (({"NO_COLOR": "1"}, False), ({}, True)):
        master, slave = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        process = subprocess.Popen(
            [sys.executable, "-m", "marpack", "inspect", mar], stdout=slave, env=kept | environment | {"TERM": "xterm"}
        )
        os.close(slave)
        out = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:
                break
            if not block:
                break
            out += block
        process.wait()
        os.close(master)
        assert (b"\x1b[" in out) is coloured
