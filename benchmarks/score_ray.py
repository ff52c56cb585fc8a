"""What scoring on a Ray cluster costs: CPU seconds per row against one machine alone, and rows that survive kills.

    python -m benchmarks.score_ray [--repeat N] [--rows N] [--part-rows N]

Rows are pictures of examples/digits in a Parquet file, answered by two actors on a cluster of two nodes, and by two
workers of `marpack score` alone, both on this machine. CPU seconds are those of what scores: on Ray the actors and the
workers in them, sampled twice a second; alone the command and its workers. Loading models is in both. Then an actor is
killed, and a node; and many parts of a few rows that a handler does nothing with tell what the driver does for each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from benchmarks.run import DIGITS, Race, told, write_no_op
from benchmarks.score import samples, write

NODE = {"num_cpus": 2, "num_gpus": 0, "memory": 4 << 30, "object_store_memory": 80 << 20}
GROUP = 5_000  # rows of a row group
COLUMNS = ("--body", "png", "--keep", "id", "--batch-size", "32")
ACTORS = 2
SMALL = 15  # rows of a part that tells what the driver does
MOST = 1.25  # of the CPU seconds per row that it takes alone


class CpuMeter(threading.Thread):
    """Adds up the CPU seconds of processes that `find` finds, also of those that end meanwhile."""

    def __init__(self, find: Any) -> None:
        super().__init__(daemon=True)
        self._find = find
        self._seen: dict[tuple[int, float], float] = {}
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.5):
            for process in self._find():
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system

    def seconds(self) -> float:
        self._over.set()
        self.join()
        return sum(self._seen.values())


def with_children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def actors(cluster: Any, node: Any = None) -> list[psutil.Process]:
    found = []
    for each in [node] if node is not None else cluster.list_all_nodes():
        for info in each.all_processes["raylet"]:
            with suppress(psutil.NoSuchProcess):
                found += [child for child in psutil.Process(info.process.pid).children() if is_actor(child)]
    return found


def is_actor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "PartScorer" in " ".join(process.cmdline())
    return False


def kill(cluster: Any, number: int) -> str:
    """Kill an actor, or in every second turn a node with all of its actors, which another one replaces."""
    if number % 2 == 0:
        actors(cluster)[0].kill()
        return "an actor"
    node = next(each for each in cluster.worker_nodes if actors(cluster, each))
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)
    return "a node"


class Contender:
    """A command that scores all rows into a new folder each time."""

    def __init__(self, command: list[str], rows: int, parts: int, cluster: Any = None) -> None:
        self._command = command
        self._rows = rows
        self._parts = parts
        self._cluster = cluster
        self.paces: list[float] = []  # rows/s of whole processes

    def __call__(self, kills: int = 0) -> float:
        """Score, kill something whenever a further share of the parts is whole, and return CPU µs per row."""
        with tempfile.TemporaryDirectory(prefix="score-") as name:
            output, started = Path(name) / "out", time.monotonic()
            process = subprocess.Popen([*self._command, "--output", str(output), "--json"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL)  # fmt: skip
            meter = CpuMeter(partial(self._processes, psutil.Process(process.pid)))
            meter.start()
            for number in range(kills):
                share = self._parts * (number + 1) // (kills + 1)
                while len([*output.glob("part-*")]) < share and process.poll() is None:
                    time.sleep(0.1)
                print(f"  after {time.monotonic() - started:.0f} s killed {kill(self._cluster, number)}", flush=True)
            summary = json.loads(process.communicate()[0])
            self.paces.append(self._rows / (time.monotonic() - started))
            assert summary["answered"] == self._rows
            assert sorted(pq.read_table(output, columns=["row"])["row"].to_pylist()) == [*range(self._rows)]
            return meter.seconds() / self._rows * 1e6

    def _processes(self, root: psutil.Process) -> Iterable[psutil.Process]:
        roots = actors(self._cluster) if self._cluster else [root]
        return chain.from_iterable(map(with_children, roots))


def main() -> int:
    options = parse()
    parts = -(-options.rows // options.part_rows)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="score-")))
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
        write(folder / "rows.parquet", options.rows, "png", samples(), GROUP)
        marpack = (sys.executable, "-m", "marpack")
        subprocess.run([*marpack, "build", DIGITS, "-o", folder / "digits.mar"], check=True, capture_output=True)
        command = [*marpack, "score", str(folder / "digits.mar"), "--input", str(folder / "rows.parquet"), *COLUMNS]
        command += ["--part-rows", str(options.part_rows)]
        cluster = stack.enter_context(two_nodes())
        on_ray = ["--on", "ray", "--address", cluster.address, "--actors", str(ACTORS)]
        alone = Contender([*command, "--workers", str(ACTORS)], options.rows, parts)
        ray = Contender([*command, *on_ray], options.rows, parts, cluster)
        race = Race(options.repeat, alone, ray)
        ratio = race.ratio(1, 0)
        met = told("CPU time of a row, on Ray / alone", ours=f"{race.median(1):,.0f} µs",
                   theirs=f"{race.median(0):,.0f} µs", ratio=ratio, bound=f"at most {MOST:.2f}",
                   met=ratio <= MOST)  # fmt: skip
        paces = [statistics.median(each.paces) for each in (ray, alone)]
        print(f"{'rows/s of whole commands':<38} {paces[0]:>10,.0f}/s {paces[1]:>10,.0f}/s {paces[0] / paces[1]:>7.2f}")
        cpu = ray(kills=2)
        print(f"{'with these kills, every row once':<38} {ray.paces[-1]:>10,.0f}/s {cpu:>9,.0f} µs a row")
        show_driver(folder, options.parts, on_ray)
    return 0 if met else 1


def show_driver(folder: Path, parts: int, on_ray: list[str]) -> None:
    """Tell the CPU time that the driver takes for a part, its start included, and how fast parts come."""
    write(folder / "small.parquet", parts * SMALL, "body", [b"x" * 20])
    write_no_op(folder / "noop")
    command = [sys.executable, "-m", "marpack", "score", folder / "noop", "--input", folder / "small.parquet", "--body"]
    command += ["body", "--part-rows", str(SMALL), "--output", folder / "small", "--json"]
    process = subprocess.Popen([*command, *on_ray], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    meter = CpuMeter(partial(list, [psutil.Process(process.pid)]))
    meter.start()
    summary = json.loads(process.communicate()[0])
    assert summary["parts"] == parts
    pace, cpu = parts / summary["seconds"], meter.seconds() / parts * 1000
    print(f"{f'{parts:,} parts of {SMALL} rows':<38} {pace:>10,.0f}/s {cpu:>9,.1f} ms of the driver's CPU time a part")
    started = time.monotonic()
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    print(f"{'--resume, with all of them there':<38} {time.monotonic() - started:>10,.1f} s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each contender [3]")
    parser.add_argument("--rows", type=int, default=400_000, help="pictures [400,000]")
    parser.add_argument("--part-rows", type=int, default=10_000, help="what an actor does at once [10,000]")
    parser.add_argument("--parts", type=int, default=3_000, help="of a few rows, for the driver [3,000]")
    return parser.parse_args()


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Keep a cluster of two nodes on this machine."""
    import ray.cluster_utils

    cluster = ray.cluster_utils.Cluster()
    try:
        cluster.add_node(include_dashboard=False, **NODE)
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
