"""Requests to end a command: the first signal interrupts it, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from marpack.errors import ExitCode

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_TWICE = 0.2  # seconds in which programs such as `timeout` send the same request twice


class Interrupts:
    """Raises KeyboardInterrupt when a signal ends the process: at once, or after an action that must be complete.

    While the main thread is in a C function, such as a DNS lookup, or just before a read that blocks, Python raises
    nothing. A second signal therefore ends the process from another thread; the workers end with their parent.
    """

    def __init__(self) -> None:
        self.is_held = False  # set while an action must be complete: a signal then sets only `is_pending`
        self.is_pending = False
        self._wakeup: int | None = None
        self._is_noticed = False  # the first signal since `install` was handled
        self._first: float | None = None  # when it arrived

    def install(self) -> None:
        """Handle requests to end from now on; one that was ignored from the start (nohup) stays so."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        self._is_noticed, self._first = False, None
        if self._wakeup is None:
            reader, self._wakeup = os.pipe()
            os.set_blocking(self._wakeup, False)
            threading.Thread(target=self._end_at_second, args=(reader,), daemon=True, name="marpack-interrupts").start()
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_noticed:
            return  # it must not interrupt what the first one started, such as ending workers
        self._is_noticed = True
        if not self.is_held:
            raise KeyboardInterrupt
        self.is_pending = True

    def _end_at_second(self, reader: int) -> None:
        while number := os.read(reader, 1):
            if number[0] in _SIGNALS:
                self._first = self._first or time.monotonic()
                if time.monotonic() - self._first > _TWICE:
                    os._exit(ExitCode.INTERRUPTED)


INTERRUPTS = Interrupts()
