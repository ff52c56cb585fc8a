"""What scoring tables costs: rows per second against a bare loop over the same Parquet, and the parent's memory.

    python -m benchmarks.score [--repeat N] [--pictures N] [--rows N]

The bare loop reads batches of 32 rows, takes the digits handler's own steps, and writes Parquet; marpack does the same
by `marpack score --batch-size 32`. Both tell the time of their loop, once loaded, with as many threads as torch makes
by itself. Memory is that of the process that reads and writes, over small rows that a handler does nothing with.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.run import DIGITS, STEPS, Race, told, write_no_op

Command = list[str | Path]
BATCH = 32
LEAST, MOST = 0.9, 500  # of the bare loop's pace; MB
BARE = """
import json, sys, time
import pyarrow as pa
import pyarrow.parquet as pq
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
# The command, which tells its own memory at the end: what the system counts for a process includes its maker's.
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
    options = parse()
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as name:
        folder = Path(name)
        prepare(folder)
        verdicts = [digits_pace(folder, options.repeat, options.pictures), memory(folder, options.rows)]
    return 0 if all(verdicts) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="runs of each contender [5]")
    parser.add_argument("--pictures", type=int, default=40_000, help="rows with a picture [40,000]")
    parser.add_argument("--rows", type=int, default=2_000_000, help="small rows, for memory [2,000,000]")
    return parser.parse_args()


def prepare(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "marpack", "build", DIGITS, "-o", folder / "digits.mar"], check=True,
                   capture_output=True)  # fmt: skip
    (folder / "bare_steps.py").write_text(STEPS)
    (folder / "bare.py").write_text(BARE)
    write_no_op(folder / "noop")


def digits_pace(folder: Path, repeat: int, pictures: int) -> bool:
    scans, outputs = folder / "scans.parquet", count()
    write(scans, pictures, "png", samples())

    def bare() -> float:
        command: Command = [sys.executable, folder / "bare.py", DIGITS / "digits.pt", scans,
                                     folder / "bare.parquet", str(BATCH)]  # fmt: skip
        return pictures / float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def ours() -> float:
        command: Command = [sys.executable, "-m", "marpack", "score", folder / "digits.mar", "--body", "png"]
        command += ["--input", scans, "--keep", "id", "--batch-size", str(BATCH), "--json"]
        command += ["--output", folder / f"{next(outputs)}"]
        summary = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert summary["answered"] == pictures
        pace: float = summary["throughput"]
        return pace

    race = Race(repeat, bare, ours, bare)
    ratio = race.ratio(1, 0, 2)
    return told(f"digits in Parquet, batch {BATCH} / bare loop", ours=f"{race.median(1):,.0f}/s",
                theirs=f"{race.median(2):,.0f}/s", ratio=ratio, bound=f"at least {LEAST:.2f}",
                met=ratio >= LEAST)  # fmt: skip


def samples() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DIGITS / "samples").glob("*.png"))]


def write(path: Path, rows: int, name: str, values: list[bytes], group: int = 100_000) -> None:
    """Write rows of a number and one of some values, in row groups that memory holds easily."""
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64()), (name, pa.binary())])) as writer:
        for first in range(0, rows, group):
            numbers = range(first, min(rows, first + group))
            columns = [pa.array(numbers), pa.array([values[number % len(values)] for number in numbers])]
            writer.write_table(pa.Table.from_arrays(columns, names=["id", name]))


def memory(folder: Path, rows: int) -> bool:
    write(folder / "small.parquet", rows, "body", [b"x" * 20])
    command: Command = [sys.executable, "-c", MEASURED, "score", folder / "noop", "--body", "body", "--keep", "id"]
    command += ["--input", folder / "small.parquet", "--batch-size", str(BATCH), "--json", "--output", folder / "small"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    pace, peak = json.loads(done.stdout)["throughput"], int(done.stderr.split()[-1]) / 1000
    return told(f"memory over {rows:,} rows, {pace:,.0f}/s", ours=f"{peak:,.0f} MB", theirs=f"{MOST} MB",
                ratio=peak / MOST, bound="at most 1.00", met=peak <= MOST)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
