"""Scoring tables: rows per second against a bare loop over the same Parquet, memory, and the cost of a Ray cluster.

    python -m benchmarks.score [--repeat N] [--pictures N] [--rows N] [--parts N] [--ray 0]

The bare loop reads batches of 32 rows, takes the digits handler's own steps, and writes Parquet, as
`marpack score --batch-size 32` does. On Ray two actors on a cluster of two nodes score the same rows as two workers of
`marpack score` alone, both on this machine; then an actor and a node are killed. CPU seconds are those of the actors
and their workers, sampled twice a second. `--parts` of a few rows measure the driver's own work.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.run import STEPS
from benchmarks.timing import DIGITS, MARPACK, Command, Race, build_digits, parse, run, show, write_no_op

BATCH, ACTORS = 32, 2
SMALL = 15  # rows of a part that measures the driver
MOST_MB = 500
NODE = {"num_cpus": 2, "num_gpus": 0, "memory": 4 << 30, "object_store_memory": 80 << 20}
BARE = """
import json, sys, time
import pyarrow as pa, pyarrow.parquet as pq
import torch
from bare_steps import likeliest, read_scan, tensor_of

model = torch.jit.load(sys.argv[1]).eval()
started = time.perf_counter()
table, size, row = pq.ParquetFile(sys.argv[2]), int(sys.argv[4]), 0
fields = [("row", pa.int64()), ("id", pa.int64()), ("answer", pa.string())]
with torch.inference_mode(), pq.ParquetWriter(sys.argv[3], pa.schema(fields)) as writer:
    waiting = []
    for batch in table.iter_batches(size):
        scans = tensor_of(b"".join([read_scan(picture) for picture in batch["png"].to_pylist()]))
        answers = [json.dumps(likeliest(row)) for row in model(scans).softmax(dim=1).tolist()]
        rows = pa.array(range(row, row + len(answers)))
        waiting.append(pa.record_batch([rows, batch["id"], pa.array(answers)], names=["row", "id", "answer"]))
        row += len(answers)
        if len(waiting) == 512:
            writer.write_table(pa.Table.from_batches(waiting))
            waiting = []
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting))
print(time.perf_counter() - started)
"""
# The command prints its own peak memory: the system's figure includes that of the parent process.
MEASURED = """
import sys
from pathlib import Path
from marpack.cli.main import main

try:
    main(sys.argv[1:])
finally:
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")), file=sys.stderr)
"""


def main() -> int:
    options = parse(__doc__, repeat=5, pictures=400_000, rows=2_000_000, parts=3_000, ray=1)
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as name:
        folder = Path(name)
        build_digits(folder)
        (folder / "bare_steps.py").write_text(STEPS)
        (folder / "bare.py").write_text(BARE)
        write_no_op(folder / "noop")
        pictures = [path.read_bytes() for path in sorted((DIGITS / "samples").glob("*.png"))]
        write(folder / "scans.parquet", options.pictures, "png", pictures)
        met = [bare_pace(folder, options), memory(folder, options.rows)]
        if options.ray:
            met.append(on_ray(folder, options))
    return 0 if all(met) else 1


def write(path: Path, rows: int, name: str, values: list[bytes], group: int = 5_000) -> None:
    """Write rows of a number and one of some values, in row groups that fit into memory."""
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64()), (name, pa.binary())])) as writer:
        for first in range(0, rows, group):
            numbers = range(first, min(rows, first + group))
            columns = [pa.array(numbers), pa.array([values[number % len(values)] for number in numbers])]
            writer.write_table(pa.Table.from_arrays(columns, names=["id", name]))


def scoring(folder: Path, model: str, table: str, column: str) -> Command:
    """Return a command that scores a table; it lacks the output."""
    command: Command = ["score", folder / model, "--input", folder / table, "--body", column, "--keep", "id"]
    return [*command, "--batch-size", str(BATCH), "--json"]


def bare_pace(folder: Path, options: Namespace) -> bool:
    outputs = count()
    bare: Command = [sys.executable, folder / "bare.py", DIGITS / "digits.pt", folder / "scans.parquet"]
    bare += [folder / "bare.parquet", str(BATCH)]
    command = [*MARPACK, *scoring(folder, "digits.mar", "scans.parquet", "png")]

    def measure_bare() -> float:
        return float(options.pictures / float(run(bare)))

    def ours() -> float:
        summary = json.loads(run([*command, "--output", folder / f"out-{next(outputs)}"]))
        assert summary["answered"] == options.pictures
        return float(summary["throughput"])

    race = Race(options.repeat, {"before": measure_bare, "ours": ours, "after": measure_bare})
    figures = [f"{race.median(name):,.0f}/s" for name in ("ours", "after")]
    return show(
        f"digits in Parquet, batch {BATCH} / bare loop", *figures, race.ratio("ours", "before", "after"), least=0.9
    )


def memory(folder: Path, rows: int) -> bool:
    """Measure the process that reads and writes small rows, with a handler that does nothing."""
    write(folder / "small.parquet", rows, "body", [b"x" * 20], 100_000)
    command = [sys.executable, "-c", MEASURED, *scoring(folder, "noop", "small.parquet", "body")]
    done = subprocess.run([*command, "--output", folder / "small"], check=True, capture_output=True, text=True)
    pace, peak = json.loads(done.stdout)["throughput"], int(done.stderr.split()[-1]) / 1000
    name = f"memory over {rows:,} rows, {pace:,.0f}/s"
    return show(name, f"{peak:,.0f} MB", f"{MOST_MB} MB", peak / MOST_MB, most=1)


class CpuMeter(threading.Thread):
    """Adds up the CPU seconds of processes and their children, also of those that end meanwhile."""

    def __init__(self, roots: Callable[[], list[psutil.Process]]) -> None:
        super().__init__(daemon=True)
        self._roots = roots
        self._seen: dict[tuple[int, float], float] = {}
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.5):
            with suppress(psutil.NoSuchProcess):
                for process in [each for root in self._roots() for each in (root, *root.children(recursive=True))]:
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system

    def seconds(self) -> float:
        self._over.set()
        self.join()
        return sum(self._seen.values())


@contextmanager
def two_nodes(folder: Path) -> Iterator[Any]:
    """Keep a Ray cluster of two nodes on this machine."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
    import ray.cluster_utils

    cluster = ray.cluster_utils.Cluster()
    try:
        cluster.add_node(include_dashboard=False, **NODE)
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


def actors(nodes: list[Any]) -> list[psutil.Process]:
    """Return the actors' processes on some nodes."""
    found = []
    for info in (info for node in nodes for info in node.all_processes["raylet"]):
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(info.process.pid).children()
            found += [child for child in children if "PartScorer" in " ".join(child.cmdline())]
    return found


def kill(cluster: Any, number: int) -> None:
    """Kill an actor, or in every second turn a node with all of its actors, and add another node."""
    if number % 2 == 0:
        actors(cluster.list_all_nodes())[0].kill()
        return
    node = next(each for each in cluster.worker_nodes if actors([each]))
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)


def on_ray(folder: Path, options: Namespace) -> bool:
    """Compare the CPU µs of a row; then score with kills, and many small parts."""
    rows, parts = options.pictures, 40
    command = [*MARPACK, *scoring(folder, "digits.mar", "scans.parquet", "png"), "--part-rows", str(-(-rows // parts))]
    with two_nodes(folder) as cluster:
        ray: Command = ["--on", "ray", "--address", cluster.address, "--actors", str(ACTORS)]

        def score(flags: Command, roots: Callable[[], list[psutil.Process]] | None = None, kills: int = 0) -> float:
            with tempfile.TemporaryDirectory(prefix="score-") as name:
                output = Path(name) / "out"
                process = subprocess.Popen([*command, *flags, "--output", output], stdout=subprocess.PIPE)
                meter = CpuMeter(roots or (lambda: [psutil.Process(process.pid)]))
                for number in range(kills):
                    while len([*output.glob("part-*")]) < parts * (number + 1) // (kills + 1):
                        time.sleep(0.1)
                    kill(cluster, number)
                assert json.loads(process.communicate()[0])["answered"] == rows
                assert sorted(pq.read_table(output, columns=["row"])["row"].to_pylist()) == [*range(rows)]
                return meter.seconds() / rows * 1e6

        def scorers() -> list[psutil.Process]:
            return actors(cluster.list_all_nodes())

        race = Race(
            options.repeat, {"alone": lambda: score(["--workers", str(ACTORS)]), "ray": lambda: score(ray, scorers)}
        )
        met = race.show("CPU time of a row, on Ray / alone", "ray", "alone", "µs", most=1.25)
        started = time.monotonic()
        cpu = score(ray, scorers, kills=2)
        print(f"an actor and a node killed: {rows / (time.monotonic() - started):,.0f} rows/s, {cpu:,.0f} µs a row")
        write(folder / "few.parquet", options.parts * SMALL, "body", [b"x" * 20])
        small = [*MARPACK, *scoring(folder, "noop", "few.parquet", "body"), "--part-rows", str(SMALL), *ray]
        process = subprocess.Popen([*small, "--output", folder / "few"], stdout=subprocess.PIPE)
        meter = CpuMeter(lambda: [psutil.Process(process.pid)])
        summary = json.loads(process.communicate()[0])
        each = meter.seconds() / options.parts * 1000
        print(f"{summary['parts'] / summary['seconds']:,.0f} parts/s, {each:.1f} ms of the driver's CPU time a part")
    return met


if __name__ == "__main__":
    sys.exit(main())
