"""Ctrl-C, a CI's SIGTERM and a closed terminal: all end a command in order, with no worker left behind.

While results are told they wait: no line is torn, no document left open.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_signals() -> None:
    """Have every request to end raise KeyboardInterrupt; one that was ignored from the start (nohup) stays so."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


class Interrupts:
    """Raises KeyboardInterrupt at once while one waits, and afterwards while one writes."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self._held:
            raise KeyboardInterrupt
        self._pending = True

    def after(self, action: Any, *arguments: Any) -> Any:  # Any: whatever the action takes and returns
        """Do something whole; raise KeyboardInterrupt thereafter if it was asked for meanwhile."""
        self._held = True
        try:
            return action(*arguments)
        finally:
            self._held = False
            if self._pending:
                self._pending = False
                raise KeyboardInterrupt
