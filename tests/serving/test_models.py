import asyncio
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from serving.commands import SECONDS
from serving.faulty import HANDLER
from serving.fronts import eventually, in_loop

from marpack.errors import MarpackError
from marpack.protocol.messages import Load, Loaded
from marpack.runner.client import BatchResult, Worker
from marpack.serving import models
from marpack.serving.jobs import Batch, Job
from marpack.serving.models import WorkerSlot, WorkerState
from marpack.serving.settings import ModelSettings
from marpack.torchserve.http import Part, Request, Response


class Owner:
    """A model with one worker and the batches of a test."""

    def __init__(self, folder: Path) -> None:
        self.settings = ModelSettings(startup_timeout=60, response_timeout=60, retry_seconds=60)
        self.folder = folder
        self.waiting: list[Batch] = []
        self.outcomes: list[tuple[Batch, BatchResult]] = []
        self.given_back: list[Job] = []
        self.queue = self  # of which a slot asks only `put_back`
        self.failures: list[MarpackError] = []
        self.bugs: list[Exception] = []  # to meet with the next answers
        self.worker = WorkerSlot(9000, self)
        self.ended: list[asyncio.Task[None]] = []

    def spawn(self) -> Worker:
        return Worker.spawn()

    def load(self, worker: WorkerSlot) -> Load:
        return Load(model_dir=str(self.folder))

    def loaded(self, worker: WorkerSlot, loaded: Loaded, logs: str) -> None:
        pass

    def failed(self, worker: WorkerSlot, error: MarpackError) -> None:
        self.failures.append(error)

    def answered(self, worker: WorkerSlot, batch: Batch, outcome: BatchResult) -> None:
        self.outcomes.append((batch, outcome))
        for job, response in zip(batch, outcome.responses, strict=True):
            job.settle(response)
        if self.bugs:
            raise self.bugs.pop()

    def may_wait(self, end: float) -> bool:
        return time.monotonic() < end

    def put_back(self, jobs: Iterable[Job]) -> None:
        self.given_back += jobs

    def dispatch(self) -> None:
        while self.waiting and self.worker.has_room(full_batch=True):
            self.worker.send(self.waiting.pop(0))

    def ask(self, *texts: str) -> Batch:
        loop = asyncio.get_running_loop()
        parts = [(Part("body", text.encode()),) for text in texts]
        batch = tuple([Job(Request(id=str(id(part)), parts=part), loop.create_future()) for part in parts])
        self.waiting.append(batch)
        self.dispatch()
        return batch

    async def __aenter__(self) -> Self:
        self.worker.start(self.ended.append)
        await eventually(lambda: self.worker.state is WorkerState.READY)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.worker.stop()


@pytest.fixture
def folder(make_folder) -> Path:
    return make_folder(HANDLER, files={"data.txt": "old"})


async def answer(job: Job) -> Response:
    response = await asyncio.wait_for(job.response, SECONDS)
    assert isinstance(response, Response)
    return response


@contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """Stop a process in this block."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@in_loop
async def test_a_bug_with_one_response_does_not_delay_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "_FAST", 60.0)  # seconds: on a busy machine, too, batches are sent ahead
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    async with Owner(folder) as owner:
        owner.bugs = [KeyError("one"), KeyError("two")]
        with stopped(owner.worker.pid):
            jobs = [owner.ask(f"mark {number}")[0] for number in range(20)]
            assert len(owner.worker.in_flight) > 1
        time.sleep(0.1)  # until several answers are there to be read at once
        assert [(await answer(job)).body for job in jobs] == [b"mark %d" % number for number in range(20)]
        assert [str(error) for error in told] == ["'two'", "'one'"]


@pytest.mark.parametrize("place", range(4))
@in_loop
async def test_a_cancelled_job_does_not_disturb_its_batch(folder: Path, place: int):
    async with Owner(folder) as owner:
        with stopped(owner.worker.pid):
            batch = owner.ask("a", "b", "c", "d")
            batch[place].response.cancel()
        answers = [(await answer(job)).body for job in batch if not job.response.cancelled()]
        assert answers == [body for body in (b"a", b"b", b"c", b"d") if body != b"abcd"[place : place + 1]]


@in_loop
async def test_a_response_that_was_sent_before_the_worker_ended_counts(folder: Path):
    async with Owner(folder) as owner:
        (job,) = owner.ask("parting 150000")
        time.sleep(0.2)  # until there is an answer to be read, in pieces, and an end to be noticed
        response = await answer(job)
        assert (response.status, len(response.body)) == (200, 150_000)


@in_loop
async def test_a_worker_that_is_stopped_may_print_more_than_its_pipe_holds(folder: Path):
    async with Owner(folder) as owner:
        (job,) = owner.ask("prints 1000000")
        await owner.worker.stop(10.0)
        assert (await answer(job)).body == b"printed"


@pytest.mark.parametrize("turns", [None, 0, 2])
@in_loop
async def test_the_batch_of_a_stopped_worker_is_put_back_even_as_it_dies(folder: Path, turns: int | None):
    async with Owner(folder) as owner:
        batch = owner.ask("hang")
        if turns is not None:
            os.kill(owner.worker.pid or 0, signal.SIGKILL)
            while owner.worker.state is not WorkerState.WAITING:
                await asyncio.sleep(0)  # the state lasts a moment
            for _ in range(turns):
                await asyncio.sleep(0)
        await owner.worker.stop()
        assert owner.given_back == [*batch] or (turns is not None and batch[0].response.done())


@in_loop
async def test_a_bug_in_the_task_of_a_worker_ends_it(folder: Path):
    owner = Owner(folder)

    def fails(*_: object) -> None:
        raise KeyError("a bug")

    owner.loaded = fails  # type: ignore[method-assign]
    owner.worker.start(owner.ended.append)
    await eventually(lambda: owner.ended)
    assert isinstance(owner.ended[0].exception(), KeyError)
    assert owner.worker.pid is None


@in_loop
async def test_a_late_piece_is_dropped_and_a_worker_that_dies_while_idle_is_replaced(folder: Path):
    async with Owner(folder) as owner:
        first = owner.worker.pid
        os.kill(first or 0, signal.SIGKILL)
        await eventually(lambda: owner.worker.state is WorkerState.READY and owner.worker.pid != first)
        assert owner.outcomes == []
        assert (await answer(owner.ask("late_piece")[0])).body == b"early"
        await asyncio.sleep(0.15)
        assert (await answer(owner.ask("next")[0])).body == b"next"


@in_loop
async def test_a_worker_without_descriptors_is_started_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marpack.serving.models._restart_delays", lambda: iter([0.01] * 9))
    async with Owner(folder) as owner:

        def none_left() -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("marpack.runner.process.socket.socketpair", none_left)
            os.kill(owner.worker.pid or 0, signal.SIGKILL)
            await eventually(lambda: owner.failures)
        assert "Too many open files" in str(owner.failures[0])
        await eventually(lambda: owner.worker.state is WorkerState.READY)
