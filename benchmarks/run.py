"""Running, as ratios against bare scripts in the same run: first response, throughput, loading, tracing, `--watch`.

    python -m benchmarks.run [--repeat N] [--inputs N] [--copies N] [--peer VENV/bin]

The bare scripts take the digits handler's own steps: read, preprocess, predict, name the three likeliest digits, print
them, one picture at a time or as many at once as marpack does. torch's threads are as many as it makes by itself, and
then one. `--copies`: of the sample pictures. `--peer`: the `bin` of an environment with TorchServe, whose own time to
the first response is printed.
"""

import json
import os
import pty
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.timing import DIGITS, MARPACK, Command, Race, build_digits, busy, parse, run, seconds, show, write_no_op

BOUNDED_SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}  # as in marpack's workers
# The script of an author without marpack. It prints its own loop's seconds, without imports and loading, at the end.
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
print(time.perf_counter() - started)
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
# A request through all that marpack puts around a handler, against the handler called as it is.
OVERHEAD = """
import logging, os, sys, timeit
from marpack.protocol.messages import Load, Predict, ToWorker
from marpack.torchserve.http import Part, Request
from marpack.torchserve.metrics import LogHandler
from marpack.worker.captured_output import StdoutWriter
from marpack.worker.model_loader import HandlerLoader
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
# Loading 400 MB through BaseHandler and by torch alone; starting Python and importing torch are the same for both.
MAKE = """
import sys, torch
layers = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(24)))
torch.jit.script(layers).save(sys.argv[1])
"""
LOAD = """
import sys, time, torch
from pathlib import Path
from marpack.testing import context
from marpack.worker.handlers.base import BaseHandler
path = Path(sys.argv[1])
handler, given = BaseHandler(), context(path.parent, model={"serializedFile": path.name})
start = time.perf_counter()
if sys.argv[2] == "bare":
    torch.jit.load(path, map_location=torch.device("cpu")).eval()
else:
    handler.initialize(given)
print(time.perf_counter() - start)
"""


def main() -> int:
    options = parse(__doc__, repeat=7, inputs=20_000, copies=800, peer=None)
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as name:
        folder = Path(name)
        build_digits(folder)
        for file, text in (("bare_steps", STEPS), ("bare", BARE), ("overhead", OVERHEAD), ("load", LOAD)):
            (folder / f"{file}.py").write_text(text)
        met = [
            first_response(folder, options.repeat),
            *(throughput(folder, options, size, threads) for threads in ("", "1") for size in (1, 32)),
            busy_throughput(folder, options),
            no_op(folder, options.repeat, options.inputs),
            loading(folder, options.repeat),
            tracing(options.repeat),
            watching(folder),
        ]
        if options.peer:
            print(f"TorchServe, start to first response {peer_start(options.peer, folder):>10.2f} s")
    return 0 if all(met) else 1


def first_response(folder: Path, repeat: int) -> bool:
    """Time whole processes, from start to end, for one picture; the archive was extracted before."""
    image = str(DIGITS / "samples" / "seven.png")
    bare: Command = [sys.executable, folder / "bare.py", folder, DIGITS / "digits.pt", "1"]
    ours: Command = [*MARPACK, "run", folder / "digits.mar", "--input", image]
    race = Race(repeat, {
        "ours": lambda: seconds(partial(run, ours)), "bare": lambda: seconds(partial(run, bare, None, image)),
    })  # fmt: skip
    return race.show("first response / bare script", "ours", "bare", "s", most=1.15)


def contenders(folder: Path, copies: int, size: int, ours: Mapping[str, str], bare: Mapping[str, str]) -> dict[
    str, Callable[[], float]
]:  # fmt: skip
    """Return the measurements of inputs per second once loaded, by marpack and by the bare loop before and after."""
    paths = [str(path) for path in sorted((DIGITS / "samples").glob("*.png")) * copies]
    listed = folder / f"paths-{copies}"
    listed.write_text("\n".join(paths))
    loop: Command = [sys.executable, folder / "bare.py", folder, DIGITS / "digits.pt", str(size)]
    command: Command = [*MARPACK, "run", folder / "digits.mar", "--input", f"@{listed}", "--batch-size", str(size)]

    def measure_bare() -> float:
        return len(paths) / float(run(loop, bare, listed.read_text()).split()[-1])

    return {"before": measure_bare, "ours": lambda: pace(command, ours), "after": measure_bare}


def pace(command: Command, environment: Mapping[str, str] | None = None) -> float:
    """Return the inputs per second of a run's own summary."""
    figure: float = json.loads(run([*command, "--json"], environment))["summary"]["throughput"]
    return figure


def throughput(folder: Path, options: Namespace, size: int, threads: str) -> bool:
    environment = {"OMP_NUM_THREADS": threads} if threads else {}
    race = Race(options.repeat, contenders(folder, options.copies, size, environment, environment))
    ratio, least = race.ratio("ours", "before", "after"), 0.8 if size == 1 else 1.0
    name = f"digits, batch {size}{', 1 thread' if threads else ''} / bare loop"
    return show(name, f"{race.median('ours'):,.0f}/s", f"{race.median('after'):,.0f}/s", ratio, least=least)


def busy_throughput(folder: Path, options: Namespace) -> bool:
    """Compare while another process keeps a core busy."""
    with busy(1):
        race = Race(options.repeat, contenders(folder, min(300, options.copies), 1, {}, BOUNDED_SPIN))
    return race.show("bare loop / digits, batch 1, busy", "after", "ours", "/s", most=1.3)


def no_op(folder: Path, repeat: int, inputs: int) -> bool:
    model = write_no_op(folder / "noop")
    (folder / "in").mkdir()
    for number in range(inputs):
        (folder / "in" / f"{number}.bin").write_bytes(b"x" * 100)
    race = Race(repeat, {"ours": lambda: pace([*MARPACK, "run", model, "--input", folder / "in"])})
    each, around = race.median("ours"), float(run([sys.executable, folder / "overhead.py", model])) * 1e6
    return all([
        show("no-op handler, small files", f"{each:,.0f}/s", "10,000/s", each / 10_000, least=1),
        show("around handle, per request", f"{around:.0f} us", "60 us", around / 60, most=1),
    ])  # fmt: skip


def loading(folder: Path, repeat: int) -> bool:
    weights = folder / "net.pt"
    run([sys.executable, "-W", "ignore", "-c", MAKE, weights])
    commands = {name: [sys.executable, "-W", "ignore", folder / "load.py", weights, name] for name in ("ours", "bare")}
    race = Race(repeat, {name: lambda name=name: float(run(commands[name])) for name in commands})
    return race.show("load 400 MB / torch.jit.load", "ours", "bare", "s", most=1.05)


def tracing(repeat: int) -> bool:
    command: Command = [*MARPACK, "run", DIGITS, "--input", DIGITS / "samples", "--json"]
    race = Race(repeat, {
        "plain": lambda: seconds(partial(run, command)), "traced": lambda: seconds(partial(run, [*command, "--trace"])),
    })  # fmt: skip
    return race.show("run --trace / run", "traced", "plain", "s")


def watching(folder: Path, rounds: int = 6) -> bool:
    """Time `run --watch` from a change of a copy of the digits project to the new response on the screen."""
    copy = folder / "watched"
    shutil.copytree(DIGITS, copy, ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    screen, theirs = pty.openpty()
    command = [*MARPACK, "run", "--watch", "--input", "samples/seven.png"]
    process = subprocess.Popen(command, cwd=copy, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)

    def wait_for(pattern: str) -> None:
        seen = ""
        while not re.search(pattern, seen):
            seen += re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", os.read(screen, 65536).decode("utf-8", "replace"))

    handler, times = (copy / "handler.py").read_text(), []
    try:
        wait_for("Ctrl-C ends")
        for number in range(rounds):
            changed = re.sub(r"^TOP = .*$", f"TOP = {1 + number % 3}", handler, flags=re.MULTILINE)
            started = time.perf_counter()
            (copy / "handler.py").write_text(f"{changed}\n# {number}\n")
            wait_for(r"seven\.png +200 ")
            times.append(time.perf_counter() - started)
            wait_for("Ctrl-C ends")
            time.sleep(2)  # the next worker imports torch
    finally:
        process.terminate()
        process.wait()
        os.close(screen)
    elapsed = statistics.median(times[1:])
    return show("--watch, from change to response", f"{elapsed:.2f} s", "0.50 s", elapsed / 0.5, most=1)


def peer_start(programs: Path, folder: Path) -> float:
    """Return the seconds from the start of a TorchServe to its first response."""
    from benchmarks.servers import Body, torchserve

    with torchserve(programs, [folder / "digits.mar"], folder, logs=True) as server:
        return server.wait_until_answers("digits", Body(DIGITS / "samples" / "seven.png", "image/png"))


if __name__ == "__main__":
    sys.exit(main())
