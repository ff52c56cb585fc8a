"""`marpack check` as one types it: verdicts, exit codes, reports, and twenty mistakes."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from gate.archives import HANDLER, archive, project
from invoking import Invoked, invoke

# Sleeps over the first batch of more than one, and leaves a file that says so.
SLOW = HANDLER.replace(
    "return [self.answer",
    "len(data) > 1 and (open(MARK, 'w').close(), __import__('time').sleep(60))\n        return [self.answer",
)


def marpack(*args: str, **how: Any) -> Invoked:
    return invoke("check", *args, **how)


def verdicts(done: Invoked) -> dict[str, str]:
    return {checked["name"]: checked["verdict"] for checked in json.loads(done.stdout)["checks"]}


@pytest.fixture(scope="module")
def mar(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a sound archive."""
    return str(archive(tmp_path_factory.mktemp("sound")))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an archive that responds to one of the same samples otherwise."""
    return str(archive(tmp_path_factory.mktemp("other"), HANDLER.replace('in "aeiou"', 'in "aeiouy"')))


def test_without_a_source_it_is_the_project_here_built_first(tmp_path: Path):
    folder = project(tmp_path)
    assert marpack(cwd=folder).stderr.startswith("built probe.mar\n")


@pytest.mark.parametrize(
    ("break_it", "code", "failed"),
    [
        (lambda folder: folder.joinpath("probe.mar").write_text("no"), 3, "safe-to-open"),
        (lambda folder: archive(folder, "{}['x']\n" + HANDLER), 4, "loads"),
        (lambda folder: archive(folder, expect={"sky.txt": {"status": 404}}), 1, "samples"),
        (lambda folder: archive(folder, samples={}), 1, "proved"),
    ],
)
def test_a_failure_has_its_exit_code_and_its_reports(
    tmp_path: Path, break_it: Callable[[Path], Any], code: int, failed: str
):
    break_it(tmp_path)
    reports = [word for name in ("report", "junit", "sarif") for word in (f"--{name}", f"out.{name}")]
    done = marpack("probe.mar", "--json", *reports, cwd=tmp_path, code=code)
    assert [name for name, verdict in verdicts(done).items() if verdict == "failed"] == [failed]
    rule = "not-proved" if failed == "proved" else failed
    assert f">{failed}<" in (tmp_path / "out.report").read_text()
    failure = ET.parse(tmp_path / "out.junit").find(f".//testcase[@name='{failed}']/failure")
    assert failure is not None
    assert failure.get("type") == rule
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == rule
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out.junit", "out.report", "out.sarif"]


INPUTS = [
    ["--data", "a bee in summer"],
    ["--form", "data=a bee", "--form", "other=1"],
    ["--requests", "requests.jsonl"],
    ["--input", "bees", "--type", ".txt", "-H", "X-Key=7"],
]


def test_inputs_prove_it(tmp_path: Path):
    path = str(archive(tmp_path, samples={}))
    (tmp_path / "requests.jsonl").write_text('{"body": "a bee", "content_type": "text/plain"}\n')
    (tmp_path / "bees").mkdir()
    (tmp_path / "bees" / "one.txt").write_text("one bee")
    (tmp_path / "bees" / "no.png").write_bytes(b"\xff")
    for words in INPUTS:
        done = marpack(path, *words, "--only", "samples", cwd=tmp_path)
        assert "✓ samples        1 input\n" in done.stdout


def test_inputs_that_cannot_be_read_and_too_many_of_them(tmp_path: Path, mar: str):
    (tmp_path / "requests.jsonl").write_text("{")
    assert "requests.jsonl:1" in marpack(mar, "--requests", "requests.jsonl", cwd=tmp_path, code=2).stderr
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(200 << 20)
    several = [f"--input={large}"] * 3
    told = marpack(mar, *several, "--max-request-size", "1GB", cwd=tmp_path, code=2).stderr
    assert "over 512 MB" in told


def test_only_and_skip(mar: str):
    found = verdicts(marpack(mar, "--json", "--only", "digests", "--only", "manifest"))
    assert [name for name, verdict in found.items() if verdict != "skipped"] == ["digests", "manifest"]
    assert verdicts(marpack(mar, "--json", "--skip", "memory"))["memory"] == "skipped"


def test_the_project_says_how_a_check_weighs(tmp_path: Path):
    writes = HANDLER.replace("return {self", 'open("log.txt", "a")\n        return {self')
    folder = project(tmp_path, writes, checks={"model-folder": "warning"})
    done = marpack("--only", "model-folder", cwd=folder)
    assert re.search("✗ model-folder   1 problem.* warning\n", done.stdout)
    marpack("probe.mar", "--only", "model-folder", cwd=folder, code=1)  # an archive does not weigh its own checks


def test_the_handlers_prints_stay_out_of_the_result(tmp_path: Path):
    path = archive(tmp_path, HANDLER.replace("return {self", 'print("hello", flush=True)\n        return {self'))
    assert verdicts(marpack(str(path), "--json"))["samples"] == "passed"


MISTAKES = [
    "--only sampels",
    "--only loads --skip loads",
    "--report nowhere/out.html",
    "--compile maybe",
    "--tolerance nan",
    "--input nowhere.txt",
    "--requests a.jsonl --data x",
    "--explain",
    "--allow-unproved everything",
    "--device cpu,cpu",
    "--compile on,",
    "--compile on,maybe",
    "--device cpu,cuda --compile on,off",
    "--device cpu,cuda --only loads",
    "--against . --device cpu,cuda",
    "--against gone.mar",
    "--against http://x/y.mar",
    "--against . --only alike --skip alike",
    "--skip alike",
    "--only no-slower",
    "--skip no-slower",
]


def test_a_mistake_names_the_option_or_its_value(mar: str, tmp_path: Path):
    for words in MISTAKES:
        done = marpack(mar, *words.split(), cwd=tmp_path, code=2)
        assert any(word in done.stderr for word in words.split()), words
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_none(tmp_path: Path):
    assert marpack("gone.mar", cwd=tmp_path, code=2).cause == "source-not-found"
    assert marpack(cwd=tmp_path, code=2).cause == "no-project"
    folder = project(tmp_path / "p", checks={"memry": "warning"})
    done = marpack(str(folder), code=2)
    (finding,) = done.error.findings
    assert (finding.code, "memory?" in finding.hint) == ("unknown-key", True)


def test_a_disk_that_is_full_is_said(mar: str):
    done = marpack(mar, "--only", "digests", "--junit", "/dev/full", code=2)
    assert (done.cause, done.error.where) == ("output", "--junit /dev/full")
    assert os.strerror(errno.ENOSPC) in done.stderr


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return str(archive(tmp_path / "slow", SLOW.replace("MARK", repr(str(tmp_path / "asleep")))))


def processes_below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def started(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "marpack", "check", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(slow: str, tmp_path: Path, as_json: bool):
    process = started(slow, "--junit", str(tmp_path / "out.xml"), *(["--json"] if as_json else []))
    assert process.stdout is not None
    while not (tmp_path / "asleep").exists():
        assert process.poll() is None
        time.sleep(0.05)
    children = processes_below(process.pid)
    assert children
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    if as_json:
        report = json.loads(out)
        assert (report["interrupted"], report["deployable"]) == (True, False)
        assert {checked["name"]: checked["verdict"] for checked in report["checks"]}["samples"] == "passed"
    else:
        assert "- batch-contract interrupted\n" in out
    skipped = [
        case.get("name") for case in ET.parse(tmp_path / "out.xml").iter("testcase") if case.find("skipped") is not None
    ]
    assert {"batch-contract", "model-folder"} <= set(skipped)
    assert all(map(gone, children))


def test_a_reader_that_leaves_is_no_failure_of_ours(mar: str):
    process = started(mar)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert "bug" not in err


class TestAgainst:
    """The checks and the comparison with another archive; what it finds is for tests/gate."""

    def test_a_difference_is_in_every_report_and_exit_1(self, mar: str, other: str, tmp_path: Path):
        gate = "--against", other, "--only", "digests", "--json"
        done = marpack(mar, *gate, "--junit", "x.xml", "--sarif", "x.sarif", "--report", "x.html", cwd=tmp_path, code=1)
        told = {checked["name"]: checked for checked in json.loads(done.stdout)["checks"]}
        assert (told["digests"]["verdict"], told["alike"]["verdict"]) == ("passed", "failed")
        comparison = told["alike"]["comparison"]
        assert (comparison["alike"], comparison["counts"]["exact"], len(comparison["results"])) == (False, 2, 3)
        cases = {case.get("name"): case for case in ET.parse(tmp_path / "x.xml").iter("testcase")}
        assert cases["alike"].find("failure") is not None
        (result,) = json.loads((tmp_path / "x.sarif").read_text())["runs"][0]["results"]
        assert (result["ruleId"], result["properties"]["code"]) == ("alike", "differs")
        assert "differs" in (tmp_path / "x.html").read_text()

    def test_a_tolerance_or_a_skipped_comparison_passes(self, mar: str, other: str):
        assert "✓ alike " in marpack(mar, "--against", other, "--only", "alike", "--tolerance", "0.5").stdout
        skipped = marpack(mar, "--against", other, "--only", "digests", "--skip", "alike", "--json")
        assert verdicts(skipped).get("alike", "skipped") == "skipped"

    def test_an_archive_that_check_refuses_is_refused_beside_another_one(self, mar: str, tmp_path: Path):
        damaged = tmp_path / "damaged.mar"
        damaged.write_bytes(Path(mar).read_bytes()[:-40])
        found = verdicts(marpack(str(damaged), "--against", mar, "--json", code=3))
        assert (found["safe-to-open"], found["alike"]) == ("failed", "skipped")


def test_the_severity_of_a_removed_check_is_ignored_with_a_note(tmp_path: Path):
    done = marpack("--only", "digests", cwd=project(tmp_path, checks={"no-slower": "warning"}))
    assert "checks.no-slower is ignored" in " ".join(done.stderr.split())


class TestAcross:
    """Two ways of running one archive, compared."""

    @pytest.mark.parametrize("device", ["cpu,cuda:77", "cuda:77", "mps"])
    def test_a_device_that_is_not_here_is_an_error(self, device: str, mar: str):
        failure = json.loads(marpack(mar, "--device", device, "--json", code=2).stdout)
        assert failure["code"] == "device-unavailable"

    def test_compiled_and_not(self, mar: str):
        report = json.loads(marpack(mar, "--compile", "on,off", "--json").stdout)
        assert [side["name"] for side in report["sides"]] == ["compiled", "not compiled"]
        assert (report["alike"], report["proved"], report["counts"]["exact"]) == (True, True, 3)

    def test_without_samples_there_is_nothing_to_compare(self, tmp_path: Path):
        path = str(archive(tmp_path, samples={}))
        assert "--input" in marpack(path, "--compile", "on,off", code=2).stderr

    def test_what_only_fails_is_not_proved_alike(self, tmp_path: Path):
        (tmp_path / "x.txt").write_text("sea")
        path = str(archive(tmp_path, HANDLER.replace("vowels = ", "vowels = nothing = {}['x'] or ")))
        across = "--compile", "on,off", "--input", "x.txt", "--json"
        report = json.loads(marpack(path, *across, cwd=tmp_path, code=1).stdout)
        assert (report["alike"], report["proved"]) == (True, False)

    def test_ctrl_c_tells_what_was_compared(self, tmp_path: Path):
        hangs = HANDLER.replace("return {self", "__import__('time').sleep('sea' in text and 60)\n        return {self")
        process = started(str(archive(tmp_path, hangs)), "--compile", "on,off")
        assert process.stdout is not None
        process.stdout.readline()
        children = processes_below(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=50)
        assert process.returncode == 130
        assert all(map(gone, children))
