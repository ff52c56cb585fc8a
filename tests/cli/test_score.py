"""`marpack score`: its tables, exit codes and streams, and what a signal or a full disk leaves."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.running import marpack
from command import command
from conformance.forking import shared
from invoking import Invoked
from lazy import pa, pq

from marpack.errors import MarpackError
from marpack.scoring.plan import ScoreSummary

# Answers each row with what it got; "raise" spoils its batch, "die" its worker, "text 100" waits for a file.
ECHO = """
import os, time

GATE = {gate!r}

def handle(data, context):
    if data is None:
        return None
    bodies = [row.get("body") for row in data]
    texts = [body if isinstance(body, str) else "" for body in bodies]
    while GATE and "text 100" in texts and not os.path.exists(GATE):
        time.sleep(0.01)
    if "raise" in texts:
        raise ValueError("this one is bad")
    if "die" in texts:
        os._exit(3)
    return [{{"got": body}} for body in bodies]
"""
Score = Callable[..., Invoked]
Refused = Callable[..., MarpackError]


@pytest.fixture
def echo(make_mar) -> str:
    return str(make_mar(ECHO.format(gate="")))


@pytest.fixture
def slow(make_mar, tmp_path: Path) -> str:
    return str(make_mar(ECHO.format(gate=str(tmp_path / "open"))))


@pytest.fixture
def score(tmp_path: Path) -> Score:
    return lambda *args, code=0, **options: marpack("score", *map(str, args), cwd=tmp_path, code=code, **options)


def texts(folder: Path, values: list[str], name: str = "t.parquet") -> Path:
    pq.write_table(pa.table({"id": range(len(values)), "t": values}), folder / name, row_group_size=50)
    return folder / name


def scored(folder: Path) -> list[dict[str, Any]]:
    parts = sorted(folder.glob("part-*.parquet"))
    rows: list[dict[str, Any]] = pa.concat_tables([pq.read_table(part) for part in parts]).to_pylist()
    return rows


def test_columns_become_an_object_and_json_without_any_is_the_summary(
    echo: str, tmp_path: Path, score: Score, refused: Refused
):
    (tmp_path / "t.csv").write_text("name,age\nann,3\nbob,x\n")
    asked = ["--input", "t.csv", "--json", "name", "age", "--type", "age=int", "--select", "got=got:json"]
    done = score(echo, *asked, "--output", "out", "--json", code=1)
    assert done.stderr == ""
    summary = msgspec.json.decode(done.stdout, type=ScoreSummary)
    assert (summary.inputs, summary.rows, summary.answered, summary.failed) == (("t.csv",), 2, 1, 1)
    first, second = scored(tmp_path / "out")
    assert json.loads(first["got"]) == {"name": "ann", "age": 3}
    assert (second["got"], second["status"], "age" in second["error"]) == (None, 0, True)
    assert refused(echo, *asked, "--output", "out").code == "folder-not-empty"
    assert refused(echo, *asked, "--output", "out", "--resume", "--isolate").code == "resume-mismatch"


def started(folder: Path, *args: object) -> subprocess.Popen[str]:
    """Start scoring, and wait until two parts are whole."""
    process = subprocess.Popen(
        command("score", *map(str, args)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while len(list(folder.glob("out/part-*"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)
    return process


def test_ctrl_c_leaves_whole_parts_and_the_rest_is_scored_later(slow: str, tmp_path: Path, score: Score):
    texts(tmp_path, [f"text {each}" for each in range(200)])
    asked = [slow, "--input", "t.parquet", "--text", "t", "--keep", "t", "--select", "got=got", "--output", "out"]
    asked += ["--part-rows", "20", "--batch-size", "10", "--json"]
    with started(tmp_path, *asked) as process:
        process.send_signal(signal.SIGINT)
        said, aside = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(said)["code"] == "interrupted"
    assert "with --resume" in json.loads(said)["hint"]
    assert aside.splitlines()[0] == "error: interrupted"
    assert not list(tmp_path.glob("out/.*"))
    before = len(scored(tmp_path / "out"))
    assert before in range(40, 120, 20)
    (tmp_path / "open").touch()
    summary = json.loads(score(*asked, "--resume").stdout)
    assert (summary["rows_before"], summary["rows"]) == (before, 200 - before)
    rows = scored(tmp_path / "out")
    assert [row["row"] for row in rows] == list(range(200))
    assert all(row["got"] == row["t"] == f"text {row['row']}" for row in rows)


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Return a function that runs the command where no model may be loaded, and returns its error."""

    def started(_: object) -> None:
        raise AssertionError("a model is loaded")

    def end(*args: str) -> MarpackError:
        before = sorted(tmp_path.rglob("*"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("marpack.runner.pool.LocalPool.start", started)
            done = marpack("score", *args, cwd=tmp_path, code=2)
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) <= 3  # where, and a hint
        assert sorted(tmp_path.rglob("*")) == before
        assert done.error is not None
        return done.error

    return end


def test_too_many_failures_end_it(echo: str, tmp_path: Path, score: Score):
    texts(tmp_path, ["raise" if each in range(10, 20) else "fine" for each in range(200)])
    done = score(echo, "--input", "t.parquet", "--text", "t", "--output", "out", "--part-rows", 20, "--json",
                 "--max-errors", 9, code=1)  # fmt: skip
    summary = json.loads(done.stdout)
    assert (summary["failed"], summary["exceeded"], summary["complete"]) == (10, True, False)
    assert (summary["rows"], summary["causes"][0]["rows"]) == (20, 10)
    assert [row["row"] for row in scored(tmp_path / "out")] == list(range(20))


def test_a_worker_that_cannot_be_loaded_again_is_exit_4(make_mar, tmp_path: Path, score: Score):
    once = f"""
import os
if os.path.exists({str(tmp_path / "loaded")!r}):
    raise RuntimeError("not again")
open({str(tmp_path / "loaded")!r}, "w")
"""
    texts(tmp_path, [*["fine"] * 30, "die", "fine"])
    asked = [make_mar(once + ECHO.format(gate="")), "--input", "t.parquet", "--text", "t", "--output", "out"]
    done = score(*asked, "--part-rows", 10, "--json", code=4)
    failure = json.loads(done.stdout)
    assert (failure["code"], failure["trouble"]["message"]) == ("load", "not again")
    assert len(list(tmp_path.glob("out/part-*"))) == 3
    done = score(*asked, "--part-rows", 10, "--resume", code=4)
    assert "not again" in done.stderr
    assert "with --resume" in done.stderr


def test_a_full_disk_is_said_and_leaves_whole_parts_and_torch_is_never_imported(echo: str, tmp_path: Path):
    texts(tmp_path, [*["a"] * 20, os.urandom(100_000).hex(), *["b"] * 20])
    code = "import command, sys\ntry: command.run_with_forks(sys.argv.pop(1))\nfinally: print('torch' in sys.modules)"
    asked = ["score", echo, "--input", "t.parquet", "--text", "t", "--output", "out", "--part-rows", "20"]
    done = subprocess.run(
        [sys.executable, "-c", code, shared().address, *asked],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert (done.returncode, done.stdout) == (1, "False\n")
    assert done.stderr.splitlines()[0].endswith(f": {os.strerror(errno.EFBIG)}")
    assert "with --resume" in done.stderr
    assert [row["row"] for row in scored(tmp_path / "out")] == list(range(20))
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["part-00000-000000000000.parquet"]


T = "--input t.parquet --text t"
WRONG = [
    "--text t --output out",
    "--input --output out",
    T,
    "--input t.parquet --output out",
    f"{T} --body t --output out",
    "--input bad.parquet --text t --output out",
    "--input t.parquet t.parquet --text t --output out",
    "--input t.parquet --text tt --output out",
    f"{T} --keep ids --output out",
    f"{T} --select a --output out",
    f"{T} --select a=b a=c --output out",
    f"{T} --type t=int --output out",
    "--input t.parquet --path t --root none --output out",
    f"{T} --allow-private --output out",
    f"{T} --max-errors 101% --output out",
    f"{T} --device cuda:77 --output out",
    f"none.mar {T} --output out",
    f"{T} --output t.parquet",
    f"{T} --output .",
    f"{T} --output . --resume",
]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_is_refused_before_a_model_is_loaded(words: str, echo: str, tmp_path: Path, refused: Refused):
    texts(tmp_path, ["a"])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    assert refused(*words.split(), *(() if "none.mar" in words else (echo,)))
