"""Bulk scoring on a real Ray cluster of two nodes: whatever dies, every row is there once, or among the failures."""

import json
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from invoking import invoke
from lazy import pa, pq
from ray_cluster import NODE
from refusals import has_code
from scoring.small_tables import InProcessPool, plan_of, table, written

from marpack import RowMapping, Scorer
from marpack.archive.index import content_identity
from marpack.archive.reader import open_archive
from marpack.errors import UsageError
from marpack.scoring.local import RowRange, score_range
from marpack.scoring.parts import OutputFolder

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")  # of Ray Data about itself

HANDLER = """
import os, psutil, signal, time

def handle(data, context):
    if data is None:
        return None
    texts = [(row.get("body") or row.get("data")) for row in data]
    time.sleep(0.01 * len(texts))
    if "crash" in texts:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "kill the actor" in texts:
        os.kill(psutil.Process().parents()[1].pid, signal.SIGKILL)  # behind the supervisor
    if "bad" in texts:
        raise ValueError("it is bad")
    return [{"echo": text} for text in texts]
"""
MakeMar = Callable[..., Path]
ROWS = 600
ECHO = ("--text", "t", "--select", "echo=echo", "--part-rows", "50")


@pytest.fixture
def mar(make_mar: MakeMar) -> str:
    return str(make_mar(HANDLER))


def command(cluster: Any, mar: str, inputs: str, output: Path, *further: str) -> list[str]:
    where = ("--on", "ray", "--address", cluster.address) if cluster is not None else ()
    words = ("score", mar, "--input", inputs, "--output", str(output), *ECHO, *where, *further)
    return [sys.executable, "-m", "marpack", *words]


def scored(*words: Any, code: int = 0) -> dict[str, Any]:
    """Run the command to its end, and return its summary."""
    return Running(*words).end(code)[0]


def refused(*words: Any, code: int) -> str:
    """Run a command that ends with an error in this process, which has imported Ray already; return the message."""
    return invoke(*command(*words)[3:], code=code).stderr


class Running:
    """The command under way, disturbed once a part is whole."""

    def __init__(self, *words: Any) -> None:
        self.output = words[3]
        self.process = subprocess.Popen([*command(*words), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for_parts(self, count: int = 1) -> None:
        until = time.monotonic() + 240
        while len([*self.output.glob("part-*")]) < count:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)

    def end(self, code: int = 0, *, interrupted: bool = False) -> tuple[dict[str, Any], str]:
        out, err = self.process.communicate(timeout=240)
        assert self.process.returncode == code, out.decode() + err.decode()
        said, _, rest = err.partition(b"error: interrupted")  # behind it Ray's own threads may complain
        assert b"Traceback" not in (said if interrupted and rest else err)
        return (json.loads(out) if out.startswith(b"{") else {}), err.decode()


def actors(cluster: Any, node: Any = None) -> list[psutil.Process]:
    """Return the actors that score on a node, or on all of them."""
    nodes = [node] if node is not None else cluster.list_all_nodes()
    raylets = [info.process.pid for each in nodes for info in each.all_processes["raylet"]]
    children = [child for pid in raylets for child in psutil.Process(pid).children()]
    return [each for each in children if "PartScorer" in command_line(each)]


def command_line(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):  # as a zombie is to it, too
        return " ".join(process.cmdline())
    return ""


def expect_all(output: Path, texts: list[str | None] | None = None) -> None:
    """Assert that each row is there once, with its own answer."""
    found = written(output)
    expected = texts or [f"text {number}" for number in range(ROWS)]
    assert found["row"].to_pylist() == [*range(len(expected))]
    assert found["echo"].to_pylist() == expected


@pytest.mark.peer
def test_rows_and_summary_are_those_of_one_machine(cluster: Any, mar: str, tmp_path: Path) -> None:
    texts = [None if number % 31 == 0 else "bad" if number % 45 == 0 else f"t{number}" for number in range(300)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("t\n" + "".join(f"line {number}\n" for number in range(70)))
    table(tmp_path / "in" / "2.parquet", texts=texts)
    further = ("--keep", "t", "--limit", "350", "--batch-size", "3", "--isolate")
    summaries = [
        scored(where, mar, str(tmp_path / "in"), tmp_path / name, *further, code=1)
        for where, name in ((None, "here"), (cluster, "there"))
    ]
    here, there = (sorted((tmp_path / name).iterdir()) for name in ("here", "there"))
    assert [each.name for each in here] == [each.name for each in there]
    assert [pq.read_table(each) for each in here] == [pq.read_table(each) for each in there]
    assert [pq.read_metadata(each).metadata for each in here] == [pq.read_metadata(each).metadata for each in there]
    for summary in summaries:
        del summary["seconds"], summary["throughput"]
    assert summaries[0] == summaries[1]
    assert (summaries[1]["rows"], summaries[1]["parts"]) == (350, 2 + 6)


def kill_actor(cluster: Any) -> None:
    actors(cluster)[0].kill()


def kill_worker(cluster: Any) -> None:
    """Kill the worker that has been there longest: another one may still be loading the model."""
    children = [each for actor in actors(cluster) for each in actor.children(recursive=True)]
    workers = [each for each in children if "marpack" in command_line(each)]
    min(workers, key=psutil.Process.create_time).kill()


def kill_node(cluster: Any) -> None:
    node = next(each for each in cluster.worker_nodes if actors(cluster, each))
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize(
    ("kill", "lost"),
    [
        pytest.param(kill_actor, 0, marks=pytest.mark.slow),
        pytest.param(kill_worker, 1, marks=pytest.mark.slow),
        pytest.param(kill_node, 0, marks=pytest.mark.slow),
    ],
)
def test_what_dies_costs_no_row(cluster: Any, mar: str, tmp_path: Path, kill: Callable[[Any], None], lost: int) -> None:
    running = Running(cluster, mar, table(tmp_path / "1.parquet", ROWS), tmp_path / "out", "--actors", "4")
    running.wait_for_parts()
    kill(cluster)
    try:
        summary, _ = running.end(code=1 if lost else 0)
    finally:
        while len(cluster.list_all_nodes()) < 2:
            cluster.add_node(**NODE)
    assert (summary["rows"], summary["failed"], summary["parts"]) == (ROWS, lost, ROWS // 50)
    found = written(tmp_path / "out")
    assert found["row"].to_pylist() == [*range(ROWS)]
    assert found["echo"].null_count == lost


@pytest.mark.slow
def test_a_run_whose_driver_was_killed_is_resumed(cluster: Any, mar: str, tmp_path: Path) -> None:
    words = (cluster, mar, table(tmp_path / "1.parquet", ROWS), tmp_path / "out")
    running = Running(*words)
    running.wait_for_parts(2)
    running.process.kill()
    running.process.communicate()
    whole = {each.name: each.stat().st_mtime_ns for each in (tmp_path / "out").glob("part-*")}
    gone_by = time.monotonic() + 60
    while actors(cluster):
        assert time.monotonic() < gone_by, "actors outlive their driver"
        time.sleep(0.1)
    said = refused(*words, code=2)
    assert "--resume" in said
    assert min(whole) in said
    summary = scored(*words, "--resume")
    assert summary["rows_before"] >= 50 * len(whole) >= 100
    assert summary["rows"] + summary["rows_before"] == ROWS
    expect_all(tmp_path / "out")
    now = {each.name: each.stat().st_mtime_ns for each in (tmp_path / "out").glob("part-*")}
    assert whole.items() <= now.items()
    assert scored(None, *words[1:], "--resume")["rows_before"] == ROWS  # on one machine it is the same run


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_an_interrupted_run_keeps_whole_parts(cluster, mar, tmp_path, number, code):
    running = Running(cluster, mar, table(tmp_path / "1.parquet", ROWS), tmp_path / "out")
    running.wait_for_parts()
    running.process.send_signal(number)
    _, err = running.end(code, interrupted=True)
    assert "--resume" in err
    assert 50 <= written(tmp_path / "out").num_rows < ROWS


@pytest.mark.slow
def test_a_part_that_kills_its_actor_is_dead(cluster: Any, mar: str, tmp_path: Path) -> None:
    from marpack.scoring.on_ray.driver import RETRIES

    texts: list[str | None] = ["kill the actor" if number == 70 else f"text {number}" for number in range(200)]
    words = (cluster, mar, table(tmp_path / "1.parquet", texts=texts), tmp_path / "out")
    said = refused(*words, code=1)
    assert f" {RETRIES + 1} times" in said
    assert "--resume" in said


@pytest.mark.slow
def test_too_many_failures_stop_the_run(cluster: Any, mar: str, tmp_path: Path) -> None:
    texts: list[str | None] = ["bad"] * ROWS
    words = (cluster, mar, table(tmp_path / "1.parquet", texts=texts), tmp_path / "out")
    summary = scored(*words, "--max-errors", "80", code=1)
    assert (summary["exceeded"], summary["complete"]) == (True, False)
    assert 80 < summary["failed"] < ROWS
    assert written(tmp_path / "out").num_rows >= summary["rows"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("further", "said"),
    [
        (("--actors", "5"), "the cluster has resources for 4 actors with 1 CPU each"),
        (("--workers", "3"), "no node of the cluster has 3 CPUs for an actor"),
        (("--device", "cuda"), "no node of the cluster has 1 CPU and 1 GPU for an actor"),
        (("--device", "cuda:1"), "a numbered device"),
        (("--address", "127.0.0.1:9"), "no Ray cluster responds: [Errno 111] Connection refused"),
        (("--address", "rubbish"), "no Ray cluster responds: Invalid address format: rubbish"),
        (("--address", "ray://127.0.0.1:10001"), "Ray's client mode is not supported"),
        (("--on", "local"), "--address requires --on ray"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(cluster, mar, tmp_path, further, said):
    words = (cluster, mar, table(tmp_path / "1.parquet"), tmp_path / "out", *further)
    assert said in refused(*words, code=2)
    assert not [*tmp_path.glob("out/*")]


@pytest.mark.slow
def test_a_handler_that_cannot_be_loaded_is_told_as_on_one_machine(cluster: Any, make_mar: MakeMar, tmp_path: Path):
    mar, inputs = str(make_mar("import nothing_of_this_name")), table(tmp_path / "1.parquet")
    here, there = (refused(where, mar, inputs, tmp_path / "out", code=4) for where in (None, cluster))
    assert "nothing_of_this_name" in here
    assert here.splitlines()[0] == there.splitlines()[0]


@pytest.mark.slow
def test_ray_is_started_here_where_no_address_is_given(mar: str, tmp_path: Path) -> None:
    words = command(None, mar, table(tmp_path / "1.parquet", 100), tmp_path / "out", "--on", "ray", "--actors", "1")
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 parts" in done.stdout
    assert sum(pq.read_metadata(part).num_rows for part in (tmp_path / "out").glob("*.parquet")) == 100


@pytest.fixture
def connected(cluster: Any) -> Iterator[Any]:
    import ray

    ray.init(cluster.address, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_a_scorer_is_mapped_over_a_dataset(connected: Any, mar: str, tmp_path: Path) -> None:
    import ray.data

    mapping = RowMapping(text="t", keep=("id",), select={"echo": "echo"})
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.read_parquet(table(tmp_path / "1.parquet", 90))
    answered = rows.map_batches(
        Scorer,
        fn_constructor_kwargs={"archive": mar, "mapping": mapping, "batch_size": 8},
        batch_size=30,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=1),
    ).take_all()
    expected = [{"id": number, "echo": f"text {number}", "status": 200, "error": None} for number in range(90)]
    assert sorted(answered, key=lambda row: row["id"]) == expected


@pytest.mark.slow
class TestActor:
    """What an actor makes of a node that is not like the driver's; here it is this process."""

    def job(self, mar: str, output: Path, **details: Any) -> Any:
        from marpack.scoring.on_ray.driver import ActorJob, ActorModel

        path = str(output.parent / "1.parquet")
        model = ActorModel(path=mar, digest="", open=lambda _: None, cache=lambda: output.parent / "cache")
        plan = plan_of(table(Path(path)))
        return ActorJob(
            **{"plan": plan, "model": model, "output": str(output), "isolate": False, "folder": ".", **details}
        )

    def outcome(self, job: Any) -> Any:
        from marpack.scoring.on_ray.driver import PartScorer

        ranges = pa.table({"input": [0], "first": [0], "stop": pa.array([None], pa.int64())})
        return pickle.loads(PartScorer(job)(ranges)["outcome"][0].as_py())

    def test_what_is_missing_or_differs_on_a_node_is_an_error(self, connected: Any, mar: str, tmp_path: Path) -> None:
        error = self.outcome(self.job(mar, tmp_path / "out"))
        assert isinstance(error, UsageError)
        assert error.code == "output-folder-not-found"
        assert str(error.where).startswith(f"{tmp_path / 'out'} on node ")
        error = self.outcome(self.job(mar, tmp_path, version="0.0.1"))
        assert (error.code, "0.0.1" in error.what) == ("version-mismatch", True)
        assert self.outcome(self.job(mar, tmp_path)).code == "archive-not-found"

    def test_an_archive_that_is_not_there_comes_as_bytes(self, connected: Any, mar: str, tmp_path: Path) -> None:
        from marpack.scoring.on_ray.driver import ActorModel

        with open_archive(mar) as archive:
            digest = content_identity(archive)
        data = Path(mar).read_bytes()
        sent = tuple(connected.put(piece) for piece in (data[:100], data[100:]))
        model = ActorModel(path="gone.mar", digest=digest, open=str, cache=lambda: tmp_path / "cache", pieces=sent)
        copy = Path(model.located())
        assert (copy.read_bytes(), copy.parent) == (data, tmp_path / "cache" / "copies")
        written_at = copy.stat().st_mtime_ns
        assert model.located() == str(copy)
        assert copy.stat().st_mtime_ns == written_at
        seen = ActorModel(path=mar, digest=digest, open=str, cache=lambda: tmp_path / "cache", pieces=sent)
        assert seen.located() == mar


@pytest.mark.peer  # it imports Ray
class TestDriver:
    """What is handed out, and what is made of what comes back."""

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            (None, [(0, 0, 50), (0, 50, 100), (0, 100, 120), (1, 0, None), (2, 0, 50), (2, 50, 60)]),
            (115, [(0, 0, 50), (0, 50, 100), (0, 100, 115)]),
            (150, [(0, 0, 50), (0, 50, 100), (0, 100, 120), (1, 0, 30)]),
            (200, [(0, 0, 50), (0, 50, 100), (0, 100, 120), (1, 0, 80), (2, 0, 10)]),
        ],
    )
    def test_parts_are_handed_out_one_by_one(self, tmp_path: Path, limit: int | None, expected: Any) -> None:
        from marpack.scoring.on_ray.driver import _missing

        (tmp_path / "lines.csv").write_text("t\n" + "line\n" * 70)
        tables = (table(tmp_path / "1.parquet", 120), str(tmp_path / "lines.csv"), table(tmp_path / "2.parquet", 60))
        plan = plan_of(*tables, mapping=RowMapping(text="t"), part_rows=50, limit=limit)
        with OutputFolder.open(tmp_path / "out", plan) as output:
            assert [(each.input, each.first, each.stop) for each in _missing(plan, output)] == expected

    def test_only_what_is_missing_is_handed_out(self, tmp_path: Path) -> None:
        from marpack.scoring.on_ray.driver import _missing

        plan = plan_of(table(tmp_path / "1.parquet", 120), part_rows=50)
        with OutputFolder.open(tmp_path / "out", plan) as output:
            score_range(InProcessPool(), plan, output, RowRange(0, 50, 100), isolate=False)
        with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
            assert [(each.first, each.stop) for each in _missing(plan, output)] == [(0, 50), (100, 120)]

    def test_a_part_that_was_written_elsewhere_is_noticed(self, tmp_path: Path) -> None:
        from marpack.scoring.on_ray.driver import _check_visible

        plan = plan_of(table(tmp_path / "1.parquet"))
        with OutputFolder.open(tmp_path / "out", plan) as output:
            scored = score_range(InProcessPool(), plan, output, RowRange(0, 0, 10), isolate=False)
            _check_visible(output, scored)
            (tmp_path / "out" / scored.parts[0]).unlink()
            with pytest.raises(UsageError, match=scored.parts[0], check=has_code("part-not-found")):
                _check_visible(output, scored)
