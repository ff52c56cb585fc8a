"""Where results go: a table, files, a journal, JSON that streams."""

import errno
import json
import os
import signal
import subprocess
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest
from cli.running import marpack, results
from command import command

from marpack.render.run import BenchmarkReport, RunReport
from marpack.runner.results import Result

HANDLER = textwrap.dedent(
    """
    import base64, os, time
    PNG = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    )
    def handle(data, context):
        if data is None: return
        return [answer(row["body"], context, index) for index, row in enumerate(data)]

    def answer(body, context, index):
        if body == "raise": return {}["gone"]
        if body == "exit": os._exit(1)
        while body == "waits" and not os.path.exists(os.environ["OPEN"]): time.sleep(0.05)
        if body == "png": return PNG
        if body == "html":
            context.set_response_content_type(index, "text/html; charset=utf-8")
            return "<p>hi</p>"
        return {"body": body} if body == "json" else body
    """
)


@pytest.fixture
def mar(make_mar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPEN", str(tmp_path / "open"))
    return str(make_mar(HANDLER))


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_body_goes_to_a_file_under_its_own_suffix(mar: str, tmp_path: Path):
    for name, text in (("a", "json"), ("b", "text"), ("c", "png"), ("d", "html"), ("e", "raise")):
        (tmp_path / f"{name}.txt").write_text(text)
    told = results(mar, "--input", "a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "--output", "out", cwd=tmp_path, code=1)
    files = written(tmp_path / "out")
    assert list(files) == ["a.txt.json", "b.txt.txt", "c.txt.png", "d.txt.html", "e.txt.json"]
    assert files["b.txt.txt"] == b"text"
    assert files["c.txt.png"].startswith(b"\x89PNG")
    assert [item["file"] for item in told] == [f"out/{name}" for name in files]


def test_a_run_that_broke_off_is_resumed(mar: str, tmp_path: Path):
    for number, body in enumerate(["text", "raise", "text", "waits", "text", "text"]):
        (tmp_path / f"{number}.txt").write_text(body)
    names = [f"{number}.txt" for number in range(6)]
    words = ["run", mar, "--input", *names, "--resume", "r.jsonl"]
    process = subprocess.Popen(command(*words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(line.startswith("2.txt") for line in process.stdout)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (tmp_path / "open").touch()
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [json.loads(line)["input"] for line in lines] == ["0.txt", "1.txt", "2.txt"]
    (tmp_path / "r.jsonl").write_text("\n".join([*lines, lines[0][:40]]))  # killed in the middle of a line

    assert "3 answered before" in marpack(*words, cwd=tmp_path, code=1).stderr
    told = [json.loads(line)["input"] for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert told == names
    assert "6 answered before, 0 inputs" in marpack(*words, cwd=tmp_path, code=1).stderr


def test_results_of_another_run_are_not_taken_for_this_ones(make_mar, mar: str, tmp_path: Path):
    log, other = tmp_path / "r.jsonl", str(make_mar(HANDLER + "#", name="other"))
    words = ["--resume", str(log), "--json"]
    marpack("run", mar, "--data", "text", *words)
    before = log.read_bytes()
    again = json.loads(marpack("run", mar, "--data", "text", *words, "--timeout", "9", "--workers", "2").stdout)
    assert (again["summary"]["before"], again["summary"]["inputs"]) == (1, 0)
    for changed in ([mar, "--data", "other"], [other, "--data", "text"]):
        assert json.loads(marpack("run", *changed, *words, code=2).stdout)["code"] == "resume-mismatch"
    assert log.read_bytes() == before


def test_json_is_one_document_whatever_happens(mar: str):
    report = json.loads(marpack("run", mar, "--requests", "-", "--json", stdin="").stdout)
    assert (report["results"], report["summary"]["inputs"], report["interrupted"]) == ([], 0, False)


@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_what_ends_a_run_in_its_middle_is_told_after_what_is_answered(mar: str, tmp_path: Path, form: str):
    (tmp_path / "a.txt").write_text("a")
    names = f"{tmp_path}/a.txt\n".encode() * 1_000
    (tmp_path / "list").write_bytes(names + b"\xff\n")  # read piece by piece
    done = marpack("run", mar, "--input", f"@{tmp_path}/list", form, code=2)
    if form == "--json":
        report = json.loads(done.stdout)
        told, failure = report["results"], report["failure"]
        assert report["summary"]["inputs"] == len(told)
    else:
        *told, failure = map(json.loads, done.stdout.splitlines())
    assert {item["status"] for item in told} == {200}
    assert failure["code"] == done.cause == "unreadable-input-list"
    assert f"{tmp_path}/list" in done.stderr


def test_a_disk_that_is_full_for_the_log_is_said_and_what_is_answered_is_told(mar: str, tmp_path: Path):
    log = tmp_path / "r.jsonl"
    words = command("run", mar, *["--data", "a"] * 30, "--resume", str(log), "--json")
    limited = ["bash", "-c", "trap '' XFSZ; ulimit -f 2; \"$@\" | cat", "bash", *words]  # cat's is no file
    done = subprocess.run(limited, capture_output=True, text=True)
    assert f": {os.strerror(errno.EFBIG)}\n  where: {log}" in done.stderr
    assert "bug" not in done.stderr
    whole = log.read_bytes().splitlines()[:-1]
    assert 0 < len(whole) < 30
    report = json.loads(done.stdout)
    assert len(report["results"]) == len(whole)
    assert report["failure"]["where"] == str(log)


def test_a_worker_that_cannot_be_restarted_ends_lines_with_a_line(make_mar, tmp_path: Path):
    handler = f"""
import os
def handle(data, context):
    if data is None:
        if os.path.exists({str(tmp_path / "once")!r}): os._exit(9)
        open({str(tmp_path / "once")!r}, "w").close()
        return
    if data[0]["body"] == "exit": os._exit(1)
    return data[0]["body"] and ["ok"]
"""
    done = marpack("run", str(make_mar(handler)), "--data", "a", "--data", "exit", "--data", "b", "--jsonl", code=4)
    answered, failure = map(json.loads, done.stdout.splitlines())
    assert (answered["status"], failure["code"]) == (200, "worker")
    assert "exit code 9 while loading" in failure["error"]


@pytest.mark.parametrize("form", ["--jsonl", "--json"])
def test_an_answer_is_written_while_the_next_is_not_there_yet(
    mar: str, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    words = command("run", mar, "--data", "first", "--data", "waits", form)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        too_late = threading.Timer(20, process.kill)
        too_late.start()
        seen = next((line for line in process.stdout if '"first"' in line), None)
        (tmp_path / "open").touch()
        assert "waits" in process.stdout.read()
        too_late.cancel()
    assert seen is not None
    assert "waits" not in seen


@pytest.mark.slow
def test_many_inputs_need_no_more_memory_than_few(mar: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text("x" * 1000)

    def most_memory(count: int, *form: str) -> int:
        (tmp_path / "list").write_text(f"{tmp_path}/a.txt\n" * count)
        words = command("run", mar, "--input", f"@{tmp_path}/list", *form)
        nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=nowhere)
        _, status, usage = os.wait4(pid, 0)
        assert status == 0
        return usage.ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024)

    for form in ([], ["--json"]):
        few, many = most_memory(10, *form), most_memory(20_000, *form)
        assert many < few + (6 << 20), f"{form}: {few >> 10} KiB for 10 inputs, {many >> 10} KiB for 20,000"


def test_what_is_written_is_what_the_schemas_promise(mar: str):
    words = ["--data", "json", "--data", "png", "--data", "raise", "--data", "exit", "--show-data"]
    report = msgspec.json.decode(marpack("run", mar, *words, "--json", code=1).stdout, type=RunReport)
    assert [result.status for result in report.results] == [200, 200, 503, 500]
    assert (report.summary.restarts, report.summary.peak_memory > 1 << 20) == (1, True)
    assert "initialize" in report.summary.load
    for line in marpack("run", mar, *words, "--jsonl", code=1).stdout.splitlines():
        assert msgspec.json.decode(line, type=Result).input.startswith("data[")
    figures = marpack("run", mar, "--data", "a", "--repeat", "2", "--json").stdout
    report = msgspec.json.decode(figures, type=BenchmarkReport)
    assert (report.figures.repeat, report.figures.warmup, report.figures.paces[0].inputs) == (2, 1, 2)
