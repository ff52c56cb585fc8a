"""A client that sends at a fixed rate: what comes late for a slow answer counts from when it should have been sent."""

import selectors
import socket
import time
from collections import deque
from typing import NamedTuple

from benchmarks.servers import HOST, Body

_PATIENCE = 10.0  # seconds after the last request that answers are waited for
_LOOK = 0.05  # seconds that are waited at once where nothing is to be sent


class Latencies(NamedTuple):
    """What became of a steady load."""

    milliseconds: list[float]  # of what was answered with 200, ascending
    failures: int  # other answers, and none

    def percentile(self, part: float) -> float:
        """Return the milliseconds that so many of a hundred stay under."""
        return self.milliseconds[min(len(self.milliseconds) - 1, int(len(self.milliseconds) * part / 100))]


class _Client:
    """A kept connection, and what it waits for."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=_PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._arrived = b""

    def send(self, message: bytes, due: float) -> None:
        self.due, self._arrived = due, b""
        self.socket.sendall(message)

    def receive(self) -> int | None:
        """Return the status once the whole answer is here; 0: the connection was closed."""
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


def send_steadily(port: int, model: str, body: Body, *, rate: float, seconds: float, clients: int = 32) -> Latencies:
    """Send `rate` requests a second over kept connections, evenly spaced; what finds all of them busy waits."""
    content = body.path.read_bytes()
    head = f"POST /predictions/{model} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {body.kind}\r\n"
    message = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    taken, sent, answered = [], 0, 0
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
                    selector.unregister(client.socket)
                    client.socket.close()
                    client = _connected(port, selector)
                idle.append(client)
            now = time.perf_counter()
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return Latencies(sorted(taken), sent - len(taken))


def _connected(port: int, selector: selectors.BaseSelector) -> _Client:
    client = _Client(port)
    selector.register(client.socket, selectors.EVENT_READ, client)
    return client
