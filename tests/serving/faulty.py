"""A server in a process of its own, whose handler does as its requests say.

Its `main` takes the archive, and settings as JSON: front, model, bug, max_memory.

It prints its port and what its listener is told, a line each.
"""

import itertools
import json
import logging
import os
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Self

import psutil
from serving.forked import start

HANDLER = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from ts.handler_utils.utils import send_intermediate_predict_response

    DONE = []

    class Handler:
        def initialize(self, context):
            self.kept = []

        def handle(self, data, context):
            self.context = context
            return [self.answer(bytes(row.get("body") or row.get("data") or b"").decode()) for row in data]

        def answer(self, text):
            word, _, rest = text.partition(" ")
            DONE.append(text)
            return getattr(self, "do_" + word, lambda rest: text)(rest)

        def do_pid(self, _): return str(os.getpid())
        def do_done(self, _): return "\\n".join(DONE)
        def do_sleep(self, words):
            seconds = words.split()[0]
            time.sleep(float(seconds))
            return "slept " + seconds
        def do_killed(self, _): os.kill(os.getpid(), signal.SIGKILL)
        def do_exit(self, _): os._exit(7)
        def do_hang(self, _): time.sleep(3600)
        def do_leak(self, size): self.kept.append(bytearray(int(size))); return "kept"
        def do_large(self, size): return b"x" * int(size)
        def do_prints(self, size):
            for _ in range(int(size) >> 16): os.write(1, b"x" * 65535 + b"\\n")
            return "printed"
        def do_closes(self, _): os.closerange(3, 100); return "closed"
        def do_parting(self, size):
            threading.Timer(0.0, lambda: (time.sleep(0.02), os._exit(0))).start()
            return b"x" * int(size)
        def do_error(self, _): raise ValueError("no")
        def do_file(self, name): return open(name).read()
        def do_removes(self, name): os.remove(name); return "removed"
        def piece(self, text, status=200):
            self.context.set_response_status(status, idx=0)
            send_intermediate_predict_response([text], self.context.request_ids, "Intermediate", 200, self.context)
        def do_streams(self, count):
            for number in range(int(count)): self.piece("%d," % number)
            return "end"
        def do_stream_dies(self, _): self.piece("one,"); time.sleep(0.1); os._exit(1)
        def do_stream_fails(self, _): self.piece("one,"); raise ValueError("no")
        def do_stream_hangs(self, _): self.piece("one,"); time.sleep(3600)
        def do_stream_refuses(self, _): self.piece("one,", 404); return "end"
        def do_stream_for_ever(self, _):
            while True: self.piece("one,"); time.sleep(0.02)
        def do_late_piece(self, _):
            threading.Timer(0.05, self.piece, ("late,",)).start()
            return "early"
    """
)


def write_archive(path: Path, data: str = "old") -> Path:
    """Write an archive whose handler does as it is told, and has one more file, of so much text."""
    model = {"modelName": "probe", "modelVersion": "1.0", "handler": "handler.py"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("handler.py", HANDLER)
        archive.writestr("data.txt", data)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": model}))
    return path


class Served:
    """A server that was started."""

    def __init__(
        self, archive: Path, settings: dict[str, Any], environment: dict[str, str], *, forks: bool = True
    ) -> None:
        words = [str(archive), json.dumps(settings)]
        self.process = start("serving.faulty", words, environment=os.environ | environment, forks=forks)
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))  # noqa: PERF401 - as they come
        stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()

    @property
    def port(self) -> int:
        return int(self.said("listening").rpartition(":")[2])

    def said(self, word: str, *, times: int = 1) -> str:
        """Return the line that begins with a word, once it was said so often."""

        def found() -> list[str]:
            return [line for line in self.lines if line.startswith(word)][times - 1 :]

        eventually(lambda: found() or self.process.poll() is not None, within=30.0)
        assert found(), f"{word}: {self.lines}, {self.errors}"
        return found()[0]

    def workers(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    @contextmanager
    def asking(self, text: str, *, timeout: float = 20.0) -> Iterator[HTTPResponse]:
        """Yield the answer to a request, as it comes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", "/predictions/probe", body=text.encode())
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, text: str, *, timeout: float = 20.0) -> tuple[int, str]:
        """Return status and body of the answer to a request."""
        with self.asking(text, timeout=timeout) as response:
            return response.status, response.read().decode()

    def end(self, number: int, *, within: float = 20.0) -> int:
        """Send it a signal and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(within)


class Load:
    """Clients that ask one thing after another, each on a connection of its own, until they are told to stop."""

    def __init__(self, server: Served, clients: int, text: str = "mark") -> None:
        self._server = server
        self._text = text
        self._stop = threading.Event()
        self.answers: list[tuple[str, int, str]] = []  # what was asked, status, what came
        self.lost: list[str] = []  # what was asked on an open connection and never answered
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30.0)
            assert not thread.is_alive(), "a request hangs"

    def _ask(self, number: int) -> None:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=20.0)
        with closing(connection):
            for count in itertools.count():
                if self._stop.is_set():
                    return
                if connection.sock is None:
                    try:
                        connection.connect()
                    except ConnectionError:  # it listens no more
                        return
                asked = f"{self._text} {number}-{count}"
                try:
                    connection.request("POST", "/predictions/probe", body=asked)
                    response = connection.getresponse()
                    self.answers.append((asked, response.status, response.read().decode()))
                except (OSError, HTTPException) as error:
                    self.lost.append(f"{asked}: {error!r}")
                    connection.close()


def eventually(holds: Callable[[], object], within: float = 10.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


@contextmanager
def served(
    archive: Path,
    *,
    environment: dict[str, str] | None = None,
    bug: int = 0,
    max_memory: int | None = None,
    front: dict[str, Any] | None = None,
    forks: bool = True,
    **model: Any,
) -> Iterator[Served]:
    """Yield a server whose model, named probe, has loaded.

    `bug` is the load at which the server meets a bug of its own; with `forks`, its workers are not its children.
    """
    settings = {"front": front or {}, "model": model, "bug": bug, "max_memory": max_memory}
    with Served(archive, settings, environment or {}, forks=forks) as server:
        server.said("loaded")
        yield server


def teller(bug: int) -> logging.Handler:
    """Return what prints the log; it raises an error at the load with the number `bug`."""
    from marpack.serving.models import HandlerFailed, HandlerPrinted, ModelFailed, WorkerLoaded
    from marpack.serving.server import Listening

    loads = itertools.count(1)

    def tell(*words: object) -> None:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            match record.msg:
                case Listening(what, address):
                    tell("listening", what, address)
                case WorkerLoaded(model, worker):
                    tell("loaded", model, worker)
                    if next(loads) == bug:
                        raise KeyError("a bug")
                case ModelFailed(given_up=given_up, worker=worker, message=message, hint=hint):
                    assert record.exc_info
                    error: Any = record.exc_info[1]
                    tell("given up" if given_up else "failed", worker, error.code, message, hint)
                case HandlerPrinted():
                    tell("printed", 1, [])
                case HandlerFailed(trouble=trouble):
                    tell("printed", 0, [trouble.kind])
                case str():
                    tell("noted", record.getMessage())

    return Teller()


def main(archive: str, given: str) -> int:

    from marpack.errors import MarpackError
    from marpack.project.source import resolve
    from marpack.protocol.messages import Load
    from marpack.runner.client import Worker
    from marpack.runner.session import prepare
    from marpack.serving.http import HttpSettings
    from marpack.serving.loading import ModelPlan
    from marpack.serving.metrics import ServerMetrics
    from marpack.serving.server import Server, ServerOptions, serve
    from marpack.serving.settings import Address, ModelSettings

    settings = json.loads(given)
    log = logging.getLogger("marpack.serving")
    log.setLevel(logging.INFO)
    log.addHandler(teller(settings["bug"]))
    prepared = prepare(resolve(archive), options=Load(model_dir="", gpu_id=None))
    model = ModelPlan(
        spawn=partial(Worker.spawn, max_memory=settings["max_memory"]),
        name=prepared.archive.manifest.model.name,
        version="1.0",
        prepared=prepared,
        settings=ModelSettings(**settings["model"]),
    )
    front = {"max_request_size": 1 << 20, "max_connections": 4000, "drain": 10.0, **settings["front"]}
    port = front.pop("port", 0)
    options = ServerOptions(inference=Address("127.0.0.1", port), http=HttpSettings(**front))
    try:
        return serve(lambda: Server(options, ServerMetrics(hostname="here")), (model,))
    except MarpackError as error:
        sys.stderr.write(f"{error.code}: {error}; {error.hint}\n")
        return int(error.exit_code)
