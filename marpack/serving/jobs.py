"""Requests on their way to an answer, and the queue they wait in until a worker takes a batch of them."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from msgspec.structs import replace

from marpack.protocol.messages import Trouble
from marpack.torchserve.http import Request, Response
from marpack.torchserve.streaming import is_final

_MOST_UNREAD = 64 << 20  # bytes of a streamed answer that are kept for a client that takes them slowly


class BrokenOffError(Exception):
    """A streamed answer ends in the middle: its connection is to be reset."""


class StreamedAnswer:
    """An answer in pieces: its head is known, the pieces come one by one."""

    def __init__(self, head: Response) -> None:
        self.head = head
        self.unread = 0  # bytes that the client has not taken, while there may be more
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._broken = False
        self._count = 0  # pieces so far
        self._open = True

    def put(self, pieces: Iterable[bytes]) -> None:
        """Take pieces in; empty ones are none. A client that is too far behind gets no more than what it has."""
        for piece in filter(None, pieces if self._open else ()):
            self._count += 1
            self.unread += len(piece)
            self._pieces.append(piece)
        self._news.set()
        if self.unread > _MOST_UNREAD:
            self.end(broken=True)

    def end(self, pieces: tuple[bytes, ...] = (), *, broken: bool = False) -> None:
        """Take in those of all its pieces that did not come yet; `broken`: there would have been more."""
        if self._open:
            self._open, self._broken = False, broken
            self._pieces.extend(filter(None, pieces[self._count :]))
            self._news.set()

    def leave(self) -> None:
        """Take no more in: the client has gone."""
        self._open = False
        self.unread = 0
        self._pieces.clear()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield each piece as it comes; raises BrokenOffError where it breaks off."""
        while self._open or self._pieces:
            if not self._pieces:
                self._news.clear()
                await self._news.wait()
                continue
            piece = self._pieces.popleft()
            self.unread -= len(piece)
            yield piece
        if self._broken:
            raise BrokenOffError

    async def whole(self) -> Response:
        """Return the answer with all of its pieces, as far as they came."""
        pieces: list[bytes] = []
        with suppress(BrokenOffError):
            pieces.extend([piece async for piece in self.pieces()])
        return replace(self.head, pieces=tuple(pieces), body=b"".join(pieces))


class Job:
    """One request, from its arrival to its answer."""

    __slots__ = ("_stream", "answer", "handler_ms", "queued", "request", "settled", "taken", "troubles")

    def __init__(self, request: Request, answer: "asyncio.Future[Response | StreamedAnswer]") -> None:
        self.request = request
        self.answer = answer  # cancelled where the client has gone
        self.queued = time.monotonic()
        self.taken = 0.0  # by a worker; 0.0: not yet
        self.settled = 0.0  # when it was answered; 0.0: not yet
        self.handler_ms: float | None = None
        self.troubles: tuple[Trouble, ...] = ()  # why the answer is what it is
        self._stream: StreamedAnswer | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the answer."""
        return not self.answer.done()

    @property
    def queue_ms(self) -> float:
        """Milliseconds that it waited for a worker; all its time so far if none has taken it."""
        return ((self.taken or time.monotonic()) - self.queued) * 1000

    @property
    def milliseconds(self) -> float:
        """Milliseconds from its arrival to its answer, or until now."""
        return ((self.settled or time.monotonic()) - self.queued) * 1000

    def take_piece(self, piece: Response) -> None:
        """Pass one piece of a streamed answer on to the client; the first decides how the answer begins."""
        if self._stream is not None:
            self._take_next(self._stream, piece)
        elif is_final(piece):
            self.settle(piece)
        elif piece.status >= 400:  # the frontend cannot stream under such a status: after the head it breaks off
            self.settle(replace(piece, body=b"", reset=True))
        elif self.is_wanted:
            self._stream = StreamedAnswer(piece)
            self._stream.put((piece.body,))
            self.answer.set_result(self._stream)

    def _take_next(self, stream: StreamedAnswer, piece: Response) -> None:
        if piece.failed:
            stream.end(broken=True)
        else:
            stream.put((piece.body,))

    def settle(self, response: Response) -> None:
        """Answer, unless nobody waits any more or there is an answer; of a streamed one this is all of it."""
        self.settled = time.monotonic()
        if self._stream is not None:
            self._stream.end(response.pieces, broken=response.reset)
        elif self.is_wanted:
            self.answer.set_result(response)


Batch = tuple[Job, ...]


class JobQueue:
    """The jobs of one model version, first come first served, taken in batches.

    A batch is opened by its first job when a worker is free, and is due once it is full or `delay` seconds later:
    jobs in an open batch count as taken. Whoever has gone is dropped when taken, and again before it is sent.
    """

    def __init__(self, *, capacity: int, batch_size: int, delay: float) -> None:
        """Hold `capacity` jobs beside the open batch; make batches of `batch_size`, `delay` seconds after the first."""
        self.capacity = capacity
        self.batch_size = batch_size
        self.delay = delay
        self.due: float | None = None  # when the open batch is sent, full or not, by the monotonic clock
        self._jobs: deque[Job] = deque()
        self._open: list[Job] = []

    def __len__(self) -> int:
        """Return how many jobs wait, those of an open batch apart."""
        return len(self._jobs)

    def put(self, job: Job) -> bool:
        """Append a job; False if there is no room."""
        if len(self._jobs) >= self.capacity:
            return False
        self._jobs.append(job)
        return True

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Put jobs that no worker has begun with before all others, whatever the room."""
        self._jobs.extendleft(reversed([job for job in jobs if job.is_wanted]))

    def drop(self, job: Job) -> None:
        """Forget a job that nobody waits for any more."""
        with suppress(ValueError):  # it was taken
            self._jobs.remove(job)

    def drain(self) -> Batch:
        """Return all jobs, open batch included, and hold none."""
        jobs = (*self._open, *self._jobs)
        self._jobs.clear()
        self._open.clear()
        self.due = None
        return jobs

    def has_full(self) -> bool:
        """Say whether a full batch waits."""
        return len(self._jobs) + len(self._open) >= self.batch_size

    def take(self, now: float) -> Batch | None:
        """Return the batch that a free worker begins with now; None if there is none, or an open one is not due.

        Args:
            now: The time by the monotonic clock.
        """
        if self.batch_size == 1:
            return self._take_one()
        self._open = [job for job in self._open if job.is_wanted]
        while self._jobs and len(self._open) < self.batch_size:
            job = self._jobs.popleft()
            if job.is_wanted:
                self._open.append(job)
        if not self._open:
            self.due = None
            return None
        if self.due is None:
            self.due = now + self.delay
        if len(self._open) < self.batch_size and now < self.due:
            return None
        batch, self._open, self.due = tuple(self._open), [], None
        return batch

    def _take_one(self) -> Batch | None:
        while self._jobs:
            job = self._jobs.popleft()
            if job.is_wanted:
                return (job,)
        return None
