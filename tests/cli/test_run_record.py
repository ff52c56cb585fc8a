"""`marpack run --record`: samples and expectations in marpack.yaml, from answers."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from command import command
from gate.archives import HANDLER, project
from invoking import invoke as marpack

REFUSAL = """
        if "no" in text:
            context.set_response_status(400, "no", index)
            return "no, thanks"
"""
REFUSING = HANDLER.replace("        vowels", f"{REFUSAL}        vowels")


def samples(folder: Path) -> dict[str, dict]:
    told = yaml.safe_load((folder / "marpack.yaml").read_text())
    return {sample["input"]: sample.get("expect") for sample in told["samples"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = project(tmp_path / "project", REFUSING, samples={"bee.txt": "bee"})
    file = path / "marpack.yaml"
    file.write_text("# ours\n" + file.read_text())
    return path


def test_what_is_recorded_is_what_check_then_holds_to(folder: Path):
    (folder / "samples" / "sky.txt").write_text("sky")
    (folder / "samples" / "no.txt").write_text("no")
    done = marpack("run", "--record", "--input", "samples", cwd=folder)
    assert "2 added, 1 filled in" in done.stderr
    assert samples(folder) == {
        "samples/bee.txt": {
            "status": 200,
            "json": {
                "vowel": {"approx": 0.666667, "tolerance": 0.001},
                "other": {"approx": 0.333333, "tolerance": 0.001},
            },
        },
        "samples/no.txt": {"status": 400, "body": "no, thanks"},
        "samples/sky.txt": {
            "status": 200,
            "json": {"vowel": {"approx": 0.0, "tolerance": 0.001}, "other": {"approx": 1.0, "tolerance": 0.001}},
        },
    }
    assert (folder / "marpack.yaml").read_text().startswith("# ours\n")
    marpack("check", cwd=folder)


def test_without_inputs_the_projects_own_samples_are_asked(folder: Path):
    done = marpack("run", "--record", cwd=folder)
    assert "1 filled in" in done.stderr
    assert "filled in samples/bee.txt: {status: 200, json: {vowel: {approx: 0.666667, tolerance: 0.001}" in done.stderr
    before = (folder / "marpack.yaml").read_bytes()
    again = marpack("run", "--record", "--json", cwd=folder)
    assert "1 met" in again.stderr
    assert json.loads(again.stdout)["summary"]["inputs"] == 1
    assert (folder / "marpack.yaml").read_bytes() == before


def test_without_inputs_there_is_nothing_to_record(folder: Path, tmp_path: Path):
    marpack("build", cwd=folder)
    empty = project(tmp_path / "empty", samples={})
    for source in ("project/probe.mar", str(empty)):
        assert marpack("run", source, "--record", cwd=tmp_path, code=2).cause == "nothing-to-record"


@pytest.fixture
def mar(folder: Path, tmp_path: Path) -> Path:
    """Return an archive of its own, beside which lies an input."""
    marpack("build", "-o", "../bare.mar", cwd=folder)
    (tmp_path / "sky.txt").write_text("sky")
    return tmp_path / "bare.mar"


def test_of_an_archive_a_project_is_made_with_the_answers_as_its_samples(mar: Path, tmp_path: Path):
    done = marpack("run", "bare.mar", "--record", "-i", "sky.txt", "--data", "summer", cwd=tmp_path)
    assert "2 added" in done.stderr
    assert done.stderr.endswith("\nnext  marpack check probe\n")
    made = samples(tmp_path / "probe")
    packed, sky, summer = made
    assert (packed, sky) == ("samples/bee.txt", "samples/sky.txt")  # the archive's own come first
    assert made[sky]["json"]["other"] == {"approx": 1.0, "tolerance": 0.001}
    assert (tmp_path / "probe" / summer).read_text() == "summer"
    checked = marpack("check", "probe", "--only", "samples", cwd=tmp_path)
    assert "3 samples" in checked.stdout
    again = marpack("run", "bare.mar", "--record", "-i", "sky.txt", cwd=tmp_path, code=2)
    assert again.cause == "output-exists"
    assert "marpack run probe --record" in again.stderr


def test_of_an_archive_without_an_answer_no_project_is_made(mar: Path, tmp_path: Path):
    (tmp_path / "empty.txt").write_text("")
    before = sorted(tmp_path.iterdir())
    done = marpack("run", "bare.mar", "--record", "-i", "empty.txt", cwd=tmp_path, code=1)
    assert re.search("not recorded samples/empty.txt: .*503", done.stderr)
    assert sorted(tmp_path.iterdir()) == before


def test_what_was_answered_before_ctrl_c_is_a_project(mar: Path, tmp_path: Path):
    (tmp_path / "halt.txt").write_text("halt")
    handler = REFUSING.replace(
        "        vowels", '        "halt" in text and __import__("time").sleep(60)\n        vowels'
    )
    folder = project(tmp_path / "slow", handler, samples={}, name="slow_one")
    marpack("build", "-o", "../slow.mar", cwd=folder)
    args = command("run", "slow.mar", "--record", "-i", "sky.txt", "halt.txt")
    with subprocess.Popen(args, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "sky.txt" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "next  marpack check slow_one" in told
    assert list(samples(tmp_path / "slow_one")) == ["samples/sky.txt"]
