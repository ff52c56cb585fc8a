"""Exchanges: what is asked of a server itself, byte by byte, and how its answers are kept and compared."""

import json
import re
import select
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.wire import Answer, read_answer

RECORDED = Path(__file__).parents[1] / "data" / "serving" / "exchanges.json"
SECONDS = 8.0
_ENDING = 0.5  # seconds that a server may take to close a connection
_AFTER = b"GET /ping HTTP/1.1\r\nHost: after\r\n\r\n"
_SPELT = {name.title(): name for name in ("content-length", "transfer-encoding")}  # no client minds
_USUAL = {
    ("x-request-id", "UUID"),
    ("Pragma", "no-cache"),
    ("Cache-Control", "no-cache; no-store, must-revalidate, private"),
    ("Expires", "Thu, 01 Jan 1970 00:00:00 UTC"),
}  # headers of every answer that passed a route
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Bytes that are sent on a connection of their own, and what matters of the answer."""

    name: str  # unique in its scene
    sent: bytes
    more: bytes = b""  # sent once a first answer, such as 100 Continue, has come
    document: bool = False  # the answer is a long document: only its outline counts
    behind: bytes = b""  # sent before this on connections of their own, so that this comes second
    behind_count: int = 0
    difference: str | None = None  # the name of the ServerDifference that makes ours another


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A server's settings and models, and the exchanges with it."""

    name: str
    models: Mapping[str, str]  # "name 1.0" → the source of its handler
    fragile: str = ""  # a model that gets no request before the exchanges
    settings: Mapping[str, str] = field(default_factory=dict)
    exchanges: tuple[Any, ...]  # each an Exchange, or an Rpc of conformance.grpc_calls


def have(exchange: Exchange, address: tuple[str, int]) -> dict[str, Any]:
    """Have an exchange with a server, and return what came of it as JSON."""
    asked: list[threading.Thread] = []
    for _ in range(exchange.behind_count):
        asked.append(threading.Thread(target=_ask, args=(exchange.behind, address), daemon=True))
        asked[-1].start()
        time.sleep(0.05)
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(exchange.sent)
        with connection.makefile("rb") as stream:
            answers = [read_answer(stream, bodiless=exchange.sent.startswith(b"HEAD "))]
            while answers[-1].status == 100:
                connection.sendall(exchange.more)
                answers.append(read_answer(stream))
            if answers[-1].header("connection") == "close":
                select.select([connection], [], [], _ENDING)  # it has said that it closes
            then = _stays_open(connection, stream)
    for thread in asked:
        thread.join()
    return {"answers": [_kept(answer, exchange) for answer in answers], "then": then}


def _ask(message: bytes, address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(message)
        connection.recv(1)


def _stays_open(connection: socket.socket, stream: Any) -> str:
    """Say whether a further request on the connection is answered."""
    with suppress(OSError):
        connection.sendall(_AFTER)
    try:
        return "open" if read_answer(stream).status else "closed"
    except ValueError:
        return "garbled"  # more of the answer than its head announced


def _kept(answer: Answer, exchange: Exchange) -> dict[str, Any]:
    headers = sorted((_SPELT.get(name, name), _UUID.sub("UUID", value)) for name, value in answer.headers)
    body = answer.body.decode("latin-1")
    left_out = set()
    if exchange.document and answer.status == 200:
        left_out = {"content-length"}
        body = " ".join(key for key in ("openapi", "info", "paths") if key in json.loads(body))
    if answer.status == 304 or exchange.sent.startswith(b"HEAD "):
        left_out = {"content-length", "transfer-encoding"}  # a server may leave them out there
    kept: dict[str, Any] = {"status": answer.status, "phrase": answer.phrase}
    if set(headers) >= _USUAL:
        kept["usual"] = True
        headers = [pair for pair in headers if pair not in _USUAL]
    else:
        left_out = {"connection"}  # what comes then tells
    headers = [pair for pair in headers if pair[0] not in left_out]
    kept |= {"headers": [list(pair) for pair in headers], "body": body}
    if answer.pieces is not None:
        kept["pieces"] = [piece.decode("latin-1") for piece in answer.pieces]
    return kept if answer.end == "complete" else kept | {"end": answer.end}


def load() -> dict[str, dict[str, Any]]:
    """Return what was recorded: scene → exchange → what came of it."""
    return json.loads(RECORDED.read_text())


def store(recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep what was recorded, an exchange a line."""
    scenes = []
    for scene, exchanges in recorded.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(came)}" for name, came in exchanges.items())
        scenes.append(f" {json.dumps(scene)}: {{\n{lines}\n }}")
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text("{\n" + ",\n".join(scenes) + "\n}\n")
