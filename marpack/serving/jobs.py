"""Requests on their way to a response, and the queue in which they wait for a worker."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from msgspec.structs import replace

from marpack.protocol.messages import Trouble
from marpack.torchserve.http import Request, Response
from marpack.torchserve.response import is_final

_MAX_UNREAD = 64 << 20  # bytes of a streamed response that are kept for a slow client


class StreamAbortedError(Exception):
    """A streamed response ends in the middle: its connection has to be reset."""


class StreamedResponse:
    """A response in pieces: its head is known, the pieces come one by one."""

    def __init__(self, head: Response) -> None:
        self.head = head
        self.unread = 0  # bytes that the client has not read
        self._pieces: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._broken = False
        self._count = 0  # pieces so far
        self._open = True

    def put(self, piece: bytes) -> None:
        """Append a piece unless it is empty. A client that is too far behind gets only the pieces so far."""
        if piece and self._open:
            self._count += 1
            self.unread += len(piece)
            self._pieces.append(piece)
        self._changed.set()
        if self.unread > _MAX_UNREAD:
            self.end(broken=True)

    def end(self, pieces: tuple[bytes, ...] = (), *, broken: bool = False) -> None:
        """End the stream with those of all its pieces that are still missing; `broken`: more should have come."""
        if self._open:
            self._open, self._broken = False, broken
            self._pieces.extend(filter(None, pieces[self._count :]))
            self._changed.set()

    def leave(self) -> None:
        """Drop all pieces: the client is gone."""
        self._open = False
        self.unread = 0
        self._pieces.clear()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield each piece as it comes; raises StreamAbortedError where the stream is broken."""
        while self._open or self._pieces:
            if not self._pieces:
                self._changed.clear()
                await self._changed.wait()
                continue
            piece = self._pieces.popleft()
            self.unread -= len(piece)
            yield piece
        if self._broken:
            raise StreamAbortedError

    async def whole(self) -> Response:
        """Return the response with all pieces, or with those that came before it broke or became too large."""
        pieces, size = list[bytes](), 0
        try:
            with suppress(StreamAbortedError):
                async for piece in self.pieces():
                    pieces.append(piece)
                    size += len(piece)
                    if size > _MAX_UNREAD:
                        break
        finally:
            self.leave()
        return replace(self.head, pieces=tuple(pieces), body=b"".join(pieces))


class Job:
    """One request, from its arrival to its response."""

    __slots__ = ("_stream", "handler_ms", "is_alone", "queued", "request", "response", "settled", "taken", "troubles")

    def __init__(
        self, request: Request, response: "asyncio.Future[Response | StreamedResponse]", *, is_alone: bool = False
    ) -> None:
        self.request = request
        self.response = response  # cancelled when the client goes away
        self.is_alone = is_alone  # shares no batch: the handler has to describe itself
        self.queued = time.monotonic()
        self.taken = 0.0  # when a worker took it; 0.0: not yet
        self.settled = 0.0  # when it was answered; 0.0: not yet
        self.handler_ms: float | None = None
        self.troubles: tuple[Trouble, ...] = ()  # the reasons of a failure
        self._stream: StreamedResponse | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a client still waits for the response."""
        return not self.response.done()

    @property
    def queue_ms(self) -> float:
        """Milliseconds from its arrival until a worker took it, or until now."""
        return ((self.taken or time.monotonic()) - self.queued) * 1000

    @property
    def milliseconds(self) -> float:
        """Milliseconds from its arrival to its response, or until now."""
        return ((self.settled or time.monotonic()) - self.queued) * 1000

    def take_piece(self, piece: Response) -> None:
        """Pass one piece of a streamed response to the client; the first one decides how the response begins."""
        if self._stream is not None:
            if piece.failed:
                self._stream.end(broken=True)
            else:
                self._stream.put(piece.body)
        elif is_final(piece):
            self.settle(piece)
        elif piece.status >= 400:  # TorchServe cannot stream such a status: the response breaks off after its head
            self.settle(replace(piece, body=b"", reset=True))
        elif self.is_wanted:
            self._stream = StreamedResponse(piece)
            self._stream.put(piece.body)
            self.response.set_result(self._stream)

    def settle(self, response: Response) -> None:
        """Answer, unless the client is gone or has a response; a streamed response ends here."""
        self.settled = time.monotonic()
        if self._stream is not None:
            self._stream.end(response.pieces, broken=response.reset)
        elif self.is_wanted:
            self.response.set_result(response)


Batch = tuple[Job, ...]


class JobQueue:
    """The jobs of one model version, first come first served, in batches.

    A free worker opens a batch with the first job. The batch is due when it is full, or `delay` seconds later; jobs in
    an open batch count as taken. Jobs without a client are dropped on entering a batch, and again before it is sent.
    Jobs that share no batch go first, and are not counted.
    """

    def __init__(self, *, capacity: int, batch_size: int, delay: float) -> None:
        """Hold `capacity` jobs besides the open batch; send a batch of up to `batch_size` after at most `delay` s."""
        self.capacity = capacity
        self.batch_size = batch_size
        self.delay = delay
        self.due: float | None = None  # monotonic time at which the open batch is sent
        self._jobs: deque[Job] = deque()
        self._alone: deque[Job] = deque()
        self._open: list[Job] = []

    def __len__(self) -> int:
        """Return the number of waiting jobs, those of the open batch excluded."""
        return len(self._jobs)

    @property
    def is_empty(self) -> bool:
        """Whether no job waits, in the open batch or outside it."""
        return not (self._alone or self._open or self._jobs)

    def put(self, job: Job) -> bool:
        """Append a job; return False if the queue is full."""
        jobs = self._alone if job.is_alone else self._jobs
        if len(jobs) >= self.capacity:
            return False
        jobs.append(job)
        return True

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Put jobs that no worker has begun before all others, also beyond the capacity."""
        for job in reversed([*jobs]):
            if job.is_wanted:
                (self._alone if job.is_alone else self._jobs).appendleft(job)

    def drop(self, job: Job) -> None:
        """Remove a job, unless a worker has taken it."""
        with suppress(ValueError):
            (self._alone if job.is_alone else self._jobs).remove(job)

    def drain(self) -> Batch:
        """Remove and return all jobs, those of the open batch included."""
        jobs = (*self._alone, *self._open, *self._jobs)
        self._alone.clear()
        self._open.clear()
        self._jobs.clear()
        self.due = None
        return jobs

    def has_full_batch(self) -> bool:
        """Return whether a full batch waits."""
        return len(self._jobs) + len(self._open) >= self.batch_size

    def take(self, now: float) -> Batch | None:
        """Return the batch for a free worker; None without a job, and before the open batch is due."""
        while jobs := self._alone or (self.batch_size == 1 and self._jobs):
            job = jobs.popleft()
            if job.is_wanted:
                return (job,)
        if self.batch_size == 1:
            return None
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
