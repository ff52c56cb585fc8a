"""The server: one real TorchServe 0.12 on the loopback, started, fed with archives and stopped, all bounded in time."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import quote, urlencode

from conformance.wire import Answer, Headers, Message, exchange, wait_for
from serving.forked import ForkedServer

START_SECONDS = 60.0
REGISTER_SECONDS = 60.0
HOST = "127.0.0.1"
_PORTS = range(61_000, 65_535)  # TorchServe refuses 65535
_DOORS = ("inference", "management", "metrics", "grpc_inference", "grpc_management")


class Server:
    """A running server; a context manager that leaves no process behind."""

    def __init__(
        self, programs: Path, folder: Path, *, settings: Mapping[str, str] = {}, models: Iterable[Path] = ()
    ) -> None:
        """Take where the real one's programs are, a folder to live in, and the archives served from the start."""
        self.folder = folder
        self._models = tuple(models)
        self._settings = settings
        self.store = folder / "store"
        self._programs = programs
        self._ports = dict(zip(_DOORS, _ports(len(_DOORS)), strict=True))
        self._process: subprocess.Popen[bytes] | ForkedServer | None = None

    @property
    def inference(self) -> tuple[str, int]:
        """The address that answers predictions."""
        return HOST, self._ports["inference"]

    @property
    def management(self) -> tuple[str, int]:
        """The address that registers models."""
        return HOST, self._ports["management"]

    @property
    def grpc(self) -> str:
        """The address that answers predictions over gRPC."""
        return f"{HOST}:{self._ports['grpc_inference']}"

    @property
    def requires_tokens(self) -> bool:
        """Whether requests need a token."""
        return self._settings.get("disable_token_authorization") == "false"

    def key(self, kind: str) -> str:
        """Return a key of key_file.json: inference or management."""
        key: str = json.loads(self.folder.joinpath("key_file.json").read_text())[kind]["key"]
        return key

    def wait_for(self, address: tuple[str, int], target: str, kind: str = "inference") -> None:
        """Return once a GET of the target answers 200, with a key if the server requires one."""
        file = self.folder / "key_file.json"
        until = time.monotonic() + START_SECONDS
        while self.requires_tokens and not (file.is_file() and file.stat().st_size) and time.monotonic() < until:
            time.sleep(0.1)
        wait_for(address, target, self.authorization(kind), seconds=START_SECONDS)

    def authorization(self, kind: str = "inference") -> Headers:
        """Return the header with a key, if the server requires one."""
        return (("Authorization", f"Bearer {self.key(kind)}"),) if self.requires_tokens else ()

    @property
    def log(self) -> str:
        """Everything the server and its workers have said so far."""
        return self.folder.joinpath("server.log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self.store.mkdir(parents=True)
        for archive in self._models:
            shutil.copyfile(archive, self.store / archive.name)
        self.folder.joinpath("tmp").mkdir()
        self.folder.joinpath("config.properties").write_text(self._config())
        with self.folder.joinpath("server.log").open("wb") as log:
            self._process = self._start(log)
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._wait()
            undo.pop_all()
        return self

    def _start(self, log: IO[bytes]) -> subprocess.Popen[bytes] | ForkedServer:
        return subprocess.Popen(
            self._command(),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # one group: the server, its launcher and every worker
        )

    def _command(self) -> list[str | Path]:
        start = [self._programs / "torchserve", "--foreground", "--no-config-snapshots", "--model-store", self.store]
        models = ["--models", *(archive.name for archive in self._models)] if self._models else []
        return [*start, "--ts-config", self.folder / "config.properties", *models]

    def _wait(self) -> None:
        self.wait_for(self.inference, "/ping")
        self.wait_for(self.management, "/models", "management")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and its workers: asked first, then made to."""
        if self._process is None:
            return
        for sign, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            try:
                os.killpg(self._process.pid, sign)
                self._process.wait(seconds)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process = None

    def register(self, archive: Path, name: str, **options: object) -> Answer:
        """Put an archive into the store and register it with one worker, as an operator would; return the answer."""
        target = self.store / archive.name
        if archive != target:
            shutil.copytree(archive, target) if archive.is_dir() else shutil.copyfile(archive, target)
        query = {"url": archive.name, "model_name": name, "initial_workers": 1, "synchronous": "true"} | options
        message = Message("POST", "/models?" + urlencode({key: str(value) for key, value in query.items()}))
        return exchange(self.management, message, seconds=REGISTER_SECONDS)

    def unregister(self, name: str) -> Answer:
        """Take a model off the server; its worker ends with it."""
        return exchange(self.management, Message("DELETE", f"/models/{quote(name)}"), seconds=REGISTER_SECONDS)

    def describe(self, name: str) -> dict[str, Any]:
        """Return what the management API says of a model."""
        return json.loads(exchange(self.management, Message("GET", f"/models/{quote(name)}")).body)[0]

    def _environment(self) -> dict[str, str]:
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("TS_", "PYTHON", "COVERAGE"))}
        temporary = str(self.folder / "tmp")
        return keep | {
            "PATH": f"{self._programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "TMPDIR": temporary,  # the launcher's pid file
            "TEMP": temporary,  # the unpacked models and the workers' sockets
            "LOG_LOCATION": str(self.folder / "logs"),
            "METRICS_LOCATION": str(self.folder / "logs"),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _config(self) -> str:
        settings: dict[str, object] = {
            "inference_address": f"http://{HOST}:{self._ports['inference']}",
            "management_address": f"http://{HOST}:{self._ports['management']}",
            "metrics_address": f"http://{HOST}:{self._ports['metrics']}",
            "grpc_inference_port": self._ports["grpc_inference"],
            "grpc_management_port": self._ports["grpc_management"],
            "disable_token_authorization": "true",
            "enable_model_api": "true",
            "model_api_enabled": "true",
            "enable_envvars_config": "false",
            "install_py_dep_per_model": "false",
            "default_workers_per_model": 1,
            "default_response_timeout": 20,
            "default_startup_timeout": 30,
            "unregister_model_timeout": 20,
            "job_queue_size": 50,
            "number_of_netty_threads": 2,
            "netty_client_threads": 2,
            "number_of_gpu": 0,
            "metrics_mode": "log",
            "disable_system_metrics": "true",
            "vmargs": "-Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        return "".join(f"{key}={value}\n" for key, value in (settings | dict(self._settings)).items())


def _ports(count: int) -> list[int]:
    """Return free ports. Linux gives none of these to clients or to servers that take any port.

    TorchServe binds some of them only seconds later, and ends if a port is taken by then.
    """
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port, one = random.choice(_PORTS), stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind((HOST, port))
                found.append(port)
        return found
