"""What a run tells of each input: the answer, and beside it what the author wants to know."""

import base64
import json
from typing import Any, Literal

from msgspec import Struct

from marpack.torchserve.messages import DATA, Response, Trouble
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
    data: tuple[str, ...] = ()  # what the handler got, with --show-data; of the whole batch
    troubles: tuple[Trouble, ...] = ()
    restarted: bool = False  # the worker died and was started again
    file: str | None = None  # where --output put the body

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
    """Return one result per input of a batch; what was printed is told with its first."""
    said = _parted(outcome.logs)
    stages = {stage: round(spent, 3) for stage, spent in outcome.stages.items()}
    seconds = round(outcome.seconds, 6)
    results = []
    for name, response in zip(names, outcome.responses, strict=True):
        results.append(_result(name, response, outcome, said, stages, seconds))
        said = _NOTHING
    return tuple(results)


def _result(
    name: str, response: Response, outcome: Outcome, said: "_Said", stages: dict[str, float], seconds: float
) -> Result:
    body = body_of(response.body)
    return Result(
        input=name,
        status=response.status,
        phrase=response.phrase,
        headers=dict(response.headers),
        content_type=response.content_type,
        body=body.content,
        body_encoding=body.encoding,
        chunks=tuple([body_of(piece) for piece in response.pieces]),
        reset=response.reset,
        stages=stages,
        seconds=seconds,
        batch=len(outcome.responses),
        logs=said.logs,
        metrics=said.metrics,
        data=said.data,
        troubles=outcome.troubles,
        restarted=outcome.died,
    )


def body_of(data: bytes) -> Body:
    """Return bytes as text where they are UTF-8, else as base64."""
    try:
        return Body(data.decode("utf-8"))
    except UnicodeDecodeError:
        return Body(base64.b64encode(data).decode("ascii"), "base64")


class _Said(Struct, frozen=True):
    logs: str = ""
    metrics: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


_NOTHING = _Said()


def _parted(logs: str) -> _Said:
    """Return what the handler printed, the metric lines that stood among it, and the lines of `--show-data`."""
    if _METRIC not in logs and DATA not in logs:
        return _Said(logs)
    lines = logs.splitlines(keepends=True)
    return _Said(
        "".join([line for line in lines if not line.startswith((_METRIC, DATA))]),
        tuple([line.strip().removeprefix(_METRIC) for line in lines if line.startswith(_METRIC)]),
        tuple([line.rstrip("\n").removeprefix(DATA) for line in lines if line.startswith(DATA)]),
    )
