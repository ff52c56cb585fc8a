"""A rehearsal: a probe's steps sent to marpack's own worker, and its answers as a client would have them."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from conformance.archives import pack
from conformance.forking import shared
from conformance.probe import Batch, Probe, Step
from conformance.recording import Reply, arranged
from conformance.requests import request_of
from workers import predict

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, HandlerError, WorkerError
from marpack.protocol.messages import Load, Trouble
from marpack.runner.client import LoadError, Worker
from marpack.torchserve.http import RequestError, Response

LOAD_SECONDS = 60.0


@dataclass
class Rehearsal:
    """What marpack says of a probe: answers, or why the archive cannot be served."""

    replies: dict[str, Reply] = field(default_factory=dict)
    troubles: dict[str, tuple[Trouble, ...]] = field(default_factory=dict)
    refusal: ArchiveError | HandlerError | WorkerError | None = None

    @property
    def refused_with(self) -> int | None:
        """The status that clients get of a model that cannot be loaded; None for one that can."""
        if self.refusal is None:
            return None
        return self.refusal.status if isinstance(self.refusal, LoadError) else 503


def start(probe: Probe) -> Worker:
    """Return a worker, forked from one that has torch, unless the probe asks for an environment of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TS_", "COVERAGE"))}
    environment = plain | {"OMP_NUM_THREADS": "1"} | probe.environment
    return (
        Worker.spawn(environment=environment) if probe.environment else Worker(shared().launch(environment=environment))
    )


def rehearse(probe: Probe, folder: Path) -> Rehearsal:
    """Load a probe's archive in a worker of marpack's and send it the probe's steps, in order."""
    rehearsal = Rehearsal()
    path = pack(probe, folder)
    try:
        with open_archive(path) as archive:
            _ = archive.manifest  # raises where it is none
            model_dir = archive.materialize()
            _perform(probe, model_dir, rehearsal)
    except (ArchiveError, HandlerError, WorkerError) as error:
        rehearsal.refusal = error
    return rehearsal


def _perform(probe: Probe, model_dir: Path, rehearsal: Rehearsal) -> None:
    load = Load(model_dir=str(model_dir), batch_size=probe.batch_size, envelope=probe.envelope)
    remaining = list(probe.steps)
    while True:  # a worker that died is followed by another, as on the server
        with start(probe) as worker:
            worker.load(load, timeout=LOAD_SECONDS)
            died = False
            while remaining and not died:
                died = _ask(worker, probe, remaining.pop(0), rehearsal)
        if not remaining:
            return


def _ask(worker: Worker, probe: Probe, step: Step, rehearsal: Rehearsal) -> bool:
    """Send a step to a worker, and return whether the worker died of it."""
    calls = step.calls if isinstance(step, Batch) else (step,)
    limit = probe.options.get("response_timeout")
    try:
        requests = tuple(map(request_of, calls))
    except RequestError as error:  # the worker never hears of it
        rehearsal.replies[calls[0].name] = reply_of(error.response)
        rehearsal.troubles[calls[0].name] = ()
        return False
    outcome = predict(worker, requests, timeout=float(limit) if isinstance(limit, int) else None)
    for call, response in zip(calls, outcome.responses, strict=True):
        rehearsal.replies[call.name] = reply_of(response)
        rehearsal.troubles[call.name] = outcome.troubles
    return outcome.died


def reply_of(response: Response) -> Reply:
    """Return marpack's answer in the words of a recording."""
    content_type = (("content-type", response.content_type),) if response.content_type is not None else ()
    headers = arranged((*response.headers, *content_type))
    end = "reset" if response.reset else "complete"
    return Reply(response.status, response.phrase, headers, response.body, response.pieces, end)
