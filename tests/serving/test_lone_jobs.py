"""A description shares no batch, even when a worker that ended gives it back."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from serving.served import LOADER, pack

from marpack.project.source import ResolvedSource
from marpack.serving.jobs import Batch, Job
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ServedModel
from marpack.serving.settings import ModelTuning
from marpack.serving.workers import WorkerState
from marpack.torchserve.http import Request


class Taker:
    """A worker that takes every batch and answers none."""

    state = WorkerState.READY
    in_flight = ()

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def has_room(self, *, full_batch: bool) -> bool:
        return True

    def send(self, batch: Batch) -> None:
        self.batches.append(batch)


async def given_back(path: Path) -> list[list[str]]:
    plan = LOADER.plan(ResolvedSource(path=path), tuning=ModelTuning(batch_size=4, max_batch_delay=0))
    metrics = ServerMetrics(hostname="here")
    model = ServedModel(plan, numbers=itertools.count(), metrics=metrics)
    taker: Any = Taker()

    def job(name: str, *, is_alone: bool = False) -> Job:
        return Job(Request(id=name, parts=()), asyncio.get_running_loop().create_future(), is_alone=is_alone)

    gone = job("gone", is_alone=True)
    gone.response.cancel()
    model.put_back([(job("lone 1", is_alone=True),), (job("a"), job("b")), (gone,), (job("lone 2", is_alone=True),)])
    model.workers = [taker]
    model.dispatch()
    plan.prepared.archive.close()
    return [[job.request.id for job in batch] for batch in taker.batches]


def test_what_is_given_back_shares_no_batch_that_it_did_not_share(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", "def handle(data, context):\n    return data\n")
    assert asyncio.run(given_back(path)) == [["lone 1"], ["lone 2"], ["a", "b"]]
