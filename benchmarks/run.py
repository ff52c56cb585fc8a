"""What running costs, as ratios against bare scripts in the same run: first answer, throughput, a no-op handler.

    python -m benchmarks.run [--repeat N] [--inputs N]

The bare scripts take the digits handler's own steps: read, preprocess, predict, name the three likeliest digits, print
them, one picture at a time or as many at once as marpack does. Contenders run in turn, so that what else the machine
does slows all of them; torch's threads are as many as it makes by itself, and once more one. One comparison runs beside
a process that keeps a core busy. Each figure has the system's load average beside it. With MARPACK_PEER set to the
`bin` of an environment that has TorchServe, its own time from start to first answer stands beside ours.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.busy import other_processes, system_load
from benchmarks.peer import start_to_first_answer

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
MARPACK = [sys.executable, "-m", "marpack", "run"]

# What an author would write instead. It tells its own loop's time, imports and loading apart, on stderr.
BARE = """
import json, sys, time
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
from bare_steps import likeliest, read_scan, tensor_of

model = torch.jit.load(sys.argv[2]).eval()
started = time.perf_counter()
paths, size = sys.stdin.read().splitlines(), int(sys.argv[3])
with torch.inference_mode():
    for first in range(0, len(paths), size):
        batch = paths[first : first + size]
        scans = tensor_of(b"".join([read_scan(Path(path).read_bytes()) for path in batch]))
        for path, probabilities in zip(batch, model(scans).softmax(dim=1).tolist()):
            print(path, json.dumps(likeliest(probabilities)))
print(time.perf_counter() - started, file=sys.stderr)
"""
# The same steps as in examples/digits/handler.py, without its base class.
STEPS = """
import io
import torch
from PIL import Image

def read_scan(picture):
    gray = Image.open(io.BytesIO(picture)).convert("L").resize((8, 8), Image.Resampling.BOX)
    return gray.tobytes()

def tensor_of(scans):
    return torch.frombuffer(bytearray(scans), dtype=torch.uint8).view(-1, 1, 8, 8) / 255

def likeliest(probabilities):
    named = [(str(index), round(p, 4)) for index, p in enumerate(probabilities)]
    named.sort(key=lambda pair: -pair[1])
    return dict(named[:3])
"""
# OpenMP's threads in the bare loop spin as little as in marpack's workers.
BOUNDED_SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
BUSY_INPUTS = 3000
NO_OP = "def handle(data, context):\n    return ['ok'] * len(data) if data is not None else None\n"
# A request through all that marpack puts around a handler, against the handler called as it is.
OVERHEAD = """
import logging, os, sys, timeit
from marpack.protocol.messages import Load, Predict, ToWorker
from marpack.torchserve.http import Part, Request
from marpack.torchserve.metrics import LogHandler
from marpack.worker.model_loader import HandlerLoader
from marpack.worker.captured_output import StdoutWriter
import msgspec

out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
prints = StdoutWriter(b"end of a batch")
logging.basicConfig(handlers=[LogHandler(sys.stdout, prints.put)], level=logging.INFO)
os.chdir(sys.argv[1])
service, _ = HandlerLoader(Load(model_dir=sys.argv[1])).run()
encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(ToWorker).decode
request = Request(id="1", parts=(Part("body", b"x" * 100, ""),))
message = encode(Predict((request,)))
rows = [{"body": bytearray(100)}]

def through_marpack():
    encode(service.predict(decode(message).requests, None))
    prints.end_batch()

def directly():
    service._handle(rows, service._context)

times = [min(timeit.repeat(call, number=1000, repeat=10)) / 1000 for call in (through_marpack, directly)]
os.write(out, str(times[0] - times[1]).encode())
"""

# Seconds per input of a model's iterator and of the runner alone, medians of pairs, and the median of their ratios.
MANY = """
import statistics, sys, time
from collections import deque
import marpack
from marpack.runner.inputs import RequestDefaults, request_id
from marpack.runner.results import answered_inputs

count, shape, pairs = int(sys.argv[2]), RequestDefaults(), []

def spent(answers):
    started = time.perf_counter()
    deque(answers, maxlen=0)
    return (time.perf_counter() - started) / count

with marpack.load(sys.argv[1]) as model:
    for _ in range(7):
        requests = (shape.input(request_id(number), number, "", b"x" * 100) for number in range(count))
        many = spent(model.predict_many(b"x" * 100 for _ in range(count)))
        pairs.append((many, spent(answered_inputs(model._session.pool, requests))))
ours, theirs = zip(*pairs)
print(statistics.median(ours), statistics.median(theirs), statistics.median(a / b for a, b in pairs))
"""


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as name:
        folder = Path(name)
        prepare(folder, options.inputs)
        verdicts = [
            first_answer(folder, options.repeat),
            digits_throughput(folder, options.repeat),
            digits_throughput(folder, options.repeat, threads=1),
            busy_throughput(folder, options.repeat),
            no_op_throughput(folder, options.repeat),
            from_python(folder, options.inputs),
            handler_overhead(folder),
            change_to_answer(folder),
        ]
        show_peer(folder)
    return 0 if all(verdicts) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7, help="runs of each contender [7]")
    parser.add_argument(
        "--inputs", type=int, default=20_000, help="small files for the handler that does nothing [20,000]"
    )
    return parser.parse_args()


def prepare(folder: Path, inputs: int) -> None:
    subprocess.run([sys.executable, "-m", "marpack", "build", DIGITS, "-o", folder / "digits.mar"], check=True,
                   capture_output=True)  # fmt: skip
    (folder / "bare_steps.py").write_text(STEPS)
    (folder / "bare.py").write_text(BARE)
    (folder / "overhead.py").write_text(OVERHEAD)
    (folder / "many.py").write_text(MANY)
    samples = sorted((DIGITS / "samples").glob("*.png"))
    (folder / "paths").write_text("".join(f"{path}\n" for path in samples * 800))
    write_no_op(folder / "noop")
    (folder / "in").mkdir()
    for number in range(inputs):
        (folder / "in" / f"{number}.bin").write_bytes(b"x" * 100)


def write_no_op(folder: Path) -> None:
    """Make a model folder whose handler does nothing."""
    (folder / "MAR-INF").mkdir(parents=True)
    (folder / "handler.py").write_text(NO_OP)
    manifest = '{"runtime": "python", "model": {"modelName": "noop", "handler": "handler.py"}}'
    (folder / "MAR-INF" / "MANIFEST.json").write_text(manifest)


class Race:
    """Contenders that ran in turn, round after round, after one warm-up each."""

    def __init__(self, repeat: int, *contenders: Callable[[], float]) -> None:
        self._rounds = [[contender() for contender in contenders] for _ in range(repeat + 1)][1:]

    def median(self, contender: int) -> float:
        return statistics.median(figures[contender] for figures in self._rounds)

    def ratio(self, contender: int, *others: int) -> float:
        """Return the median of the rounds' own ratios: what slows the machine for a while slows all of a round.

        Args:
            contender: Whose figure is looked at.
            others: One other contender, or those that ran before and after, whose mean is taken.
        """
        return statistics.median(
            figures[contender] / statistics.mean(figures[other] for other in others) for figures in self._rounds
        )


def told(name: str, *, ours: str, theirs: str, ratio: float, bound: str, met: bool) -> bool:
    verdict = "ok" if met else "MISSED"
    print(f"{name:<38} {ours:>12} {theirs:>12} {ratio:>7.2f}  {bound:<14} {verdict:<6} {system_load()}", flush=True)
    return met


def first_answer(folder: Path, repeat: int) -> bool:
    """Time whole processes, from start to end, for one picture; the archive was extracted before."""
    image = str(DIGITS / "samples" / "seven.png")

    def ours() -> float:
        return seconds([*MARPACK, folder / "digits.mar", "--input", image])

    def bare() -> float:
        return seconds([sys.executable, folder / "bare.py", folder, DIGITS / "digits.pt", "1"], stdin=image)

    race = Race(repeat, ours, bare)
    ratio = race.ratio(0, 1)
    return told("first answer / bare script", ours=f"{race.median(0):.2f} s", theirs=f"{race.median(1):.2f} s",
                ratio=ratio, bound="at most 1.15", met=ratio <= 1.15)  # fmt: skip


def seconds(command: list[str | Path], stdin: str = "") -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, input=stdin, text=True)
    return time.perf_counter() - started


def digits_throughput(folder: Path, repeat: int, threads: int | None = None) -> bool:
    """Compare inputs per second once loaded, marpack's as its own summary tells it; None: torch's own threads."""
    environment = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    verdicts = []
    for size, least in ((1, 0.8), (32, 1.0)):
        contenders = bare_loop(folder, "paths", size, environment), ours(folder, "paths", size, environment)
        race = Race(repeat, *contenders, contenders[0])
        ratio = race.ratio(1, 0, 2)
        verdicts.append(
            told(f"digits, batch {size}{'' if threads is None else f', {threads} thread'} / bare loop",
                 ours=f"{race.median(1):,.0f}/s", theirs=f"{race.median(2):,.0f}/s", ratio=ratio,
                 bound=f"at least {least:.2f}", met=ratio >= least)
        )  # fmt: skip
    return all(verdicts)


def busy_throughput(folder: Path, repeat: int) -> bool:
    """Compare as `digits_throughput` does, while another process keeps a core busy."""
    (folder / "few").write_text("".join((folder / "paths").read_text().splitlines(keepends=True)[:BUSY_INPUTS]))
    with other_processes(1):
        race = Race(repeat, bare_loop(folder, "few", 1, BOUNDED_SPIN), ours(folder, "few", 1, {}))
    ratio = race.ratio(0, 1)
    return told("bare loop / digits, batch 1, busy", ours=f"{race.median(1):,.0f}/s", theirs=f"{race.median(0):,.0f}/s",
                ratio=ratio, bound="at most 1.30", met=ratio <= 1.3)  # fmt: skip


def bare_loop(folder: Path, inputs: str, size: int, environment: Mapping[str, str]) -> Callable[[], float]:
    """Return what measures the bare loop's inputs per second; the paths are in the file `inputs`."""
    command = [sys.executable, folder / "bare.py", folder, DIGITS / "digits.pt", str(size)]
    paths = (folder / inputs).read_text()

    def pace() -> float:
        env = os.environ | environment
        done = subprocess.run(command, check=True, capture_output=True, input=paths, text=True, env=env)
        return len(paths.splitlines()) / float(done.stderr)

    return pace


def ours(folder: Path, inputs: str, size: int, environment: Mapping[str, str]) -> Callable[[], float]:
    """Return what measures marpack's inputs per second, as `bare_loop` does."""
    command = [*MARPACK, folder / "digits.mar", "--input", f"@{folder / inputs}", "--batch-size", str(size)]
    return lambda: throughput(command, os.environ | environment)


def throughput(command: list[str | Path], environment: Mapping[str, str] | None = None) -> float:
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, env=environment)
    pace: float = json.loads(done.stdout)["summary"]["throughput"]
    return pace


def no_op_throughput(folder: Path, repeat: int) -> bool:
    pace = Race(repeat, lambda: throughput([*MARPACK, folder / "noop", "--input", folder / "in"])).median(0)
    return told("no-op handler, small files", ours=f"{pace:,.0f}/s", theirs="10,000/s", ratio=pace / 10_000,
                bound="at least 1.00", met=pace >= 10_000)  # fmt: skip


def from_python(folder: Path, inputs: int) -> bool:
    """Compare `Model.predict_many` with the runner that is behind it."""
    done = subprocess.run(
        [sys.executable, folder / "many.py", folder / "noop", str(inputs)], check=True, capture_output=True, text=True
    )
    ours, theirs, ratio = map(float, done.stdout.split())
    return told("predict_many / the runner behind it", ours=f"{ours * 1e6:.0f} us", theirs=f"{theirs * 1e6:.0f} us",
                ratio=ratio, bound="at most 1.20", met=ratio <= 1.2)  # fmt: skip


def handler_overhead(folder: Path) -> bool:
    command = [sys.executable, folder / "overhead.py", folder / "noop"]
    elapsed = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1e6
    return told("around handle, per request", ours=f"{elapsed:.0f} us", theirs="60 us", ratio=elapsed / 60,
                bound="at most 1.00", met=elapsed <= 60)  # fmt: skip


def change_to_answer(folder: Path) -> bool:
    """Time `--watch` from a change of the digits handler to the new answer."""
    from benchmarks.watching import change_to_answer as measure

    elapsed = statistics.median(measure(DIGITS, folder))
    return told("--watch, from change to answer", ours=f"{elapsed:.2f} s", theirs="0.50 s", ratio=elapsed / 0.5,
                bound="at most 1.00", met=elapsed <= 0.5)  # fmt: skip


def show_peer(folder: Path) -> None:
    peer = os.environ.get("MARPACK_PEER")
    if not peer:
        print("TorchServe, start to first answer     not measured: MARPACK_PEER names no environment that has it")
        return
    image = DIGITS / "samples" / "seven.png"
    print(f"TorchServe, start to first answer {start_to_first_answer(Path(peer), folder, image):>10.2f} s")


if __name__ == "__main__":
    sys.exit(main())
