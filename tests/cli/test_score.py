"""`marpack score` as a process of its own: every row once and in order, whatever ends it."""

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
from cli.running import Terminal, marpack
from command import command
from invoking import Invoked
from lazy import pa, pq

from marpack.errors import MarpackError
from marpack.scoring.plan import ScoreSummary

EXAMPLES = Path(__file__).parents[2] / "examples"
# Answers each row with what it got; "raise" spoils its batch, "die" its worker, "text 100" waits for a file, and a
# batch takes as long as is said.
ECHO = """
import os, time

PAUSE, GATE = {pause}, {gate!r}

def handle(data, context):
    if data is None:
        return None
    time.sleep(PAUSE)
    bodies = [row.get("body") for row in data]
    texts = [body if isinstance(body, str) else "" for body in bodies]
    while GATE and "text 100" in texts and not os.path.exists(GATE):
        time.sleep(0.01)
    if "raise" in texts:
        raise ValueError("this one is bad")
    if "die" in texts:
        os._exit(3)
    threads = os.environ.get("OMP_NUM_THREADS")
    return [{{"got": body, "size": len(data), "threads": threads}} for body in bodies]
"""
Score = Callable[..., Invoked]
Refused = Callable[..., MarpackError]


@pytest.fixture
def echo(make_mar) -> str:
    return str(make_mar(ECHO.format(pause=0, gate="")))


@pytest.fixture
def slow(make_mar, tmp_path: Path) -> str:
    return str(make_mar(ECHO.format(pause=0.05, gate=str(tmp_path / "open"))))


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


def numbers(folder: Path) -> list[int]:
    return [row["row"] for row in scored(folder)]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("digits") / "digits.mar"
    marpack("build", str(EXAMPLES / "digits"), "--output", str(path))
    return str(path)


def test_pictures_in_parquet_become_their_digits(digits: str, tmp_path: Path, score: Score):
    files = sorted((EXAMPLES / "digits" / "samples").glob("*.png"))
    names, pictures = [file.stem for file in files] * 4, [file.read_bytes() for file in files] * 4
    pq.write_table(pa.table({"name": names, "png": pictures}), tmp_path / "scans.parquet")
    done = score(digits, "--input", "scans.parquet", "--body", "png", "--keep", "name", "--output", "out",
                 "--batch-size", 32, "--select", "all=$:json", 'seven=["7"]:float')  # fmt: skip
    rows = scored(tmp_path / "out")
    assert list(rows[0]) == ["row", "name", "all", "seven", "status", "error"]
    assert [row["name"] for row in rows] == names
    likeliest = {row["name"]: max(answer := json.loads(row["all"]), key=answer.get) for row in rows}
    assert (likeliest["seven"], likeliest["two-2"], likeliest["zero"]) == ("7", "2", "0")
    assert all(row["seven"] == json.loads(row["all"]).get("7") for row in rows)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["scored", "rows", "answered", "output"]
    assert lines[1].split()[1] == lines[2].split()[1] == "48"
    assert lines[3] == "  output   1 part"
    assert done.stderr == ""


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


def test_inputs_are_told_apart_and_bounded_together(echo: str, tmp_path: Path, score: Score):
    texts(tmp_path, ["a", "b"], "1.parquet")
    texts(tmp_path, ["c", "d"], "2.parquet")
    score(echo, "--input", "1.parquet", "2.parquet", "--text", "t", "--select", "got=got",
          "threads=threads", "--limit", 3, "--workers", 2, "--output", "out")  # fmt: skip
    rows = scored(tmp_path / "out")
    assert [(row["input"], row["row"], row["got"]) for row in rows] == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c")]
    cores = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {row["threads"] for row in rows} == {os.environ.get("OMP_NUM_THREADS", str(cores))}  # two workers share them


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


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_what_ends_it_leaves_whole_parts_and_the_rest_is_scored_later(
    slow: str, tmp_path: Path, score: Score, number: int, code: int
):
    texts(tmp_path, [f"text {each}" for each in range(200)])
    asked = [slow, "--input", "t.parquet", "--text", "t", "--keep", "t", "--select", "got=got", "--output", "out"]
    asked += ["--part-rows", "20", "--batch-size", "10", "--json"]
    with started(tmp_path, *asked) as process:
        process.send_signal(number)
        said, aside = process.communicate(timeout=30)
    assert process.returncode == code
    if code == 130:
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


def test_only_the_same_run_goes_on(echo: str, make_mar, tmp_path: Path, score: Score, refused: Refused):
    texts(tmp_path, ["a", "b"])
    other = str(texts(tmp_path, ["c"], "2.parquet"))
    asked = ("--input", "t.parquet", "--text", "t", "--output", "out")
    score(echo, *asked)
    parts = {each: each.read_bytes() for each in (tmp_path / "out").iterdir()}
    error = refused(echo, *asked)
    assert error.code == "folder-not-empty"
    assert "part-00000-000000000000.parquet" in error.what

    def differs(*args: str) -> str:
        error = refused(*args, "--resume")
        assert error.code == "resume-mismatch"
        return error.what

    assert "(isolate: " in differs(echo, *asked, "--isolate")
    assert "(select: " in differs(echo, *asked, "--select", "a=b")
    assert "(1 then, 2 now)" in differs(echo, *asked, "--input", other)
    changed = str(make_mar(ECHO.format(pause=0, gate="") + "# changed", name="changed"))
    assert "(members:" in differs(changed, *asked)
    texts(tmp_path, ["a", "c"])
    assert "another input" in differs(echo, *asked)
    assert {each: each.read_bytes() for each in (tmp_path / "out").iterdir()} == parts


@pytest.mark.parametrize(
    ("bound", "rows", "complete"), [("0", 20, False), ("9", 20, False), ("5%", 100, False), ("10", 200, True)]
)
def test_too_many_failures_end_it(echo: str, tmp_path: Path, score: Score, bound: str, rows: int, complete: bool):
    texts(tmp_path, ["raise" if each in range(10, 20) else "fine" for each in range(200)])
    done = score(echo, "--input", "t.parquet", "--text", "t", "--output", "out", "--part-rows", 20, "--json",
                 "--max-errors", bound, code=1)  # fmt: skip
    summary = json.loads(done.stdout)
    assert (summary["failed"], summary["exceeded"], summary["complete"]) == (10, not complete, complete)
    assert (summary["rows"], summary["causes"][0]["rows"]) == (rows, 10)
    assert [each["row"] for each in summary["causes"][0]["examples"]] == [10, 11, 12]
    assert numbers(tmp_path / "out") == list(range(rows))


@pytest.mark.parametrize(("word", "status"), [("raise", 503), ("die", 500)])
def test_a_poison_row_costs_its_batch_or_with_isolate_only_itself(
    echo: str, tmp_path: Path, score: Score, word: str, status: int
):
    texts(tmp_path, [word if each in {13, 14, 30} else f"text {each}" for each in range(50)])
    asked = [echo, "--input", "t.parquet", "--text", "t", "--batch-size", 10, "--select", "got=got", "size=size:int"]
    score(*asked, "--output", "all", code=1)
    failed = [row["row"] for row in scored(tmp_path / "all") if row["error"]]
    assert failed == [*range(10, 20), *range(30, 40)]
    score(*asked, "--output", "one", "--isolate", code=1)
    rows = scored(tmp_path / "one")
    assert [row["row"] for row in rows if row["error"]] == [13, 14, 30]
    assert {rows[each]["status"] for each in (13, 14, 30)} == {status}
    assert [row["got"] for row in rows if not row["error"]] == [
        f"text {row['row']}" for row in rows if not row["error"]
    ]
    assert (rows[0]["size"], rows[12]["size"], rows[49]["size"]) == (10, 1, 10)


@pytest.mark.parametrize("later", [False, True])
def test_a_handler_that_cannot_be_loaded_is_exit_4(make_mar, tmp_path: Path, score: Score, later: bool):
    """At once, or once the first worker has died."""
    once = f"""
import os
if {not later} or os.path.exists({str(tmp_path / "loaded")!r}):
    raise RuntimeError("not again")
open({str(tmp_path / "loaded")!r}, "w")
"""
    texts(tmp_path, [*["fine"] * 30, "die", "fine"])
    asked = [make_mar(once + ECHO.format(pause=0, gate="")), "--input", "t.parquet", "--text", "t", "--output", "out"]
    done = score(*asked, "--part-rows", 10, "--json", code=4)
    failure = json.loads(done.stdout)
    assert (failure["code"], failure["trouble"]["message"]) == ("load", "not again")
    assert len(list(tmp_path.glob("out/part-*"))) == (3 if later else 0)
    if later:
        (tmp_path / "loaded").unlink()
        done = score(*asked, "--part-rows", 10, "--resume", code=4)
        assert "not again" in done.stderr
        assert "with --resume" in done.stderr


def test_a_full_disk_is_said_and_leaves_whole_parts(echo: str, tmp_path: Path):
    texts(tmp_path, [*["a"] * 20, os.urandom(100_000).hex(), *["b"] * 20])
    done = subprocess.run(
        command("score", echo, "--input", "t.parquet", "--text", "t", "--output", "out", "--part-rows", "20"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f": {os.strerror(errno.EFBIG)}")
    assert "with --resume" in done.stderr
    assert numbers(tmp_path / "out") == list(range(20))
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["part-00000-000000000000.parquet"]


@pytest.mark.slow
def test_a_terminal_shows_how_far_it_is(slow: str, tmp_path: Path):
    texts(tmp_path, [*["fine"] * 300, "raise", *["fine"] * 700])
    asked = [slow, "--input", "t.parquet", "--text", "t", "--output", "out", "--batch-size", "25"]
    with Terminal("score", *asked, cwd=tmp_path) as terminal:
        terminal.wait_for(r"[\d,]+/1,001  \d+/s  25 failed")
        terminal.wait_for(r"rows +1,001 in")
        assert terminal.end() == 1


def test_the_parent_never_imports_torch(echo: str, tmp_path: Path):
    texts(tmp_path, ["a"])
    asked = ["score", echo, "--input", "t.parquet", "--text", "t", "--output", "out"]
    code = f"import sys; from marpack.cli.main import main\ntry: main({asked})\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-2:] == ["  output   1 part", "False"]


def test_without_pyarrow_one_sentence_names_the_extra(echo: str, tmp_path: Path):
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(name='pyarrow')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "marpack", "score", echo, "--input", "t.parquet", "--text", "t", "--output", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    message, hint = done.stderr.splitlines()
    assert " pyarrow," in message
    assert "pip install '.[score]'" in hint


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
