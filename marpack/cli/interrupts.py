"""Ctrl-C that never comes in the middle of telling a result: no line is torn, no document left open."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType


class Interrupts:
    """Raises KeyboardInterrupt at once while one waits, and afterwards while one writes."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

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
