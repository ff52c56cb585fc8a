"""marpack score on a Ray cluster of two nodes on this machine against marpack score alone, with kills on the way.

    python -m benchmarks.score_ray                      200,000 rows of PNGs, an actor and a node killed
    python -m benchmarks.score_ray --rows 20000 --kills 0

Rows are pictures of examples/digits in a Parquet file. CPU seconds are those of what scores: on Ray the actors and the
workers in them, sampled twice a second; alone the command and its workers. Loading models is in both, and what was
killed loads again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits"
NODE = {"num_cpus": 2, "num_gpus": 0, "memory": 4 << 30, "object_store_memory": 80 << 20}
GROUP = 5_000  # rows of a row group
COLUMNS = ("--body", "png", "--keep", "id", "--batch-size", "32")


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


def write_rows(path: Path, rows: int) -> None:
    pictures = [each.read_bytes() for each in sorted((EXAMPLE / "samples").glob("*.png"))]
    schema = pa.schema([("id", pa.int64()), ("png", pa.binary())])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, GROUP):
            ids = range(first, min(rows, first + GROUP))
            writer.write_table(pa.table([[*ids], [pictures[each % len(pictures)] for each in ids]], schema))


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


def run(command: list[str], cluster: Any, output: Path, parts: int, kills: int) -> dict[str, Any]:
    """Score, and kill something whenever a further share of the parts is whole."""
    started = time.monotonic()
    process = subprocess.Popen([*command, "--output", str(output), "--json"], stdout=subprocess.PIPE)
    root = psutil.Process(process.pid)
    meter = CpuMeter(lambda: chain.from_iterable(map(with_children, actors(cluster) if cluster else [root])))
    meter.start()
    for number in range(kills):
        while len([*output.glob("part-*")]) < parts * (number + 1) // (kills + 1) and process.poll() is None:
            time.sleep(0.1)
        print(f"  after {time.monotonic() - started:.0f} s killed {kill(cluster, number)}")
    summary = json.loads(process.communicate()[0])
    cpu = meter.seconds()
    return summary | {"wall": time.monotonic() - started, "cpu": cpu}


def show(name: str, summary: dict[str, Any], output: Path, rows: int) -> None:
    found = pq.read_table(output, columns=["row"])["row"].to_pylist()
    once = "every row once" if sorted(found) == [*range(rows)] else "ROWS ARE MISSING, OR THERE TWICE"
    print(
        f"{name:<6}{summary['wall']:8.1f} s wall{rows / summary['wall']:10,.0f} rows/s"
        f"{summary['cpu'] / rows * 1e6:10,.0f} CPU µs/row{summary['failed']:6,} failed   {once}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--part-rows", type=int, default=5_000)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args()
    parts = -(-options.rows // options.part_rows)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="score-")))
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
        shutil.copytree(EXAMPLE, folder / "digits")
        marpack = (sys.executable, "-m", "marpack")
        subprocess.run([*marpack, "build", str(folder / "digits"), "--force"], check=True, stdout=subprocess.DEVNULL)
        write_rows(folder / "rows.parquet", options.rows)
        words = ("--input", str(folder / "rows.parquet"), *COLUMNS, "--part-rows", str(options.part_rows))
        command = [*marpack, "score", str(folder / "digits" / "digits.mar"), *words]
        alone = run([*command, "--workers", str(options.actors)], None, folder / "alone", parts, 0)
        show("alone", alone, folder / "alone", options.rows)
        import ray.cluster_utils

        cluster = ray.cluster_utils.Cluster()
        stack.callback(cluster.shutdown)
        cluster.add_node(include_dashboard=False, **NODE)
        cluster.add_node(**NODE)
        command += ["--on", "ray", "--address", cluster.address, "--actors", str(options.actors)]
        on_ray = run(command, cluster, folder / "on-ray", parts, options.kills)
        show("ray", on_ray, folder / "on-ray", options.rows)
        print(f"CPU seconds per row: {on_ray['cpu'] / alone['cpu']:.2f} of what it takes alone")


if __name__ == "__main__":
    main()
