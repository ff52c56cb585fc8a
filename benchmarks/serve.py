"""What `marpack serve` costs beside a real TorchServe in the same run: CPU, requests, latency, memory, its start.

    MARPACK_PEER=BIN python -m benchmarks.serve [--repeat N] [--seconds N] [--json FILE]

Both serve the same archives with one worker each, at their default settings, digits with one thread of torch as well;
TorchServe once more with its logs off, which is what it is measured against. wrk sends 1 kB over 16 kept connections.
Contenders run in turn, and a ratio is the median of the rounds' own, so that what else the machine does slows both
sides. CPU is that of all processes. Each figure has the system's load average beside it.
Without MARPACK_PEER, what needs a TorchServe is left out.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.busy import other_processes, system_load
from benchmarks.servers import Body, Load, Server, marpack, torchserve
from benchmarks.steady_load import Latencies, send_steadily

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
_WARM_UP = 10  # seconds: the JVM compiles what is called often
_STARTS = 3
_SLOW = 1500  # connections that are idle or slow
_NO_OP = "def handle(data, context):\n    return [b'ok'] * len(data) if data else None\n"
# name: what its model config says; each has workers of its own
_NO_OPS = {
    "noop": "minWorkers: 1\nmaxWorkers: 1\n",
    "batches": "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 8\nmaxBatchDelay: 5\n",
    "two": "minWorkers: 2\nmaxWorkers: 2\n",
}
# The handler in a plain loop, without any server: calls a second.
_BARE = """
import sys, time
from pathlib import Path
from marpack.testing import context, install

install()
sys.path.insert(0, sys.argv[1])
from handler import DigitsHandler

body, seconds = Path(sys.argv[2]).read_bytes(), float(sys.argv[3])
handler, given = DigitsHandler(), context(sys.argv[1], model={"serializedFile": "digits.pt"})
handler.initialize(given)

def calls_in(seconds):
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        handler.handle([{"body": bytearray(body)}], given)
        count += 1
    return count / (time.perf_counter() - started)

calls_in(0.5)
pace = calls_in(seconds)
print(f"\\n{pace}")
"""


class Table:
    """The figures as they come: printed at once, kept for the JSON."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(
        self, name: str, *, ours: str, theirs: str, ratio: float, least: float | None = None, most: float | None = None
    ) -> None:
        """Add a figure: a ratio with its bound, or with none."""
        met, bound = None, ""
        if most is not None:
            met, bound = ratio <= most, f"at most {most:.3g}"
        elif least is not None:
            met, bound = ratio >= least, f"at least {least:.3g}"
        verdict = {None: "", True: "ok", False: "MISSED"}[met]
        load = system_load()
        print(f"{name:<44} {ours:>12} {theirs:>12} {ratio:>8.3f}  {bound:<14} {verdict:<6} {load}", flush=True)
        row = {"name": name, "ours": ours, "theirs": theirs, "ratio": ratio, "bound": bound, "met": met}
        self.rows.append({**row, "load": load})

    @property
    def is_met(self) -> bool:
        """Whether no bound was missed."""
        return all(row["met"] is not False for row in self.rows)


def main() -> int:
    options = parse()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is needed: apt-get install wrk")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    peer = Path(os.environ["MARPACK_PEER"]).absolute() if os.environ.get("MARPACK_PEER") else None
    if peer is None:
        print("MARPACK_PEER names no environment that has a TorchServe: its side is left out")
    table = Table()
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as name:
        folder = Path(name)
        prepare(folder)
        starts(table, folder, peer)
        with ExitStack() as stack:
            archives = [folder / f"{model}.mar" for model in _NO_OPS]
            ours = stack.enter_context(marpack(archives, folder))
            for model in _NO_OPS:
                ours.wait_until_answers(model, kilobyte(folder))
            silent = logging = None
            if peer is not None:
                silent = stack.enter_context(torchserve(peer, archives, folder))
                logging = stack.enter_context(torchserve(peer, archives, folder, logs=True))
            pace = no_op(table, folder, options, ours, silent, logging)
            latency(table, folder, options, ours, pace)
            memory(table, ours, silent)
            beside_slow_clients(table, folder, options, ours)
        for threads in ("", "1"):
            digits(table, folder, options, peer, threads)
        with other_processes(1):
            digits(table, folder, options, peer, "", ", busy")
    if options.json:
        options.json.write_text(json.dumps(table.rows, indent=2) + "\n")
    return 0 if table.is_met else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="rounds of all contenders [5]")
    parser.add_argument("--seconds", type=int, default=4, help="of load in each [4]")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


def prepare(folder: Path) -> None:
    write_archives(folder)
    digits = folder / "project"
    shutil.copytree(DIGITS, digits, ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    text = (digits / "marpack.yaml").read_text().replace("batchSize: 4", "batchSize: 1")
    (digits / "marpack.yaml").write_text(text)
    archive = folder / "digits.mar"
    for command in (["build", digits, "-o", archive], ["unpack", archive, "-d", folder / "digits"]):
        subprocess.run([sys.executable, "-m", "marpack", *command], check=True, capture_output=True)
    (folder / "bare.py").write_text(_BARE)
    shutil.copyfile(DIGITS / "samples" / "seven.png", folder / "seven.png")


def write_archives(folder: Path) -> None:
    """Write the archives whose handler does nothing."""
    for name, config in _NO_OPS.items():
        model = {"modelName": name, "modelVersion": "1.0", "handler": "handler.py", "configFile": "model-config.yaml"}
        with zipfile.ZipFile(folder / f"{name}.mar", "w") as archive:
            archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": model}))
            archive.writestr("handler.py", _NO_OP)
            archive.writestr("model-config.yaml", config)


def kilobyte(folder: Path) -> Body:
    (folder / "kilobyte").write_bytes(b"x" * 1024)
    return Body(folder / "kilobyte", "application/octet-stream")


def pixels(folder: Path) -> Body:
    return Body(folder / "seven.png", "image/png")


def rounds(repeat: int, contenders: Mapping[str, Callable[[], Load]]) -> dict[str, list[Load]]:
    """Return what became of each contender's loads, which ran in turn."""
    loads: dict[str, list[Load]] = {name: [] for name in contenders}
    for _ in range(repeat):
        for name, contender in contenders.items():
            loads[name].append(contender())
    return loads


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def starts(table: Table, folder: Path, peer: Path | None) -> None:
    """Time servers from their start to their first answer: of a handler that imports torch, and of one that does not.

    TorchServe's logs are on: what takes its time at the start are the JVM and a worker's imports. `import torch` takes
    as long for both.
    """
    if peer is None:
        return
    for model, body, most in (("noop", kilobyte(folder), 0.5), ("digits", pixels(folder), 0.9)):
        times = []
        for _ in range(_STARTS + 1):
            with marpack([folder / f"{model}.mar"], folder) as server:
                ours = server.wait_until_answers(model, body)
            with torchserve(peer, [folder / f"{model}.mar"], folder, logs=True) as server:
                times.append((ours, server.wait_until_answers(model, body)))
        figures = [statistics.median(column) for column in zip(*times[1:], strict=True)]
        table.add(f"start to first answer, {model}", ours=f"{figures[0]:.2f} s", theirs=f"{figures[1]:.2f} s",
                  ratio=statistics.median(a / b for a, b in times[1:]), most=most)  # fmt: skip


def no_op(
    table: Table, folder: Path, options: argparse.Namespace, ours: Server, silent: Server | None, logging: Server | None
) -> float:
    """Compare what a request costs whose handler does nothing; return our requests a second."""
    body = kilobyte(folder)
    contenders = {name: loader(ours, name, body, options.seconds) for name in _NO_OPS}
    for name, server in (("silent", silent), ("logging", logging)):
        if server is not None:
            server.wait_until_answers("noop", body)
            contenders[name] = loader(server, "noop", body, options.seconds)
            server.load("noop", body, _WARM_UP)
    for name in _NO_OPS:
        ours.load(name, body, 1)
    loads = rounds(options.repeat, contenders)
    cpu = {name: [load.cpu_each for load in taken] for name, taken in loads.items()}
    pace = {name: [load.pace for load in taken] for name, taken in loads.items()}

    def compare(name: str, kind: Mapping[str, list[float]], one: str, other: str, unit: str, **bounds: float) -> None:
        figures = [f"{statistics.median(kind[side]):,.0f}{unit}" for side in (one, other)]
        table.add(name, ours=figures[0], theirs=figures[1], ratio=median_ratio(kind[one], kind[other]), **bounds)

    if silent is not None:
        compare("CPU a request, no-op / TorchServe, logs off", cpu, "noop", "silent", " us", most=1 / 6)
        compare("CPU a request, no-op / TorchServe, logs on", cpu, "noop", "logging", " us")
        compare("requests/s, no-op / TorchServe, logs off", pace, "noop", "silent", "/s", least=5)
        compare("requests/s, no-op / TorchServe, logs on", pace, "noop", "logging", "/s")
    compare("CPU a request, batches of 8 / single", cpu, "batches", "noop", " us", most=0.9)
    compare("CPU a request, 2 workers / 1", cpu, "two", "noop", " us", most=1.3)
    return statistics.median(pace["noop"])


def loader(server: Server, model: str, body: Body, seconds: int) -> Callable[[], Load]:
    return lambda: server.load(model, body, seconds)


def digits(
    table: Table, folder: Path, options: argparse.Namespace, peer: Path | None, threads: str, beside: str = ""
) -> None:
    """Compare pictures a second of a small model, one a call everywhere.

    Args:
        table: Takes the figures.
        folder: Holds the archive.
        options: Rounds and seconds.
        peer: Where TorchServe is.
        threads: How many torch takes for one call; "": its default, one for each core.
        beside: What is said of the machine's other work.
    """
    body = pixels(folder)
    environment = {"OMP_NUM_THREADS": threads} if threads else {}
    command = [sys.executable, folder / "bare.py", folder / "digits", body.path, str(options.seconds)]

    def bare() -> Load:
        env = os.environ | environment
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
        return Load(int(float(done.stdout.splitlines()[-1]) * options.seconds), options.seconds, 0.0)

    with ExitStack() as stack:
        servers = {"ours": stack.enter_context(marpack([folder / "digits.mar"], folder, environment))}
        if peer is not None:
            servers["silent"] = stack.enter_context(torchserve(peer, [folder / "digits.mar"], folder, environment))
        for server in servers.values():
            server.wait_until_answers("digits", body)
            server.load("digits", body, _WARM_UP)
        contenders = {name: loader(server, "digits", body, options.seconds) for name, server in servers.items()}
        loads = rounds(options.repeat, contenders | {"bare": bare})
    pace = {name: [load.pace for load in taken] for name, taken in loads.items()}
    # A bare loop has no client beside it: on two cores it is no bound.
    for name, label, least in (("silent", "TorchServe, logs off", 2), ("bare", "bare loop", None)):
        if name in pace:
            figures = [f"{statistics.median(pace[side]):,.0f}/s" for side in ("ours", name)]
            at = f", {threads} thread" if threads else beside
            table.add(f"digits/s{at} / {label}", ours=figures[0], theirs=figures[1],
                      ratio=median_ratio(pace["ours"], pace[name]), least=least)  # fmt: skip


def latency(table: Table, folder: Path, options: argparse.Namespace, ours: Server, pace: float) -> None:
    """Tell what a server adds to a handler that does nothing, at half of the requests a second that it can take."""
    taken = [
        send_steadily(ours.port, "noop", kilobyte(folder), rate=pace / 2, seconds=options.seconds)
        for _ in range(options.repeat)
    ]
    refuse_failures(taken)
    for part, most in ((50, 1.0), (99, 5.0)):
        milliseconds = statistics.median(one.percentile(part) for one in taken)
        table.add(f"ms added at half load, p{part}", ours=f"{milliseconds:.2f} ms", theirs=f"{most:.2f} ms",
                  ratio=milliseconds / most, most=1)  # fmt: skip


def memory(table: Table, ours: Server, silent: Server | None) -> None:
    """Tell what the process in front of the workers has resident after all that load."""
    front = ours.memory()[0] / 1e6
    table.add("MB of the front after load / 90", ours=f"{front:.0f} MB", theirs="90 MB", ratio=front / 90, most=1)
    if silent is not None:
        theirs = silent.memory()[0] / 1e6
        table.add("MB of the front after load / TorchServe", ours=f"{front:.0f} MB", theirs=f"{theirs:.0f} MB",
                  ratio=front / theirs)  # fmt: skip


def beside_slow_clients(table: Table, folder: Path, options: argparse.Namespace, ours: Server) -> None:
    """Tell how much a normal client feels of very many that hold connections and hardly use them."""
    body = kilobyte(folder)
    without, beside = [], []
    for _ in range(max(2, options.repeat // 2)):
        without.append(send_steadily(ours.port, "noop", body, rate=500, seconds=options.seconds))
        command = [sys.executable, "-m", "benchmarks.slow_clients", str(ours.port), "noop", str(_SLOW)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as slow:
            slow.stdout.readline()
            beside.append(send_steadily(ours.port, "noop", body, rate=500, seconds=options.seconds))
            slow.terminate()
    refuse_failures(without + beside)
    figures = [statistics.median(one.percentile(99) for one in taken) for taken in (beside, without)]
    table.add(f"p99 beside {_SLOW} slow clients / without", ours=f"{figures[0]:.2f} ms", theirs=f"{figures[1]:.2f} ms",
              ratio=figures[0] / figures[1])  # fmt: skip


def refuse_failures(taken: list[Latencies]) -> None:
    """End the benchmark where a request was not answered."""
    failures = sum(one.failures for one in taken)
    if failures:
        raise SystemExit(f"{failures} requests were not answered with 200")


if __name__ == "__main__":
    sys.exit(main())
