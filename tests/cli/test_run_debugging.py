"""Breakpoints, the debugger, watching, and seeing what a handler gets; on real terminals."""

import json
import os
import re
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest
from cli.running import Terminal, apart, marpack, results
from command import command
from days import by_day

HANDLER = textwrap.dedent(
    """
    import os, sys
    def handle(data, context):
        if data is None:
            print("loading"); return
        print("rows", len(data))
        return [answer(row["body"]) for row in data]

    def answer(body):
        if body == "raise": return fail({"deep": 1})
        if body == "leave": sys.exit(3)
        if body == "stop": breakpoint()
        if body == "where": return os.getcwd()
        return f"{body} from {os.getpid()}" if isinstance(body, str) else "seen"

    def fail(found):
        wanted = "gone"
        return found[wanted]
    """
)


@pytest.fixture
def mar(make_mar) -> str:
    return str(make_mar(HANDLER))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "handler.py").write_text(HANDLER)
    (folder / "marpack.yaml").write_text('name: watched\nversion: "1.0"\nhandler: handler.py\n')
    return folder


def test_in_process_the_answers_are_the_same(mar: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text("a")
    words = ["--input", "a.txt", "--data", "raise", "--data", "leave", "--data", "where", "--data", "raise"]
    ours = json.loads(apart("run", mar, *words, "--in-process", "--json", cwd=tmp_path, code=1).stdout)["results"]
    theirs = results(mar, *words, cwd=tmp_path, code=1)
    assert [item["status"] for item in ours] == [item["status"] for item in theirs] == [200, 503, 500, 200, 503]
    assert [item["troubles"] for item in ours][1] == [item["troubles"] for item in theirs][1]
    assert ours[3]["body"] == theirs[3]["body"]  # the model's folder
    assert "--in-process" in ours[2]["troubles"][0]["hint"]


def test_in_process_prints_stay_out_of_the_result(mar: str):
    done = apart("run", mar, "--data", "a", "--in-process", "--json")
    assert json.loads(done.stdout)["results"][0]["metrics"][0].startswith("PredictionTime")
    assert "loading\n" in done.stderr
    assert "rows 1\n" in done.stderr


def test_a_breakpoint_stops_and_goes_on(mar: str):
    with Terminal("run", mar, "--data", "stop", "--data", "a", "--in-process") as terminal:
        terminal.wait_for(r"\(Pdb\) ")
        terminal.type("up\n")
        terminal.wait_for(r"\(Pdb\) ")
        terminal.type("p body, len(data)\n")
        terminal.wait_for(r"NameError|\('stop'")
        terminal.type("c\n")
        terminal.wait_for(r"data\[1\] +200  a from")
        assert terminal.end() == 0


def test_the_debugger_opens_in_the_authors_frame(mar: str):
    with Terminal("run", mar, "--data", "raise", "--data", "a", "--pdb") as terminal:
        screen = terminal.wait_for(r"\(marpack pdb\) ")
        assert "KeyError: 'gone'" in screen
        assert "handler.py(18)fail()" in screen
        terminal.type("p wanted, found\n")
        terminal.wait_for(r"\('gone', \{'deep': 1\}\)")
        terminal.type("up\n")
        terminal.wait_for(r"answer\(\)")
        terminal.type("c\n")
        terminal.wait_for(r"data\[0\] +503")
        terminal.wait_for(r"data\[1\] +200  a from")
        assert terminal.end() == 1


def test_the_authors_frame_is_found_below_a_librarys(make_mar):
    handler = "import json\ndef handle(data, context):\n    mine = 7\n    return data and [json.loads('{')]\n"
    with Terminal("run", str(make_mar(handler)), "--data", "x", "--pdb") as terminal:
        assert "handler.py(4)handle()" in terminal.wait_for(r"\(marpack pdb\) ")
        terminal.type("p mine\n")
        terminal.wait_for(r"\b7\b")
        terminal.type("q\n")
        assert terminal.end() == 130


def test_the_debugger_opens_where_loading_fails(make_mar):
    handler = "def handle(data, context):\n    fate = 'sealed'\n    raise OSError('no disk')\n"
    with Terminal("run", str(make_mar(handler)), "--data", "x", "--pdb") as terminal:
        terminal.wait_for(r"\(marpack pdb\) ")
        terminal.type("p fate\n")
        terminal.wait_for("'sealed'")
        terminal.type("q\n")
        assert terminal.end() == 4


def test_what_the_handler_gets_is_shown_without_hidden_fields(mar: str, tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(bytes(range(200, 250)))
    done = marpack(
        "run", mar, "--show-data", "-H", "Authorization=Bearer abc", "-H", "X=y", "--input", "a.bin",
        "--data", '{"user": "me", "token": "hidden-1", "deep": {"cookie": "hidden-2", "n": [1, 2]}}',
        "--data", "raise", "--data", "leave", cwd=tmp_path, code=1,
    )  # fmt: skip
    assert "> 0 body: bytearray of 50 bytes, c8 c9 ca" in done.stdout
    assert "{user: 'me', token: •••, deep: {cookie: •••, n: [1, 2]}}" in done.stdout
    assert "X: 'y', Authorization: •••" in done.stdout or "Authorization: •••, X: 'y'" in done.stdout
    assert "> 0 body: str 'raise'" in done.stdout
    assert "> 0 body: str 'leave'" in done.stdout  # although its worker died of it
    assert "hidden" not in done.stdout + done.stderr
    assert "abc" not in done.stdout
    (item,) = results(mar, "--data", "a", "--show-data")
    assert item["data"][0] == "0 body: str 'a'"
    done = apart("run", mar, "--data", "a", "--data", "b", "--show-data", "--in-process", "--json")
    items = json.loads(done.stdout)["results"]
    assert [[line for line in item["data"] if " body: " in line] for item in items] == [
        ["0 body: str 'a'"],
        ["0 body: str 'b'"],
    ]


def test_a_project_runs_without_packing(project: Path):
    done = marpack("run", "--unpacked", "--data", "raise", cwd=project, code=1)
    assert f"{project}/handler.py:18 in fail" in done.stdout  # the author's own file
    assert list(project.glob("*.mar")) == []
    (project / "marpack.yaml").write_text("name: watched\nversion: '1.0'\nhandler: gone.py\n")
    assert "gone.py" in marpack("run", "--unpacked", "--data", "x", cwd=project, code=2).stderr


def test_a_change_of_the_project_is_answered_at_once(project: Path):
    with Terminal("run", "--watch", "--data", "a", cwd=project) as terminal:
        terminal.wait_for(r"data\[0\] +200  a from[\s\S]*Ctrl-C ends", seconds=60)
        change(project, "from {os.getpid()}", "FROM {os.getpid()}")
        terminal.wait_for(r"handler\.py changed at")
        screen = terminal.wait_for(r"data\[0\] +200  a FROM[\s\S]*Ctrl-C ends")
        assert re.search(r"\d s after", screen)
        change(project, "def answer", "def answer(")
        terminal.wait_for(r"source-syntax[\s\S]*Ctrl-C ends")
        change(project, "def answer((", "def answer(")
        terminal.wait_for(r"data\[0\] +200  a FROM[\s\S]*Ctrl-C ends")
        (project / "marpack.yaml").write_text("name: [\n")
        terminal.wait_for(r"marpack\.yaml changed[\s\S]*Ctrl-C ends")
        (project / "marpack.yaml").write_text('name: watched\nversion: "1.0"\nhandler: handler.py\n')
        terminal.wait_for(r"data\[0\] +200  a FROM[\s\S]*Ctrl-C ends")
        workers = children(terminal.process.pid)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        for worker in workers:
            assert not Path(f"/proc/{worker}").exists()


def change(project: Path, before: str, after: str) -> None:
    text = (project / "handler.py").read_text()
    assert before in text
    (project / "handler.py").write_text(text.replace(before, after))


def children(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [inner for child in found for inner in children(child)]


@pytest.mark.slow
def test_a_change_ends_the_round_that_is_under_way(project: Path):
    text = HANDLER.replace("return [answer", "__import__('time').sleep(1)\n    return [answer")
    (project / "handler.py").write_text(text)
    words = [word for number in range(100) for word in ("--data", f"n{number}")]
    with Terminal("run", "--watch", "--unpacked", *words, cwd=project) as terminal:
        terminal.wait_for("n1 from")
        (project / "handler.py").write_text(HANDLER.replace("from {", "at last {"))
        terminal.wait_for("n99 at last", seconds=60)  # at one a second it would take longer
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130


def test_inputs_are_watched_and_wrong_usage_still_ends_at_once(mar: str, tmp_path: Path):
    gone = {"input-not-found": (mar, "--input", "gone"), "source-not-found": ("gone.mar", "--data", "x")}
    for cause, words in gone.items():
        assert marpack("run", *words, "--watch", cwd=tmp_path, code=2).cause == cause
    (tmp_path / "in.txt").write_text("one")
    (tmp_path / "field.txt").write_text("a field")
    with Terminal("run", mar, "--watch", "--input", "in.txt", "--form", "body=@field.txt", cwd=tmp_path) as terminal:
        terminal.wait_for(r"one from[\s\S]*a field from[\s\S]*Ctrl-C ends")
        (tmp_path / "in.txt").write_text("two")
        terminal.wait_for(r"two from[\s\S]*Ctrl-C ends")
        (tmp_path / "field.txt").write_text("another")
        terminal.wait_for(r"another from[\s\S]*Ctrl-C ends")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.end() == 130


def test_a_watch_ends_with_whoever_reads_it(mar: str):
    words = command("run", mar, "--watch", "--data", "a")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        try:
            assert b"200" in watch.stdout.readline()
            watch.stdout.close()
            assert watch.wait(30) == 1
        finally:
            watch.kill()
        assert b"error" not in watch.stderr.read()


@pytest.mark.slow
def test_each_rounds_worker_has_torch_before_there_is_a_model(project: Path):
    asks = HANDLER.replace("{os.getpid()}", "0 torch {HAD_TORCH}")
    (project / "handler.py").write_text("import sys\nHAD_TORCH = 'torch' in sys.modules\n" + asks)
    with Terminal("run", "--watch", "--data", "a", cwd=project, forked=False) as terminal:
        for number in range(3):  # saved faster than torch can be imported: the next worker is waited for
            terminal.wait_for(rf"a from {number} torch True[\s\S]*Ctrl-C ends", seconds=120)
            change(project, f"from {number} torch", f"from {number + 1} torch")
        terminal.wait_for("a from 3 torch True")


@pytest.mark.parametrize("sign", by_day(["SIGINT", "SIGTERM", "SIGKILL"]))
def test_no_worker_outlives_a_watch(project: Path, sign: str):
    with Terminal("run", "--watch", "--workers", "2", "--data", "a", cwd=project, forked=False) as terminal:
        terminal.wait_for(r"a from[\s\S]*Ctrl-C ends", seconds=60)
        workers = children(terminal.process.pid)
        assert len(workers) == 4  # the spare ones, each with its supervisor
        terminal.process.send_signal(signal.Signals[sign])
        terminal.end()
    until = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)
