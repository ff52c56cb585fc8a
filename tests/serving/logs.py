"""The log of servers in this process."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from marpack.serving.models import HandlerPrinted, ModelFailed
from marpack.serving.server import Listening

_LOG = logging.getLogger("marpack.serving")


class Recorded(logging.Handler):
    """The events that one thread logs."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = threading.get_ident()
        self.addresses: dict[str, str] = {}
        self.failures: list[str] = []
        self.notes: list[str] = []
        self.lines: list[str] = []
        self.events: list[object] = []  # all but notes

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self.owner:
            return
        event = record.msg
        if isinstance(event, str):
            self.notes.append(record.getMessage())
            return
        self.events.append(event)
        if isinstance(event, Listening):
            self.addresses[event.what] = event.address
        elif isinstance(event, ModelFailed):
            self.failures.append(f"{event.model}: {event.message}")
        elif isinstance(event, HandlerPrinted):
            self.lines.append(event.line)


@contextmanager
def recording(recorded: Recorded | None = None) -> Iterator[Recorded]:
    """Record what this thread logs, or the one that sets `owner`."""
    recorded = recorded or Recorded()
    level = _LOG.level
    _LOG.setLevel(logging.INFO)
    _LOG.addHandler(recorded)
    try:
        yield recorded
    finally:
        _LOG.removeHandler(recorded)
        _LOG.setLevel(level)
