"""What a run tells of each input: the answer, and beside it what the author wants to know."""

import base64
import json
from typing import Any, Literal

from msgspec import Struct

from marpack.runtime.messages import Response, Trouble
from marpack.worker.client import Outcome

_METRIC = "[METRICS]"


class Body(Struct, frozen=True):
    """Bytes as JSON can hold them."""

    content: str
    encoding: Literal["text", "base64"] = "text"


class Result(Struct, frozen=True, kw_only=True):
    """One input's answer."""

    input: str
    status: int
    phrase: str
    headers: dict[str, str]  # those the handler set, content-type apart
    content_type: str | None
    body: str  # as text, or base64 where it is no UTF-8
    body_encoding: Literal["text", "base64"]
    chunks: tuple[Body, ...] = ()  # the pieces of a streamed answer; `body` is all of them
    reset: bool = False  # the connection broke off in the middle
    stages: dict[str, float]  # ms: preprocess, inference, postprocess, handle; of the whole batch
    seconds: float  # the worker's, for the whole batch
    batch: int = 1  # requests that were handled together
    logs: str = ""  # what the handler printed; of the whole batch, told with its first input
    metrics: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    restarted: bool = False  # the worker died and was started again

    @property
    def ok(self) -> bool:
        """Whether a client would call this an answer."""
        return 200 <= self.status < 300 and not self.reset

    def json(self) -> Any:  # Any: whatever the handler answered
        """Return the body's JSON; raises ValueError where it is none."""
        return json.loads(self.raw)

    @property
    def raw(self) -> bytes:
        """The body's bytes."""
        return base64.b64decode(self.body) if self.body_encoding == "base64" else self.body.encode()


def results_of(names: tuple[str, ...], outcome: Outcome) -> tuple[Result, ...]:
    """Return one result per input of a batch."""
    logs, metrics = _parted(outcome.logs)
    return tuple(
        _result(name, response, outcome, logs if index == 0 else "", metrics if index == 0 else ())
        for index, (name, response) in enumerate(zip(names, outcome.responses, strict=True))
    )


def _result(name: str, response: Response, outcome: Outcome, logs: str, metrics: tuple[str, ...]) -> Result:
    body = body_of(response.body)
    return Result(
        input=name,
        status=response.status,
        phrase=response.phrase,
        headers=dict(response.headers),
        content_type=response.content_type,
        body=body.content,
        body_encoding=body.encoding,
        chunks=tuple(body_of(piece) for piece in response.pieces),
        reset=response.reset,
        stages={stage: round(spent, 3) for stage, spent in outcome.stages.items()},
        seconds=round(outcome.seconds, 6),
        batch=len(outcome.responses),
        logs=logs,
        metrics=metrics,
        troubles=outcome.troubles,
        restarted=outcome.died,
    )


def body_of(data: bytes) -> Body:
    """Return bytes as text where they are UTF-8, else as base64."""
    try:
        return Body(data.decode("utf-8"))
    except UnicodeDecodeError:
        return Body(base64.b64encode(data).decode("ascii"), "base64")


def _parted(logs: str) -> tuple[str, tuple[str, ...]]:
    """Return what the handler printed, and the metric lines that stood among it."""
    if _METRIC not in logs:
        return logs, ()
    lines = logs.splitlines(keepends=True)
    metrics = tuple(line.strip().removeprefix(_METRIC) for line in lines if line.startswith(_METRIC))
    return "".join(line for line in lines if not line.startswith(_METRIC)), metrics
