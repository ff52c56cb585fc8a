"""Requests to end a command: Ctrl-C, SIGTERM and SIGHUP interrupt it in every state."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from marpack.errors import ExitCode

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_PATIENCE = 1.0  # seconds that the main thread and the reader of the output get to react
_NUDGE = 0.05  # seconds between two signals to a main thread that has not reacted
_AGAIN = 0.25  # seconds between two later looks at the output


class Interrupts:
    """Raises KeyboardInterrupt when a signal ends the process: at once, or after an action that must be complete.

    Three cases need more. A signal just before a system call that blocks does not interrupt it: another thread sends
    more. While the main thread is in a C function, such as a DNS lookup, it raises nothing: that thread ends the
    process. A reader that reads no more output would block every print: the null device replaces its stream.
    """

    def __init__(self) -> None:
        self.is_held = False  # set while an action must be complete: a signal then sets only `is_pending`
        self.is_pending = False
        self._noticed = threading.Event()
        self._wakeup: int | None = None

    def install(self) -> None:
        """Handle requests to end from now on; one that was ignored from the start (nohup) stays so."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        if hasattr(signal, "SIGALRM"):  # Windows has none
            signal.signal(signal.SIGALRM, _drop_unread_output)
        if self._wakeup is None:
            reader, self._wakeup = os.pipe()
            os.set_blocking(self._wakeup, False)
            threading.Thread(target=self._watch, args=(reader,), daemon=True, name="marpack-interrupts").start()
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

    def finish(self) -> None:
        """Stop looking after the output; call it once nothing is left to print."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._noticed.set()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE, _AGAIN)
        if not self.is_held:
            raise KeyboardInterrupt
        self.is_pending = True

    def _watch(self, reader: int) -> None:
        """End the process for a request that the main thread does not notice."""
        while number := os.read(reader, 1):
            is_ours = number[0] in _SIGNALS and signal.getsignal(number[0]) == self._interrupt
            if is_ours and not self._is_noticed():
                os._exit(ExitCode.INTERRUPTED)

    def _is_noticed(self) -> bool:
        until = time.monotonic() + _PATIENCE
        while not self._noticed.wait(_NUDGE):
            if time.monotonic() > until:
                return False
            if hasattr(signal, "pthread_kill"):  # ends a system call of the main thread, which then sees both signals
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        return True


def _drop_unread_output(_number: int, _frame: FrameType | None) -> None:
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        with suppress(OSError):
            if not poll.poll(0):  # the write that is blocked goes on, into the null device
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


INTERRUPTS = Interrupts()
