"""`marpack inspect`, as one types it: the page, JSON, exit codes, and the sentence for each mistake."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Terminal, apart
from invoking import Invoked, invoke

MakeMar = Callable[..., Path]
HANDLER = "def handle(data, context):\n    return data\n"


def look(*arguments: str | Path) -> Invoked:
    return invoke("inspect", *map(str, arguments), code=None)


@pytest.fixture
def mar(make_mar: MakeMar) -> Path:
    return make_mar(HANDLER, files={"data/words.txt": "a\nb\n"})


def test_an_sbom_is_written_beside_the_page_or_the_json(mar: Path, tmp_path: Path) -> None:
    plain = look(mar, "--verify")  # what has an SBOM is read to the last byte
    shown = look(mar, "--sbom", tmp_path / "one.json")
    assert (shown.returncode, shown.stderr, shown.stdout) == (0, "", plain.stdout)
    shown_json = look(mar, "--json", "--sbom", tmp_path / "two.json").stdout
    assert json.loads(shown_json) == json.loads(look(mar, "--json", "--verify").stdout)
    made = json.loads((tmp_path / "one.json").read_bytes())
    assert made["metadata"]["component"]["name"] == "probe"
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()


def test_a_dangerous_archive_is_exit_1_and_gets_its_sbom_all_the_same(make_mar: MakeMar, tmp_path: Path) -> None:
    mar = make_mar(HANDLER, files={"vocab.pkl": b"cposix\nsystem\n(S'id'\ntR."})
    outcome = look(mar, "--sbom", tmp_path / "sbom.json")
    assert outcome.returncode == 1
    assert "posix.system" in outcome.stdout
    assert (tmp_path / "sbom.json").is_file()


@pytest.mark.parametrize("name", ["", ".", "none/x.json", "probe.mar/x.json", "probe.mar", "x" * 300, "/dev/full"])
def test_an_sbom_that_cannot_be_written_is_refused(name: str, mar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mar.parent)
    before = mar.read_bytes()
    outcome = look(mar.name, "--sbom", name)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "--sbom" in outcome.stderr or mar.name in outcome.stderr
    assert mar.read_bytes() == before


def test_a_damaged_archive_is_exit_3_and_gets_no_sbom(mar: Path, tmp_path: Path) -> None:
    content = bytearray(mar.read_bytes())
    content[content.index(b"def handle")] ^= 1
    mar.write_bytes(content)
    outcome = look(mar, "--sbom", tmp_path / "sbom.json")
    assert (outcome.returncode, outcome.stdout, outcome.cause) == (3, "", "content-mismatch")
    assert not (tmp_path / "sbom.json").exists()
    outcome = look(mar)
    assert (outcome.returncode, "damaged-member" in outcome.stdout) == (3, True)


def test_what_a_terminal_would_obey_is_shown_instead(make_mar: MakeMar) -> None:
    mar = make_mar(
        HANDLER, description="\x1b[2Jgone", files={"index_to_name.json": '{"0": "\\u001b[31mred", "1": "\\u202eb"}'}
    )

    out = look(mar).stdout

    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31mred" in out


WRONG = {  # words → exit code
    "text.mar": 3,
    "empty.mar": 3,
    "folder": 2,
    "http://127.0.0.1:1/x.mar": 3,
    "http://": 3,
    "a.mar b.mar": 2,
    "pipe": 3,
    "/dev/null": 3,
    "x\udcff.mar": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.mar").write_text("hello")
    (tmp_path / "empty.mar").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    outcome = look(*words.split())
    assert (outcome.returncode, outcome.stdout, bool(outcome.stderr)) == (WRONG[words], "", True)
    assert "Traceback" not in outcome.stderr


def test_an_sbom_goes_into_a_pipe_too(mar: Path) -> None:
    done = apart("inspect", str(mar), "--sbom", "/dev/stderr")
    assert json.loads(done.stderr)["bomFormat"] == "CycloneDX"
    assert "probe 1.0" in done.stdout


def test_no_color_is_respected_on_a_terminal(mar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, colored in ((None, True), ("1", False)):
        monkeypatch.delenv("NO_COLOR", raising=False) if value is None else monkeypatch.setenv("NO_COLOR", value)
        with Terminal("inspect", str(mar), forked=False, colors=True) as terminal:
            assert terminal.end() == 0
            assert ("\x1b[" in terminal.seen) is colored
