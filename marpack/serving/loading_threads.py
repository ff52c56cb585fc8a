"""Threads that scan and load archives: each archive has its own, and the server's end interrupts them."""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from marpack.serving.connections import wait_for

T = TypeVar("T")

_PATIENCE = 1.0  # seconds that interrupted threads get to remove half-written files


class _LoadingInterrupt(BaseException):
    """Ends a loading thread; not an Exception, so that nothing on its way handles it."""


class _LoadingThread(threading.Thread):
    """A thread that the end of the process does not wait for."""

    def __init__(self, work: Callable[[], Any], outcome: Future[Any]) -> None:  # Any: each work has its own result
        super().__init__(daemon=True, name="marpack-loading")
        self._work = work
        self._outcome = outcome

    def run(self) -> None:
        """Do the work and pass its result on, unless the thread is interrupted."""
        try:
            self._outcome.set_result(self._work())
        except _LoadingInterrupt:
            return
        except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
            self._outcome.set_exception(error)

    def interrupt(self) -> None:
        """Raise an exception in the thread as soon as it runs Python code."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(_LoadingInterrupt))


async def run_in_loading_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, or raise its error.

    The event loop's executor is not for archives: it has few threads, which a few slow archives would fill, and the
    loop waits for all of them before it ends.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # a caller that stops waiting must not cancel it under the thread
    _LoadingThread(work, outcome).start()
    return await asyncio.wrap_future(outcome)


async def interrupt_loading() -> None:
    """End all loading threads; one that does not react in time is left to the end of the process."""
    threads = [thread for thread in threading.enumerate() if isinstance(thread, _LoadingThread)]
    for thread in threads:
        thread.interrupt()
    await wait_for(lambda: not any(thread.is_alive() for thread in threads), time.monotonic() + _PATIENCE)
