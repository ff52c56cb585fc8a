import asyncio
import itertools
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.fronts import in_loop

from marpack.serving.jobs import Job, JobQueue, StreamAbortedError, StreamedResponse
from marpack.torchserve.http import Request, Response
from marpack.torchserve.response import NEXT

NewJob = Callable[[], Job]
HEAD = Response(status=200, body=b"head,", headers=((NEXT, "true"),))
TWO = Response(status=200, body=b"two,", headers=((NEXT, "true"),))
WHOLE = Response(status=200, body=b"", pieces=(b"head,", b"two,", b"end"))


@pytest.fixture
def new() -> Iterator[NewJob]:
    loop = asyncio.new_event_loop()
    numbers = itertools.count()
    yield lambda: Job(Request(id=str(next(numbers)), parts=()), loop.create_future())
    loop.close()


def queue(*, capacity: int = 100, batch_size: int = 4, delay: float = 1.0) -> JobQueue:
    return JobQueue(capacity=capacity, batch_size=batch_size, delay=delay)


def filled(jobs: JobQueue, new: NewJob, count: int) -> list[Job]:
    put = [new() for _ in range(count)]
    assert [jobs.put(job) for job in put] == [True] * count
    return put


def ids(batch: tuple[Job, ...] | None) -> list[str] | None:
    return None if batch is None else [job.request.id for job in batch]


def test_the_delay_of_a_batch_counts_from_its_first_job(new: NewJob):
    jobs = queue()
    filled(jobs, new, 1)
    assert jobs.take(10.0) is None
    assert jobs.due == 11.0
    filled(jobs, new, 1)
    assert jobs.take(10.9) is None
    assert jobs.due == 11.0
    assert ids(jobs.take(11.0)) == ["0", "1"]
    assert jobs.due is None
    filled(jobs, new, 1)
    assert jobs.take(20.0) is None
    filled(jobs, new, 1)
    assert ids(jobs.take(29.0)) == ["2", "3"]  # due before a worker was free


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_full_batch_goes_at_once_and_what_is_beyond_it_waits(new: NewJob, batch_size: int):
    jobs = queue(batch_size=batch_size)
    filled(jobs, new, batch_size + 2)
    assert jobs.has_full_batch()
    assert ids(jobs.take(0.0)) == [str(number) for number in range(batch_size)]
    assert jobs.has_full_batch() == (batch_size == 1)
    assert ids(jobs.take(0.0)) == (["1"] if batch_size == 1 else None)
    assert jobs.due == (None if batch_size == 1 else 1.0)


@pytest.mark.parametrize("place", range(3))
def test_a_cancelled_job_is_dropped_before_its_batch_is_sent(new: NewJob, place: int):
    jobs = queue()
    put = filled(jobs, new, 3)
    assert jobs.take(0.0) is None
    put[place].response.cancel()
    assert jobs.take(0.5) is None
    assert jobs.due == 1.0
    assert ids(jobs.take(1.0)) == [str(number) for number in range(3) if number != place]
    (only,) = filled(jobs, new, 1)
    assert jobs.take(2.0) is None
    only.response.cancel()
    assert jobs.take(2.9) is None
    assert jobs.due is None  # the batch is empty: its delay counts from the next job
    filled(jobs, new, 1)
    assert jobs.take(2.9) is None
    assert jobs.due == 3.9


def test_there_is_room_for_so_many_beside_the_open_batch_and_who_leaves_makes_room(new: NewJob):
    jobs = queue(capacity=2)
    filled(jobs, new, 2)
    assert not jobs.put(new())
    assert jobs.take(0.0) is None
    first, _ = filled(jobs, new, 2)
    assert not jobs.put(new())
    assert len(jobs) == 2
    jobs.drop(first)
    jobs.drop(first)  # it was taken meanwhile: nothing is left to drop
    filled(jobs, new, 1)
    assert not jobs.put(new())
    alone = [Job(first.request, first.response, is_alone=True) for _ in range(3)]
    assert [jobs.put(job) for job in alone] == [True, True, False]
    jobs.drop(alone[0])
    assert jobs.put(alone[2])


def test_jobs_that_were_put_back_are_first_and_batched_as_before(new: NewJob):
    jobs = queue(capacity=2, batch_size=3)
    taken = [new() for _ in range(3)]
    filled(jobs, new, 2)
    taken[1].response.cancel()
    jobs.put_back(taken)
    assert len(jobs) == 4
    assert ids(jobs.take(0.0)) == ["0", "2", "3"]
    jobs = queue(batch_size=2)
    taken = [new() for _ in range(5)]
    for job in (taken[0], *taken[3:]):
        job.is_alone = True
    taken[3].response.cancel()
    jobs.put_back(taken)
    assert len(jobs) == 2
    assert [ids(jobs.take(0.0)) for _ in range(4)] == [["5"], ["9"], ["6", "7"], None]


STEPS = st.lists(
    st.one_of(
        st.just("put"),
        st.just("back"),
        st.tuples(st.just("take"), st.floats(0, 2)),
        st.tuples(st.just("leave"), st.integers(0, 50)),
    )
)


@given(steps=STEPS, batch_size=st.integers(1, 4), capacity=st.integers(1, 5))
def test_every_job_is_taken_once_in_order_or_has_left(steps: list[object], batch_size: int, capacity: int):
    """Whatever happens, no job is lost, sent twice, sent after it has left, or overtaken."""
    loop = asyncio.new_event_loop()
    jobs = queue(capacity=capacity, batch_size=batch_size)
    put: list[Job] = []
    sent: list[Job] = []
    now, latest = 0.0, 0
    for step in steps:
        if step == "put":
            job = Job(Request(id=str(len(put)), parts=()), loop.create_future())
            if jobs.put(job):
                put.append(job)
        elif step == "back" and latest and jobs.due is None:
            jobs.put_back(sent[len(sent) - latest :])
            del sent[len(sent) - latest :]
            latest = 0
        elif isinstance(step, tuple) and step[0] == "leave" and put:
            put[step[1] % len(put)].response.cancel()
        elif isinstance(step, tuple) and step[0] == "take":
            now += step[1]
            batch = jobs.take(now) or ()
            assert len(batch) <= batch_size
            assert all(job.is_wanted for job in batch)
            sent += batch
            latest = len(batch) or latest
    left = [job for job in jobs.drain() if job.is_wanted]
    wanted = [job for job in sent + left if job.is_wanted]
    assert wanted == [job for job in put if job.is_wanted]
    loop.close()


def test_a_response_settles_a_job_once_and_a_cancelled_job_never(new: NewJob):
    gone, done, failed, refused = new(), new(), new(), new()
    gone.response.cancel()
    for job in (gone, done):
        job.settle(WHOLE)
        job.settle(HEAD)
        job.take_piece(HEAD)
    assert done.response.result() == WHOLE
    assert gone.response.cancelled()
    error = Response(status=503, body=b"{}", failed=True)
    failed.take_piece(error)
    assert failed.response.result() == error
    refused.take_piece(Response(status=404, body=b"one,", headers=((NEXT, "true"),)))
    refused.settle(WHOLE)
    assert refused.response.result().reset  # a status that cannot be streamed


async def collected(stream: StreamedResponse) -> tuple[list[bytes], bool]:
    """Return the pieces of a stream, and whether it broke off."""
    pieces: list[bytes] = []
    try:
        async for each in stream.pieces():
            pieces.append(each)  # noqa: PERF401 - what came before it broke off counts, too
    except StreamAbortedError:
        return pieces, True
    return pieces, False


@pytest.mark.parametrize(
    ("pieces", "end", "expected", "broken"),
    [
        ([HEAD, TWO], WHOLE, [b"head,", b"two,", b"end"], False),
        ([HEAD], WHOLE, [b"head,", b"two,", b"end"], False),
        ([HEAD, msgspec.structs.replace(HEAD, body=b"")], WHOLE, [b"head,", b"two,", b"end"], False),
        ([HEAD], Response(status=200, body=b"", pieces=(b"head,",), reset=True), [b"head,"], True),
        ([HEAD, Response(status=503, body=b"{}", failed=True), TWO], WHOLE, [b"head,"], True),
    ],
)
@in_loop
async def test_a_streamed_answer(pieces: list[Response], end: Response, expected: list[bytes], broken: bool):
    job = Job(Request(id="0", parts=()), asyncio.get_running_loop().create_future())
    for each in pieces:
        job.take_piece(each)
    job.settle(end)
    stream = job.response.result()
    assert isinstance(stream, StreamedResponse)
    assert stream.head == HEAD
    assert await collected(stream) == (expected, broken)


@in_loop
async def test_pieces_come_as_they_are_put():
    stream = StreamedResponse(HEAD)
    taken = asyncio.create_task(collected(stream))
    for text in (b"one", b"two"):
        stream.put(text)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stream.unread == 0
    stream.end()
    assert await taken == ([b"one", b"two"], False)


@in_loop
async def test_a_slow_client_gets_no_more_and_the_pieces_of_a_gone_one_are_dropped(monkeypatch: pytest.MonkeyPatch):
    stream = StreamedResponse(HEAD)
    stream.put(b"one")
    assert stream.unread == 3
    stream.leave()
    stream.put(b"two")
    stream.end((b"one", b"two", b"three"))
    assert stream.unread == 0
    monkeypatch.setattr("marpack.serving.jobs._MAX_UNREAD", 10)
    stream = StreamedResponse(HEAD)
    for _ in range(5):
        stream.put(b"12345")
    assert await collected(stream) == ([b"12345"] * 3, True)


@in_loop
async def test_a_whole_response_is_bounded_and_needs_a_client(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marpack.serving.jobs._MAX_UNREAD", 10)
    stream, gone = StreamedResponse(HEAD), StreamedResponse(HEAD)
    reading = [asyncio.create_task(each.whole()) for each in (stream, gone)]
    await asyncio.sleep(0)
    reading[1].cancel()
    for _ in range(5):
        stream.put(b"12345")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (await reading[0]).pieces == (b"12345",) * 3
    with pytest.raises(asyncio.CancelledError):
        await reading[1]
    for each in (stream, gone):
        each.put(b"late")
        assert each.unread == 0
