"""`marpack run --record`: samples and expectations in marpack.yaml, from answers."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from command import command
from gate.archives import HANDLER, project

REFUSAL = """
        if "no" in text:
            context.set_response_status(400, "no", index)
            return "no, thanks"
"""
REFUSING = HANDLER.replace("        vowels", f"{REFUSAL}        vowels")


def marpack(*args: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(*args), cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done


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
    assert "2 added, 1 updated" in done.stderr
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
    assert "may be deployed" in marpack("check", cwd=folder).stdout


def test_without_inputs_the_projects_own_samples_are_asked(folder: Path):
    assert "1 updated" in marpack("run", "--record", cwd=folder).stderr
    before = (folder / "marpack.yaml").read_bytes()
    assert "1 met" in marpack("run", "--record", cwd=folder).stderr
    assert (folder / "marpack.yaml").read_bytes() == before


def test_an_expectation_that_is_met_stays_as_it_was_written(folder: Path):
    file = folder / "marpack.yaml"
    file.write_text(file.read_text().replace("samples/bee.txt", "samples/bee.txt\n  expect: {text: vowel} # enough"))
    before = file.read_bytes()
    marpack("run", "--record", cwd=folder)
    assert file.read_bytes() == before


def test_inputs_from_elsewhere_are_copied_unless_something_is_in_their_place(folder: Path, tmp_path: Path):
    (tmp_path / "sky.txt").write_text("sky")
    (tmp_path / "bee.txt").write_text("another bee")
    done = marpack(
        "run", str(folder), "--record", "-i", "sky.txt", "bee.txt", "--data", '{"a": 1}', cwd=tmp_path, code=1
    )
    assert (folder / "samples" / "sky.txt").read_text() == "sky"
    assert (folder / "samples" / "bee.txt").read_text() == "bee"
    assert "not recorded samples/bee.txt: there is another file of that name in the project" in done.stderr
    assert "not recorded samples/recorded-" in done.stderr  # a 503
    assert list(samples(folder)) == ["samples/bee.txt", "samples/sky.txt"]


def test_text_given_as_such_becomes_a_file(folder: Path):
    marpack("run", "--record", "--data", "summer", "--data", "summer", cwd=folder)
    (name,) = [name for name in samples(folder) if "recorded" in name]
    assert (folder / name).read_text() == "summer"
    assert name.endswith(".txt")


def test_an_answer_of_the_servers_is_nothing_to_hold_on_to(folder: Path):
    (folder / "samples" / "empty.txt").write_text("")
    before = (folder / "marpack.yaml").read_bytes()
    done = marpack("run", "--record", "-i", "samples/empty.txt", cwd=folder, code=1)
    assert "a 503 is no answer to hold on to" in done.stderr
    assert (folder / "marpack.yaml").read_bytes() == before


def test_stdout_holds_the_result_and_nothing_else(folder: Path):
    assert json.loads(marpack("run", "--record", "--json", cwd=folder).stdout)["summary"]["inputs"] == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--form", "data=x"], "--record does not go with --form"),
        (["-i", "samples", "--header", "A=b"], "--record does not go with --header"),
        (["-i", "samples", "--content-type", "text/plain"], "--record does not go with --content-type"),
        (["-i", "samples", "--explain"], "--record does not go with --explain"),
        (["-i", "samples", "--repeat", "2"], "--repeat"),
        (["-i", "gone.txt"], "there is no such input"),
    ],
)
def test_what_no_sample_can_keep_is_refused(folder: Path, args: list[str], words: str):
    before = (folder / "marpack.yaml").read_bytes()
    assert words in marpack("run", "--record", *args, cwd=folder, code=2).stderr
    assert (folder / "marpack.yaml").read_bytes() == before


def test_only_a_project_can_be_written_into(folder: Path, tmp_path: Path):
    marpack("build", cwd=folder)
    done = marpack("run", "project/probe.mar", "--record", "--data", "x", cwd=tmp_path, code=2)
    assert "this is no project" in done.stderr
    empty = project(tmp_path / "empty", samples={})
    assert "there is nothing to record" in marpack("run", str(empty), "--record", cwd=tmp_path, code=2).stderr
