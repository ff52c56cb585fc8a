"""Work that goes on to its end though the client that asked for it has left."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from marpack.serving.http import Reply
from marpack.torchserve.frontend.headers import FormError

OnEnd = Callable[[asyncio.Task[Any]], None]  # Any: tasks of all kinds


class DetachedWork:
    """All such work of one port."""

    def __init__(self, on_end: OnEnd) -> None:
        """Take what is told of each task that ends: an error in it is a fault of ours."""
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Reply | FormError]] = set()  # which the loop itself would forget

    def begin(self, work: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply | FormError]:  # Any: as typing has it
        """Begin, and wait for nothing."""
        task = asyncio.create_task(_outcome(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._on_end)
        return task

    async def finish(self, work: Coroutine[Any, Any, Reply]) -> Reply:  # Any: as typing has it
        """Begin, and wait for the answer as long as the client does; raises FormError as the work does."""
        outcome = await asyncio.shield(self.begin(work))
        if isinstance(outcome, FormError):
            raise outcome
        return outcome


async def _outcome(work: Coroutine[Any, Any, Reply]) -> Reply | FormError:  # Any: as typing has it
    try:
        return await work
    except FormError as error:
        return error
