"""Serving, beside a real TorchServe: CPU of a request, throughput, latency, memory, restarts, and minutes under load.

    python -m benchmarks.serve [--part compare|grpc|restart|scrape|soak] [--repeat N] [--seconds N] [--peer VENV/bin]
    python -m benchmarks.serve --part soak [--minutes N] [--abuse] [--slow N] [--kill-every SECONDS]

compare: a handler that does nothing and the digits, each server in turn; `--peer` is the `bin` of an environment with
TorchServe, without which its side is left out. grpc: predictions beside a bare grpc.aio echo. restart: from `kill -9`
of an idle worker to the next 200, without the handler's own imports and initialize. scrape: the metrics of an idle
server, and requests beside scrapes. soak: minutes at 70 % of the maximum rate; nothing fails and nothing grows. With
`--abuse`, a low rate beside slow connections, clients that cancel, and kills: only a killed worker's requests fail, and
the server's memory stays.
"""

import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.servers import HOST, Body, Load, Server, children, marpack, resident, send_steadily, torchserve
from benchmarks.timing import DIGITS, MARPACK, NO_OP, ROOT, busy, parse, run, show, write_no_op

_WARM_UP = 10  # seconds: the JVM compiles frequent calls
_STARTS = 3
_SLOW = 1500  # connections that are idle or slow
_ABUSED_RATE, _CANCELLERS = 300, 16  # requests a second; clients that cancel, without a pause
_ABUSED_GROWTH = 5.0  # MB from the second interval to the last
_SCRAPES, _SCRAPE_MOST = 300, 5.0  # ms
_SETTLED = 30.0  # seconds for the zygote to be ready
_RESTART_MOST = 150.0  # ms, without the handler's own
_SHARE, _GROWTH = 0.7, 0.02  # of the maximum rate; of memory from the first minute to the last
# name: its model config; each has workers of its own
_NO_OPS = {
    "noop": "minWorkers: 1\nmaxWorkers: 1\n",
    "batches": "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 8\nmaxBatchDelay: 5\n",
    "two": "minWorkers: 2\nmaxWorkers: 2\n",
}
# A handler that is often cancelled; its worker is forked, as it names torch.
_SLEEPY = NO_OP.replace("def", "import time\nimport torch\ndef").replace("    ", "    time.sleep(0.02)\n    ")
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


def main() -> int:
    abuse = {"abuse": False, "slow": 3000, "kill_every": 15.0, "interval": 60.0}
    options = parse(__doc__, part="compare", repeat=5, seconds=4, minutes=10, peer=None, **abuse)
    options.part = "abuse" if options.abuse else options.part
    if options.part in {"compare", "soak"} and shutil.which("wrk") is None:
        raise SystemExit("wrk is needed: apt-get install wrk")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parts = {"compare": compare, "restart": restart, "scrape": scrape, "soak": soak, "abuse": soak_abused, "grpc": grpc}
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as name:
        folder = Path(name)
        (folder / "kilobyte").write_bytes(b"x" * 1024)
        if options.part in {"compare", "restart"}:
            prepare(folder)
        return 0 if parts[options.part](folder, options) else 1


def grpc(folder: Path, options: Namespace) -> bool:
    """Compare predictions over gRPC with a bare echo."""
    from benchmarks.calls import compare as compare_calls  # needs marpack[grpc]

    return compare_calls(folder, options)


def prepare(folder: Path) -> None:
    """Build the archives: three whose handler does nothing, and the digits one by one."""
    (folder / "handler.py").write_text(NO_OP)
    for name, config in _NO_OPS.items():
        (folder / f"{name}.yaml").write_text(config)
        flags = ["--model-name", name, "--version", "1.0", "--handler", folder / "handler.py", "--export-path", folder]
        run([*MARPACK, "build", *flags, "--config-file", folder / f"{name}.yaml"])
    shutil.copytree(DIGITS, folder / "project", ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    project = folder / "project" / "marpack.yaml"
    project.write_text(project.read_text().replace("batchSize: 4", "batchSize: 1"))
    run([*MARPACK, "build", folder / "project", "-o", folder / "digits.mar"])
    run([*MARPACK, "unpack", folder / "digits.mar", "-d", folder / "digits"])
    (folder / "bare.py").write_text(_BARE)
    shutil.copyfile(DIGITS / "samples" / "seven.png", folder / "seven.png")


def body_of(folder: Path, model: str) -> Body:
    if model == "digits":
        return Body(folder / "seven.png", "image/png")
    return Body(folder / "kilobyte", "application/octet-stream")


def compare(folder: Path, options: Namespace) -> bool:
    met = []
    if options.peer:
        met = [starts(folder, options.peer, model, most) for model, most in (("noop", 0.5), ("digits", 0.9))]
    with ExitStack() as stack:
        archives = [folder / f"{model}.mar" for model in _NO_OPS]
        servers = {"ours": stack.enter_context(marpack(archives, folder))}
        if options.peer:
            servers["silent"] = stack.enter_context(torchserve(options.peer, archives, folder))
            servers["logging"] = stack.enter_context(torchserve(options.peer, archives, folder, logs=True))
        met += no_op(folder, options, servers)
    for threads, others in (("", 0), ("1", 0), ("", 1)):
        with busy(others):
            met.append(digits(folder, options, threads, others))
    return all(met)


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def starts(folder: Path, peer: Path, model: str, most: float) -> bool:
    """Time servers from their start to their first response; `import torch` takes as long for both."""
    archives, body, times = [folder / f"{model}.mar"], body_of(folder, model), []
    for _ in range(_STARTS + 1):
        with marpack(archives, folder) as server:
            ours = server.wait_until_answers(model, body)
        with torchserve(peer, archives, folder, logs=True) as server:
            times.append((ours, server.wait_until_answers(model, body)))
    columns = [list(column) for column in zip(*times[1:], strict=True)]
    texts = [f"{statistics.median(column):.2f} s" for column in columns]
    return show(f"start to first response, {model}", *texts, median_ratio(*columns), most=most)


def rounds(repeat: int, contenders: dict[str, Callable[[], Load]]) -> dict[str, list[Load]]:
    """Return the loads of each contender, which ran in turn."""
    taken = [{name: contender() for name, contender in contenders.items()} for _ in range(repeat)]
    return {name: [each[name] for each in taken] for name in contenders}


def no_op(folder: Path, options: Namespace, servers: dict[str, Server]) -> list[bool]:
    """Compare the cost of requests to a handler that does nothing, alone and beside slow clients."""
    ours, body = servers["ours"], body_of(folder, "noop")
    targets = {model: (ours, model) for model in _NO_OPS}
    targets |= {name: (server, "noop") for name, server in servers.items() if name != "ours"}
    for server, model in targets.values():
        server.wait_until_answers(model, body)
        server.load(model, body, 1 if server is ours else _WARM_UP)
    loads = rounds(options.repeat, {
        name: partial(server.load, model, body, options.seconds) for name, (server, model) in targets.items()
    })  # fmt: skip
    cpu = {name: [load.cpu_each for load in taken] for name, taken in loads.items()}
    pace = {name: [load.pace for load in taken] for name, taken in loads.items()}

    def ratio(name: str, kind: dict[str, list[float]], one: str, other: str, unit: str, **bounds: float) -> bool:
        texts = [f"{statistics.median(kind[side]):,.0f}{unit}" for side in (one, other)]
        return show(name, *texts, median_ratio(kind[one], kind[other]), **bounds)

    met = [
        ratio("CPU a request, batches of 8 / single", cpu, "batches", "noop", " us", most=0.9),
        ratio("CPU a request, 2 workers / 1", cpu, "two", "noop", " us", most=1.3),
    ]
    for name, least, most in (("silent", 5.0, 1 / 6), ("logging", 0.0, 1.0)) if "silent" in servers else ():
        met.append(ratio(f"CPU a request, no-op / TorchServe, {name}", cpu, "noop", name, " us", most=most))
        met.append(ratio(f"requests/s, no-op / TorchServe, {name}", pace, "noop", name, "/s", least=least))
    rate = statistics.median(pace["noop"]) / 2
    taken = [steady(ours, body, rate, options.seconds) for _ in range(options.repeat)]
    for index, (part, most) in enumerate(((50, 1.0), (99, 5.0))):
        added = statistics.median(one[index] for one in taken)
        met.append(show(f"ms added at half load, p{part}", f"{added:.2f} ms", f"{most:.2f} ms", added / most, most=1))
    front = ours.memory()[0] / 1e6
    met.append(show("MB of the front after load / 90", f"{front:.0f} MB", "90 MB", front / 90, most=1))
    if "silent" in servers:
        theirs = servers["silent"].memory()[0] / 1e6
        show("MB of the front after load / TorchServe", f"{front:.0f} MB", f"{theirs:.0f} MB", front / theirs)
    alone, beside = [], []
    for _ in range(max(2, options.repeat // 2)):
        alone.append(steady(ours, body, 500, options.seconds)[1])
        with slow_clients(ours, "noop", _SLOW):
            beside.append(steady(ours, body, 500, options.seconds)[1])
    texts = [f"{statistics.median(each):.2f} ms" for each in (beside, alone)]
    show(f"p99 beside {_SLOW} slow clients / without", *texts, statistics.median(beside) / statistics.median(alone))
    return met


@contextmanager
def slow_clients(server: Server, model: str, count: int, cancellers: int = 0) -> Iterator[None]:
    """Hold slow connections, and let clients cancel requests to a model, in another process."""
    command = [sys.executable, "-m", "benchmarks.servers", *map(str, (server.port, model, count, cancellers))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as slow:
        slow.stdout.readline()
        try:
            yield
        finally:
            slow.terminate()


def steady(server: Server, body: Body, rate: float, seconds: float) -> tuple[float, float]:
    """Return the milliseconds of p50 and p99 at a fixed rate; SystemExit if a request fails."""
    taken = send_steadily(server.port, "noop", body, rate=rate, seconds=seconds)
    if taken.failures:
        raise SystemExit(f"{taken.failures} requests were not answered with 200")
    return taken.percentile(50), taken.percentile(99)


def digits(folder: Path, options: Namespace, threads: str, others: int) -> bool:
    """Compare pictures a second of a small model, one a call everywhere; `threads` of torch, "" for its default."""
    environment = {"OMP_NUM_THREADS": threads} if threads else {}
    body, archives = body_of(folder, "digits"), [folder / "digits.mar"]
    command = [sys.executable, folder / "bare.py", folder / "digits", body.path, str(options.seconds)]

    def bare() -> Load:
        return Load(int(float(run(command, environment).split()[-1]) * options.seconds), options.seconds, 0.0)

    with ExitStack() as stack:
        servers = {"ours": stack.enter_context(marpack(archives, folder, environment))}
        if options.peer:
            servers["silent"] = stack.enter_context(torchserve(options.peer, archives, folder, environment))
        for server in servers.values():
            server.wait_until_answers("digits", body)
            server.load("digits", body, _WARM_UP)
        contenders: dict[str, Callable[[], Load]] = {
            name: partial(server.load, "digits", body, options.seconds) for name, server in servers.items()
        }
        loads = rounds(options.repeat, contenders | {"bare": bare})
    pace = {name: [load.pace for load in taken] for name, taken in loads.items()}
    met = True
    at = f", {threads} thread" if threads else ", busy" if others else ""
    # A bare loop runs without a client, so on two cores it has no bound.
    for name, label, least in (("silent", "TorchServe, logs off", 2), ("bare", "bare loop", None)):
        if name in pace:
            texts = [f"{statistics.median(pace[side]):,.0f}/s" for side in ("ours", name)]
            met &= show(f"digits/s{at} / {label}", *texts, median_ratio(pace["ours"], pace[name]), least=least)
    return met


def restart(folder: Path, options: Namespace) -> bool:
    """Measure the milliseconds from the kill of a worker to the next 200."""
    from marpack.protocol.messages import Load as LoadModel
    from marpack.runner.client import Worker
    from marpack.runner.process import Zygote

    def restart_ms(server: Server) -> float:
        (pid,) = server.handlers()
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        while not server.answers("digits", body):
            pass
        return (time.perf_counter() - start) * 1000

    def own_ms() -> float:
        with Worker.spawn(zygote=zygote) as worker:
            stages = worker.load(LoadModel(model_dir=str(folder / "digits"))).stages
        return stages["import"] + stages["initialize"]

    body, zygote = body_of(folder, "digits"), Zygote(None)
    zygote.start()
    try:
        with marpack([folder / "digits.mar"], folder) as server:
            first = server.wait_until_answers("digits", body) * 1000
            zygote.wait()
            until = time.monotonic() + _SETTLED
            while len(children(server.pid)) < 2 and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(first / 1000)  # it imports what the first worker has imported
            taken = [(restart_ms(server), own_ms()) for _ in range(options.repeat)]
    finally:
        zygote.close()
    away, own = (statistics.median(figures) for figures in zip(*taken, strict=True))
    name = f"restart, first start {first:.0f} ms / {_RESTART_MOST:.0f} ms"
    return show(name, f"{away:.0f} ms", f"own {own:.0f} ms", (away - own) / _RESTART_MOST, most=1)


def soak(folder: Path, options: Namespace) -> bool:
    """Load a server for minutes; each prints responses, memory and open files of the front and of the worker."""
    body, figures, failures = body_of(folder, "noop"), [], 0
    with marpack([write_no_op(folder / "noop")], folder) as server:
        server.wait_until_answers("noop", body)
        rate = _SHARE * server.load("noop", body, _WARM_UP).pace
        print(f"{rate:,.0f} requests a second", flush=True)
        for number in range(1, max(2, options.minutes) + 1):
            taken = send_steadily(server.port, "noop", body, rate=rate, seconds=60)
            memory, files = server.memory(), server.descriptors()
            figures.append((memory, files))
            failures += taken.failures
            requests = (
                f"{len(taken.milliseconds):,} answered, {taken.failures} failed, p99 {taken.percentile(99):.1f} ms"
            )
            sizes = " + ".join(f"{size / 1e6:.1f}" for size in memory)
            print(f"minute {number}: {requests}, {sizes} MB, {' + '.join(map(str, files))} open files", flush=True)
    (memory, files), (last_memory, last_files) = figures[0], figures[-1]
    grown = [after > before * (1 + _GROWTH) for before, after in zip(memory, last_memory, strict=False)]
    grown += [after > before for before, after in zip(files, last_files, strict=False)]
    is_stable = not failures and len(memory) == len(last_memory) and not any(grown)
    print("nothing failed, nothing grew" if is_stable else "MISSED: requests failed, a worker ended, or something grew")
    return is_stable


def soak_abused(folder: Path, options: Namespace) -> bool:
    """Load a server beside slow connections, cancelled requests and kills; each interval prints the front's memory."""
    body, memory, totals = body_of(folder, "noop"), [], Counter[str]()
    ended = threading.Event()

    def kill_workers() -> None:
        while not ended.wait(options.kill_every):
            for pid in server.handlers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    totals["killed"] += 1

    archives = [write_no_op(folder / "noop"), write_no_op(folder / "sleepy", _SLEEPY)]
    with marpack(archives, folder) as server:
        for archive in archives:
            server.wait_until_answers(archive.name, body)
        killer = threading.Thread(target=kill_workers)
        with slow_clients(server, "sleepy", options.slow, _CANCELLERS):
            killer.start()
            try:
                for number in range(1, max(2, options.minutes) + 1):
                    taken = send_steadily(server.port, "noop", body, rate=_ABUSED_RATE, seconds=options.interval)
                    memory.append(resident(server.pid) / 1e6)
                    totals += Counter(
                        answered=len(taken.milliseconds), lost=taken.died, failed=taken.failures - taken.died
                    )
                    counts = ", ".join(f"{count:,} {what}" for what, count in totals.items())
                    files = server.open_files()
                    print(f"interval {number}: {memory[-1]:.1f} MB, {files:,} open files; so far {counts}", flush=True)
            finally:
                ended.set()
                killer.join()
        for archive in archives:
            server.wait_until_answers(archive.name, body)
    grown = memory[-1] - memory[1]
    is_stable = not totals["failed"] and totals["lost"] <= totals["killed"] and grown < _ABUSED_GROWTH
    print(f"{grown:+.1f} MB from the second interval to the last; all workers came back")
    print("only killed workers lost requests" if is_stable else "MISSED: other requests failed, or memory grew")
    return is_stable


def scrape(folder: Path, options: Namespace) -> bool:
    """Time scrapes of an idle server, and requests during scrapes."""
    body = body_of(folder, "noop")
    with (
        marpack([write_no_op(folder / "noop")], folder) as server,
        closing(HTTPConnection(HOST, server.metrics_port)) as client,
    ):

        def scrape_ms() -> float:
            started = time.perf_counter()
            client.request("GET", "/metrics")
            client.getresponse().read()
            return (time.perf_counter() - started) * 1000

        server.wait_until_answers("noop", body)
        cpu = server.cpu()
        times = sorted(scrape_ms() for _ in range(_SCRAPES))
        cost = (server.cpu() - cpu) / _SCRAPES * 1000
        texts = f"p50 {times[_SCRAPES // 2]:.2f} ms", f"p99 {times[_SCRAPES * 99 // 100]:.2f} ms"
        met = show(f"scrape of an idle server: CPU {cost:.2f} / {_SCRAPE_MOST} ms", *texts, cost / _SCRAPE_MOST, most=1)
        alone, beside = [], []
        for _ in range(options.repeat):
            alone.append(steady(server, body, _ABUSED_RATE, options.seconds)[1])
            ended = threading.Event()
            scraper = threading.Thread(
                target=lambda ended=ended: [scrape_ms() for _ in iter(partial(ended.wait, 0.05), True)]
            )
            scraper.start()
            beside.append(steady(server, body, _ABUSED_RATE, options.seconds)[1])
            ended.set()
            scraper.join()
    texts = [f"{statistics.median(each):.2f} ms" for each in (beside, alone)]
    show("p99 of requests beside 20 scrapes/s / without", *texts, median_ratio(beside, alone))
    return met


if __name__ == "__main__":
    sys.exit(main())
