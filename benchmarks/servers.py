"""marpack and a real TorchServe as servers: started the same way, asked the same way, their processes' costs read."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

HOST = "127.0.0.1"
CONNECTIONS = 16
_START_SECONDS = 90.0
_TICK = os.sysconf("SC_CLK_TCK")
_PROPERTIES = """\
inference_address=http://{host}:{inference}
management_address=http://{host}:{management}
metrics_address=http://{host}:{metrics}
grpc_inference_port={grpc_inference}
grpc_management_port={grpc_management}
disable_token_authorization=true
"""
_NO_LOGS = '<Configuration status="OFF"><Loggers><Root level="OFF"/></Loggers></Configuration>'
_WRK = 'wrk.method = "POST"\nwrk.headers["Content-Type"] = "{kind}"\nlocal file = io.open("{body}", "rb")\n'
_WRK += 'wrk.body = file:read("*a")\n'


class Body(NamedTuple):
    """What is sent, again and again."""

    path: Path
    kind: str  # its content type

    def script(self) -> Path:
        """Write down for wrk what to send; return where."""
        script = self.path.with_suffix(".lua")
        script.write_text(_WRK.format(kind=self.kind, body=self.path))
        return script


class Load(NamedTuple):
    """What became of a load."""

    requests: int
    seconds: float
    cpu: float  # seconds of all the server's processes

    @property
    def pace(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def cpu_each(self) -> float:
        """Microseconds of CPU a request."""
        return self.cpu / self.requests * 1e6


class Server:
    """One server in a process tree of its own; a context manager that leaves no process behind."""

    def __init__(self, command: Sequence[str | Path], folder: Path, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self.started = time.perf_counter()
        self._log = (folder / f"{port}.log").open("wb")
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                         stdout=self._log, stderr=self._log, start_new_session=True)  # fmt: skip

    def wait_until_answers(self, model: str, body: Body) -> float:
        """Return the seconds from its start to its first answer to a prediction."""
        while not self.answers(model, body):
            if time.perf_counter() - self.started > _START_SECONDS or self._process.poll() is not None:
                raise SystemExit(f"the server did not answer; it said:\n{Path(self._log.name).read_text()[-2000:]}")
            time.sleep(0.01)
        return time.perf_counter() - self.started

    def answers(self, model: str, body: Body) -> bool:
        """Say whether a prediction gets a 200."""
        content = body.path.read_bytes()
        head = f"POST /predictions/{model} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {body.kind}\r\n"
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=10) as client:
            client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            return client.recv(65536).startswith(b"HTTP/1.1 200")
        return False

    def load(self, model: str, body: Body, seconds: int) -> Load:
        """Send a body over kept connections as fast as answers come."""
        address = f"http://{HOST}:{self.port}/predictions/{model}"
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", body.script(), address]
        before = self.cpu()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cpu = self.cpu() - before
        if "Non-2xx" in said or "Socket errors" in said:
            raise SystemExit(f"not all was answered:\n{said}")
        requests, taken = re.search(r"(\d+) requests in ([\d.]+)s", said).groups()
        return Load(int(requests), float(taken), cpu)

    def cpu(self) -> float:
        """Return the seconds of CPU that all its living processes have taken."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.processes()]
        return sum(int(field[11]) + int(field[12]) for field in fields) / _TICK

    def processes(self) -> list[int]:
        """Return the process ids of the whole tree, the front's first."""
        tree = [self._process.pid]
        for pid in tree:
            with suppress(FileNotFoundError):
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    tree += map(int, children.read_text().split())
        is_front = {pid: Path(f"/proc/{pid}/comm").read_text().strip() == "java" for pid in tree}
        return sorted(tree, key=lambda pid: not is_front[pid])

    def memory(self) -> list[int]:
        """Return the bytes resident of each process, the front's first."""
        return [_status(pid, "VmRSS") * 1024 for pid in self.processes()]

    def descriptors(self) -> list[int]:
        """Return how many files each process has open, the front's first."""
        return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.processes()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, number)
                self._process.wait(seconds)
                break
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._log.close()


def marpack(archives: Sequence[Path], folder: Path, environment: Mapping[str, str] | None = None) -> Server:
    """Start `marpack serve`, with this on top of our own environment."""
    inference, metrics = ports(2)
    command = [sys.executable, "-m", "marpack", "serve", *archives]
    command += ["--port", str(inference), "--metrics-port", str(metrics)]
    return Server(command, folder, inference, os.environ | (environment or {}))


def torchserve(
    programs: Path,
    archives: Sequence[Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    logs: bool = False,
) -> Server:
    """Start a real TorchServe, everything at its defaults but the addresses and, where asked for, its logs.

    Args:
        programs: The `bin` of an environment that has it.
        archives: Are served under the names of their files.
        folder: The server works in a new one within it.
        environment: Comes on top of our own.
        logs: Whether it writes what it writes by default; else nothing.
    """
    names = ("inference", "management", "metrics", "grpc_inference", "grpc_management")
    given = dict(zip(names, ports(len(names)), strict=True))
    home = folder / f"torchserve-{given['inference']}"
    (home / "store").mkdir(parents=True)
    for archive in archives:
        shutil.copyfile(archive, home / "store" / archive.name)
    (home / "config.properties").write_text(_PROPERTIES.format(host=HOST, **given))
    (home / "silent.xml").write_text(_NO_LOGS)
    command = [programs / "torchserve", "--foreground", "--no-config-snapshots", "--model-store", home / "store"]
    command += ["--ts-config", home / "config.properties", *([] if logs else ["--log-config", home / "silent.xml"])]
    command += ["--models", *(f"{archive.stem}={archive.name}" for archive in archives)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TS_", "PYTHON"))}
    kept |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TEMP": str(home), "TMPDIR": str(home)}
    return Server(command, home, given["inference"], kept | (environment or {}))


def ports(count: int) -> list[int]:
    """Return free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _status(pid: int, field: str) -> int:
    return int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
