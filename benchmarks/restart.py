"""How long a served worker that is killed stays away: `kill -9` of its process until the next 200.

    python -m benchmarks.restart [--repeat N] [--busy N] [--most MS]

The worker is killed while it is idle and sent requests at once. What the handler's own imports and initialize take is
taken off: they are measured in forked workers, in turn with the restarts. `--busy` processes work beside it.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.serve import DIGITS
from benchmarks.servers import Body, Server, marpack
from marpack.protocol.messages import Load
from marpack.runner.client import Worker
from marpack.runner.process import Zygote

_SETTLED = 30.0  # seconds for the zygote to be there


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(each) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for each in tasks.read_text().split()]


def worker_of(server: Server) -> int:
    """Return the process that the handler runs in: the only one with a supervisor between itself and the server."""
    (pid,) = [inner for outer in children(server.processes()[0]) for inner in children(outer)]
    return pid


def restart_ms(server: Server, body: Body) -> float:
    """Kill the worker, and return the milliseconds until a request is answered."""
    pid = worker_of(server)
    start = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while not server.answers("digits", body):
        pass
    return (time.perf_counter() - start) * 1000


def own_ms(zygote: Zygote, folder: Path) -> float:
    """Return the milliseconds that the handler's own imports and initialize take in a forked worker."""
    with Worker.spawn(zygote=zygote) as worker:
        stages = worker.load(Load(model_dir=str(folder))).stages
    return stages["import"] + stages["initialize"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7, help="restarts")
    parser.add_argument("--busy", type=int, default=0, help="processes that work beside it")
    parser.add_argument(
        "--most", type=float, default=150.0, help="milliseconds of a restart, the handler's own not counted"
    )
    options = parser.parse_args()
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    zygote = Zygote(None)
    zygote.start()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            archive, unpacked = folder / "digits.mar", folder / "digits"
            for words in (["build", DIGITS, "-o", archive], ["unpack", archive, "-d", unpacked]):
                subprocess.run([sys.executable, "-m", "marpack", *words], check=True, capture_output=True)
            body = Body(next((DIGITS / "samples").glob("*.png")), "image/png")
            with marpack([archive], folder) as server:
                first = server.wait_until_answers("digits", body) * 1000
                zygote.wait()
                until = time.monotonic() + _SETTLED
                while len(children(server.processes()[0])) < 2 and time.monotonic() < until:
                    time.sleep(0.1)
                time.sleep(first / 1000)  # it imports what the first worker has imported
                taken = [(restart_ms(server, body), own_ms(zygote, unpacked)) for _ in range(options.repeat)]
    finally:
        zygote.close()
        for process in beside:
            process.kill()
            process.wait()
    away, own = (median(figures) for figures in zip(*taken, strict=True))
    load = os.getloadavg()[0]
    print(
        f"first start {first:.0f} ms; restart {away:.0f} ms, of which the handler's own {own:.0f} ms; load {load:.1f}"
    )
    print(f"restarts: {', '.join(f'{each:.0f}' for each, _ in taken)} ms")
    return int(away - own > options.most)


if __name__ == "__main__":
    sys.exit(main())
