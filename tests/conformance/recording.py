"""A recording: what the real server answered to a probe, kept as JSON beside the tests."""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from conformance.probe import Call, Probe
from conformance.requests import message_of
from conformance.wire import Answer

FOLDER = Path(__file__).parent / "recorded"
# The frontend's own headers: the same on every answer, or different on every one.
FRONTEND_HEADERS = {
    *("x-request-id", "pragma", "cache-control", "expires", "content-length", "connection", "transfer-encoding")
}


@dataclass(frozen=True)
class Reply:
    """What a client can tell about one answer, without what the frontend adds to every one."""

    status: int
    phrase: str
    headers: tuple[tuple[str, str], ...]  # sorted; names in the spelling that arrived
    body: bytes
    pieces: tuple[bytes, ...] = ()  # the chunks of a streamed answer
    end: str = "complete"

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Keep of an answer what the handler, or its failure, decided."""
        kept = [(name, value) for name, value in answer.headers if name.lower() not in FRONTEND_HEADERS]
        return cls(answer.status, answer.phrase, arranged(kept), answer.body, answer.pieces or (), answer.end)


def arranged(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return headers sorted, for their order is a Java map's, with one spelling of Content-Type."""
    return tuple(sorted(("content-type" if name.lower() == "content-type" else name, value) for name, value in headers))


@dataclass(frozen=True)
class Recording:
    """One probe's registration and answers."""

    probe: str
    question: str  # digest of everything asked: a changed probe needs a new recording
    registered: Reply
    replies: dict[str, Reply] = field(default_factory=dict)


def question_of(probe: Probe) -> str:
    """Return the digest of what a probe asks; the same for as long as its recording holds."""
    shape = (
        sorted(probe.model.items()),
        probe.manifest,
        probe.batch_size,
        probe.envelope,
        sorted(probe.settings.items()),
    )
    digest = hashlib.sha256(repr(shape).encode())
    for name, content in sorted(probe.files.items()):
        data = content.read_bytes() if isinstance(content, Path) else content
        digest.update(name.encode() + b"\0" + (data.encode() if isinstance(data, str) else data) + b"\0")
    for call in probe.calls:
        digest.update(repr((call.name, message_of(call, probe.name))).encode())
    return digest.hexdigest()[:16]


def path_of(probe: Probe) -> Path:
    """Return the file of a probe's recording."""
    return FOLDER / f"{probe.name}.json"


def store(probe: Probe, recording: Recording) -> None:
    """Write a probe's recording."""
    FOLDER.mkdir(exist_ok=True)
    value = {
        "probe": recording.probe,
        "question": recording.question,
        "registered": _to_json(recording.registered),
        "replies": {name: _to_json(reply) for name, reply in recording.replies.items()},
    }
    path_of(probe).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def load(probe: Probe) -> Recording | None:
    """Read a probe's recording; None where there is none."""
    if not path_of(probe).is_file():
        return None
    value = json.loads(path_of(probe).read_text())
    replies = {name: _from_json(reply) for name, reply in value["replies"].items()}
    return Recording(value["probe"], value["question"], _from_json(value["registered"]), replies)


def current(probe: Probe) -> Recording:
    """Read a probe's recording; raises LookupError where there is none of what the probe asks now."""
    recording = load(probe)
    if recording is None or recording.question != question_of(probe):
        raise LookupError(f"probe {probe.name} is new or changed: run python tests/conformance/record.py {probe.name}")
    return recording


def answered(probe: Probe) -> list[Call]:
    """Return the calls that both sides answer; none for a model that either refuses."""
    recording = load(probe)
    if recording is None or probe.stricter is not None:
        return []
    return [call for call in probe.calls if call.name in recording.replies]


def _to_json(reply: Reply) -> dict[str, Any]:
    value: dict[str, Any] = {"status": reply.status, "phrase": reply.phrase, "headers": reply.headers}
    if reply.pieces:
        value["pieces"] = [_to_text(piece) for piece in reply.pieces]
    else:
        value["body"] = _to_text(reply.body)
    return value if reply.end == "complete" else value | {"end": reply.end}


def _from_json(value: dict[str, Any]) -> Reply:
    pieces = tuple(_to_bytes(piece) for piece in value.get("pieces", ()))
    body = b"".join(pieces) if pieces else _to_bytes(value["body"])
    headers = tuple((name, text) for name, text in value["headers"])
    return Reply(value["status"], value["phrase"], headers, body, pieces, value.get("end", "complete"))


def _to_text(body: bytes) -> str | dict[str, str]:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def _to_bytes(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])
