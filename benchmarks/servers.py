"""marpack and a real TorchServe as servers, and their clients: wrk, one at a fixed rate, and many that are slow.

    python -m benchmarks.servers PORT MODEL COUNT [CANCELLERS]

holds COUNT slow connections: a third is idle after a response, a third sends a head byte by byte, a third a body.
Closed ones come back. CANCELLERS clients send requests, whole or in part, and leave before the response. It prints a
line once all slow ones are connected.
"""

import asyncio
import os
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

HOST = "127.0.0.1"
CONNECTIONS = 16
_START_SECONDS = 90.0
_PATIENCE = 10.0  # seconds after the last request that responses are waited for
_LOOK = 0.05  # seconds that are waited at once where nothing is to be sent
_PAUSE = 1.0  # seconds between two bytes of a slow client
_LEAVES = 0.1  # seconds after which a client that cancels is gone
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
    """The body of every request."""

    path: Path
    kind: str  # its content type

    def message(self, model: str) -> bytes:
        """Return a whole request."""
        content = self.path.read_bytes()
        head = f"POST /predictions/{model} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {self.kind}\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Load(NamedTuple):
    """The result of a load."""

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

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        port: int,
        environment: Mapping[str, str],
        metrics_port: int = 0,
    ) -> None:
        self.port = port
        self.metrics_port = metrics_port
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
        """Return whether a prediction gets a 200."""
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=10) as client:
            client.sendall(body.message(model))
            return client.recv(65536).startswith(b"HTTP/1.1 200")
        return False

    def load(self, model: str, body: Body, seconds: int) -> Load:
        """Send a body over kept connections as fast as responses come."""
        script = body.path.with_suffix(".lua")
        script.write_text(_WRK.format(kind=body.kind, body=body.path))
        address = f"http://{HOST}:{self.port}/predictions/{model}"
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", script, address]
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
            tree += children(pid)
        is_front = {pid: Path(f"/proc/{pid}/comm").read_text().strip() == "java" for pid in tree}
        return sorted(tree, key=lambda pid: not is_front[pid])

    @property
    def pid(self) -> int:
        """The process id of the first process."""
        return self._process.pid

    def handlers(self) -> list[int]:
        """Return the processes of marpack's handlers: each has a supervisor between itself and the server."""
        return [inner for outer in children(self.pid) for inner in children(outer)]

    def memory(self) -> list[int]:
        """Return the bytes resident of each process, the front's first."""
        return [resident(pid) for pid in self.processes()]

    def open_files(self) -> int:
        """Return how many files the first process has open, connections included."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

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
    return Server(command, folder, inference, os.environ | (environment or {}), metrics)


def torchserve(
    programs: Path,
    archives: Sequence[Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    logs: bool = False,
) -> Server:
    """Start a real TorchServe from the `bin` of its environment, with defaults except for addresses and logs."""
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


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(each) for task in Path(f"/proc/{pid}/task").glob("*/children") for each in task.read_text().split()]
    return []


def ports(count: int) -> list[int]:
    """Return free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


class Latencies(NamedTuple):
    """The result of a steady load."""

    milliseconds: list[float]  # of responses with 200, ascending
    failures: int  # other responses, and missing ones
    died: int  # those of the failures whose worker ended

    def percentile(self, part: float) -> float:
        """Return the milliseconds that so many of a hundred stay under."""
        return self.milliseconds[min(len(self.milliseconds) - 1, int(len(self.milliseconds) * part / 100))]


class _Client:
    """A kept connection with one request in flight."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=_PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._arrived = b""

    def send(self, message: bytes, due: float) -> None:
        self.due, self._arrived = due, b""
        self.socket.sendall(message)

    def receive(self) -> int | None:
        """Return the status once the whole response has arrived; 0: the connection was closed."""
        try:
            piece = self.socket.recv(65536)
        except ConnectionResetError:
            piece = b""
        if not piece:
            return 0
        self._arrived += piece
        head, end, body = self._arrived.partition(b"\r\n\r\n")
        if not end:
            return None
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        return int(head[9:12]) if len(body) >= length else None

    @property
    def worker_died(self) -> bool:
        """Whether the response says that the worker ended."""
        return b"Worker died" in self._arrived


def send_steadily(port: int, model: str, body: Body, *, rate: float, seconds: float, clients: int = 32) -> Latencies:
    """Send `rate` requests a second over kept connections, evenly spaced; a late one counts from its due time."""
    message = body.message(model)
    taken, sent, answered, died = [], 0, 0, 0
    with selectors.SelectSelector() as selector:  # its timeouts are the only ones finer than a millisecond
        idle = deque(_connected(port, selector) for _ in range(clients))
        begun = now = time.perf_counter()
        while now < begun + seconds or (answered < sent and now < begun + seconds + _PATIENCE):
            while idle and begun + sent / rate <= now < begun + seconds:
                idle.popleft().send(message, begun + sent / rate)
                sent += 1
            wait = begun + sent / rate - now if idle and now < begun + seconds else _LOOK
            for key, _ in selector.select(max(0.0, wait)):
                client: _Client = key.data
                status = client.receive()
                if status is None:
                    continue
                answered += 1
                if status == 200:
                    taken.append((time.perf_counter() - client.due) * 1000)
                else:  # the server closes such a connection, or has done so
                    died += client.worker_died
                    selector.unregister(client.socket)
                    client.socket.close()
                    client = _connected(port, selector)
                idle.append(client)
            now = time.perf_counter()
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return Latencies(sorted(taken), sent - len(taken), died)


def _connected(port: int, selector: selectors.BaseSelector) -> _Client:
    client = _Client(port)
    selector.register(client.socket, selectors.EVENT_READ, client)
    return client


async def closes(reader: asyncio.StreamReader) -> bool:
    """Return whether the server closes a connection within a pause."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PAUSE):
            while await reader.read(65536):
                pass
            return True
    return False


async def hold(port: int, begin: bytes, drip: bytes, connected: asyncio.Semaphore) -> None:
    first = True
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, port)
            if first:
                connected.release()
                first = False
            writer.write(begin)
            while not await closes(reader):
                writer.write(drip)
                await writer.drain()
            writer.close()
        await asyncio.sleep(_PAUSE)


async def cancel(port: int, message: bytes) -> None:
    """Send requests, whole or in part, and leave before or after a worker takes them."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(message[: random.choice((len(message), len(message) - 1))])
            await asyncio.sleep(random.uniform(0, _LEAVES))
            random.choice((writer.close, writer.transport.abort))()


async def hold_slowly(port: int, model: str, count: int, cancellers: int = 0) -> None:
    head = f"Host: {HOST}\r\n"
    line = f"POST /predictions/{model} HTTP/1.1\r\n{head}".encode()
    idle = f"GET /ping HTTP/1.1\r\n{head}\r\n".encode()
    kinds = ((idle, b""), (line + b"x-slow: ", b"x"), (line + b"Content-Length: 1000000\r\n\r\n", b"x"))
    connected = asyncio.Semaphore(0)
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(hold(port, *kinds[number % 3], connected)))
        if number % 50 == 49:
            await asyncio.sleep(0.05)  # all at once would overflow any backlog
    for _ in range(count):
        await connected.acquire()
    print("connected", flush=True)
    whole = line + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000
    await asyncio.gather(*tasks, *(cancel(port, whole) for _ in range(cancellers)))


if __name__ == "__main__":
    asyncio.run(hold_slowly(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])))
