"""A server in a process of its own; the requests name what its handler does."""

import itertools
import json
import logging
import sys
import textwrap
import threading
from contextlib import AbstractContextManager, closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from serving.commands import SECONDS, Serving, serving
from serving.served import pack

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
        def do_await(self, name):
            open(name + ".begun", "w").close()
            while not os.path.exists(name): time.sleep(0.01)
            return "awaited"
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
    """Write an archive with this handler and another file."""
    return pack(path.parent, path.name, HANDLER, files={"data.txt": data}, modelName="probe")


class Load:
    """Clients that send request after request, each on its own connection, until the block ends."""

    def __init__(self, server: Serving, clients: int, text: str = "mark") -> None:
        self._port = server.port()
        self._text = text
        self._stop = threading.Event()
        self.answers: list[tuple[str, int, str]] = []  # request, status, response
        self.lost: list[str] = []  # requests on an open connection without a response
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * SECONDS)
            assert not thread.is_alive(), "a request hangs"

    def _ask(self, number: int) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        with closing(connection):
            for count in itertools.count():
                if self._stop.is_set():
                    return
                if connection.sock is None:
                    try:
                        connection.connect()
                    except ConnectionError:  # the server has closed its port
                        return
                asked = f"{self._text} {number}-{count}"
                try:
                    connection.request("POST", "/predictions/probe", body=asked)
                    response = connection.getresponse()
                    self.answers.append((asked, response.status, response.read().decode()))
                except (OSError, HTTPException) as error:
                    self.lost.append(f"{asked}: {error!r}")
                    connection.close()


def served(
    archive: Path,
    *,
    bug: int = 0,
    max_memory: int | None = None,
    front: dict[str, Any] | None = None,
    loaded: int = 1,
    forks: bool = True,
    **model: Any,
) -> AbstractContextManager[Serving]:
    """Start a server of the model `probe`; `bug` is the number of the load at which the server raises KeyError."""
    settings = {"front": front or {}, "model": model, "bug": bug, "max_memory": max_memory}
    words = (str(archive), json.dumps(settings))
    return serving(*words, module="serving.faulty", cwd=archive.parent, loaded=loaded, forks=forks)


def main(archive: str, given: str) -> int:
    from marpack.errors import MarpackError
    from marpack.project.source import resolve
    from marpack.protocol.messages import Load
    from marpack.render.serve import SERVER_LOG, logging_to_stderr
    from marpack.runner.client import Worker
    from marpack.runner.session import prepare
    from marpack.serving.http import HttpSettings
    from marpack.serving.loading import ModelPlan
    from marpack.serving.metrics import ServerMetrics
    from marpack.serving.models import ModelFailed, WorkerLoaded
    from marpack.serving.server import Server, ServerOptions, serve
    from marpack.serving.settings import Address, ModelSettings

    settings = json.loads(given)
    loads = itertools.count(1)

    class Bug(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.msg, WorkerLoaded) and next(loads) == settings["bug"]:
                raise KeyError("a bug")
            if isinstance(record.msg, ModelFailed) and record.exc_info and isinstance(record.exc_info[1], MarpackError):
                sys.stderr.write(json.dumps({"event": "error", "code": record.exc_info[1].code}) + "\n")

    prepared = prepare(resolve(archive), options=Load(model_dir="", gpu_id=None))
    model = ModelPlan(
        spawn=partial(Worker.spawn, max_memory=settings["max_memory"]),
        name=prepared.archive.manifest.model.name,
        version="1.0",
        prepared=prepared,
        settings=ModelSettings(**settings["model"]),
    )
    front = {"max_request_size": 1 << 20, "max_connections": 4000, "drain": 30.0, **settings["front"]}
    options = ServerOptions(inference=Address("127.0.0.1", front.pop("port", 0)), http=HttpSettings(**front))
    with logging_to_stderr("json"):
        SERVER_LOG.addHandler(Bug())
        try:
            return serve(lambda: Server(options, ServerMetrics(hostname="here")), (model,))
        except MarpackError as error:
            sys.stderr.write(f"{error.code}: {error}; {error.hint}\n")
            return int(error.exit_code)
