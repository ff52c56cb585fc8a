"""Help, and inspecting one GiB: locally, beside the bare imports that any such command needs, and elsewhere, by what is
fetched.

    python -m benchmarks.inspect [--rounds N] [--tensors N] [--folder FOLDER]

The archive is one of ours: a torch.save of 300 tensors, a handler, labels and a model config. Every round runs each
contender once, as a whole process. Elsewhere is a web server on this machine that answers ranges and counts bytes.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from benchmarks.verdicts import show_targets
from marpack.archive.manifest import Manifest, ManifestModel
from marpack.project.plan import Plan, PlannedMember, Role, pack

SIZE = 1 << 30  # bytes of weights
IMPORTS = "import click, rich, msgspec"
# Ours, whose time is the least it could be, and at most how many times that.
TARGETS = (("marpack --help", "import click", 2.0), ("marpack inspect", "imports alone", 2.0))
FETCHED_MOST = 256 * 1024  # bytes (item 10)
HANDLER = b"""from ts.torch_handler.base_handler import BaseHandler


class Own(BaseHandler):
    def preprocess(self, data):
        return data
"""


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="marpack-benchmark-") as name:
        archive = write_archive(Path(name), options.tensors)
        with served(archive.parent) as (address, counts):
            url = f"{address}/{archive.name}"
            times = race(contenders(archive, url), options.rounds)
            counts.clear()
            marpack(url)
            requests, fetched = len(counts), sum(counts)
    return 0 if all([show_times(times), show_targets(times, TARGETS), show_fetched(requests, fetched)]) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs of each contender [15]")
    parser.add_argument("--tensors", type=int, default=300, help="among which the GiB is divided [300]")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure [the system's temporary one]")
    return parser.parse_args()


def write_archive(folder: Path, tensors: int) -> Path:
    import torch

    weights = folder / "net.pt"
    names = (f"encoder.layers.{number // 4}.block{number % 4}.weight" for number in range(tensors))
    with torch.serialization.skip_data():  # room for the numbers, no numbers: a sparse file
        torch.save({name: torch.empty(SIZE // 4096 // tensors, 1024) for name in names}, weights)
    members = (
        PlannedMember("net.pt", weights, Role.WEIGHTS),
        PlannedMember("handler.py", HANDLER),
        PlannedMember("index_to_name.json", b'{"0": "cat", "1": "dog"}'),
        PlannedMember("model-config.yaml", b"batchSize: 4\nmaxBatchDelay: 20\n"),
    )
    files = {"serialized_file": "net.pt", "config_file": "model-config.yaml"}
    model = ManifestModel(name="net", handler="handler.py", version="1.0", **files)
    pack(Plan(manifest=Manifest(model=model), members=members, output=folder / "net.mar"))
    weights.unlink()
    return folder / "net.mar"


def contenders(archive: Path, url: str) -> dict[str, list[str]]:
    inspect = ["-m", "marpack", "inspect"]
    return {
        "import click": ["-c", "import click"],
        "marpack --help": ["-m", "marpack", "--help"],
        "imports alone": ["-c", IMPORTS],
        "marpack inspect": [*inspect, str(archive)],
        "marpack inspect --json": [*inspect, str(archive), "--json"],
        "marpack inspect http://": [*inspect, url],
    }


def race(commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """Time every command once a round, in turn, so that a slow minute of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():  # bytecode is compiled, as it is once a package is installed
        python(command)
    for _ in range(rounds):
        for name, command in commands.items():
            started = time.perf_counter()
            python(command)
            times[name].append(time.perf_counter() - started)
    return times


def python(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=environment)


def marpack(source: str) -> None:
    python(["-m", "marpack", "inspect", source])


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Serve a folder by range; yield its address, and a list that grows by the bytes of each answer."""
    counts: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = folder / self.path.lstrip("/")
            size = path.stat().st_size
            first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"]).groups()
            start = int(first) if first else size - int(last)
            stop = min(size, int(last) + 1) if first and last else size
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.send_header("Content-Length", str(stop - start))
            self.end_headers()
            with path.open("rb") as file:
                file.seek(start)
                self.wfile.write(file.read(stop - start))
            counts.append(stop - start)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", counts
    server.shutdown()
    server.server_close()


def show_times(times: dict[str, list[float]]) -> bool:
    print(f"{'':<26}{'median':>9}{'fastest':>10}{'slowest':>10}")
    for name, runs in times.items():
        print(f"{name:<26}{statistics.median(runs) * 1e3:>6.0f} ms{min(runs) * 1e3:>7.0f} ms{max(runs) * 1e3:>7.0f} ms")
    return True


def show_fetched(requests: int, fetched: int) -> bool:
    met = fetched <= FETCHED_MOST
    print(f"fetched {fetched:,} bytes in {requests} requests, at most {FETCHED_MOST:,}: {'ok' if met else 'MISSED'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
