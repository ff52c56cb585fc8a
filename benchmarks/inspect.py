"""Help, and inspecting 1 GiB: locally, beside the bare imports of any such command, and remotely, by the bytes fetched.

    python -m benchmarks.inspect [--repeat N] [--tensors N] [--folder FOLDER]

The archive holds a torch.save of 300 tensors, a handler, labels and a model config. Every contender is a whole process.
The remote archive is on a web server on this machine that serves ranges and counts bytes.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from benchmarks.timing import MARPACK, Race, parse, run, seconds, show

SIZE = 1 << 30  # bytes of weights
FETCHED_MOST = 256 * 1024  # bytes
FILES = {
    "handler.py": "from ts.torch_handler.base_handler import BaseHandler\n\n\nclass Own(BaseHandler):\n"
    "    def initialize(self, context):\n        self.initialized = True\n",
    "index_to_name.json": '{"0": "cat", "1": "dog"}',
    "model-config.yaml": "batchSize: 4\nmaxBatchDelay: 20\n",
}
FLAGS = "--model-name net --version 1.0 --handler handler.py --serialized-file net.pt --config-file model-config.yaml"


def main() -> int:
    options = parse(__doc__, repeat=15, tensors=300, folder=None)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="marpack-benchmark-") as name:
        archive = write_archive(Path(name), options.tensors)
        with served(archive.parent) as (address, counts):
            url = f"{address}/{archive.name}"
            commands = {
                "import click": [sys.executable, "-c", "import click"],
                "--help": [*MARPACK, "--help"],
                "imports": [sys.executable, "-c", "import click, rich, msgspec"],
                "inspect": [*MARPACK, "inspect", archive],
                "--json": [*MARPACK, "inspect", archive, "--json"],
                "http": [*MARPACK, "inspect", url],
            }
            actions = {name: partial(seconds, partial(run, command)) for name, command in commands.items()}
            race = Race(options.repeat, actions)
            counts.clear()
            run([*MARPACK, "inspect", url])
    fetched = sum(counts)
    return 0 if all([
        race.show("marpack --help / import click", "--help", "import click", "ms", scale=1e3, most=2),
        race.show("marpack inspect / imports alone", "inspect", "imports", "ms", scale=1e3, most=2),
        race.show("marpack inspect --json / imports alone", "--json", "imports", "ms", scale=1e3),
        race.show("marpack inspect http:// / imports alone", "http", "imports", "ms", scale=1e3),
        show(f"bytes fetched in {len(counts)} requests / 256 KiB", f"{fetched:,}", f"{FETCHED_MOST:,}",
             fetched / FETCHED_MOST, most=1),
    ]) else 1  # fmt: skip


def write_archive(folder: Path, tensors: int) -> Path:
    import torch

    names = (f"encoder.layers.{number // 4}.block{number % 4}.weight" for number in range(tensors))
    with torch.serialization.skip_data():  # room for the numbers, no numbers: a sparse file
        torch.save({name: torch.empty(SIZE // 4096 // tensors, 1024) for name in names}, folder / "net.pt")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    flags = [str(folder / word) if "." in word and word != "1.0" else word for word in FLAGS.split()]
    run([*MARPACK, "build", *flags, "--extra-files", folder / "index_to_name.json", "--export-path", folder])
    (folder / "net.pt").unlink()
    return folder / "net.mar"


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Serve a folder by range; yield its address, and a list that grows by the bytes of each response."""
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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", counts
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
