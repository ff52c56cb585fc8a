"""Where metric lines go: through logging, as the server sends them, or straight to what logging would end in."""

import logging
from collections.abc import Callable
from typing import TextIO

logger = logging.getLogger("marpack.runtime.metrics")


class LogHandler(logging.StreamHandler[TextIO]):
    """What a worker's logging ends in: plain lines, each written at once."""

    def __init__(self, stream: TextIO, put: Callable[[str], None]) -> None:
        """Take where records go, and what leaves a line to be written there with what comes after it."""
        super().__init__(stream)
        self.put = put
        self.plain = logging.Formatter("%(message)s")
        self.setFormatter(self.plain)


def emit(line: str) -> None:
    """Log one metric line, by the shortest way that shows no difference.

    Metrics come with every request, and a log record costs more than all else that is done for a small one. Where
    logging is as the worker has set it up, they are left to be written with the end of the batch.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = logging.root.handlers[0] if len(logging.root.handlers) == 1 else None
    if not isinstance(handler, LogHandler) or _is_changed(handler):
        logger.info("%s", line)
        return
    handler.put(line)


def _is_changed(handler: LogHandler) -> bool:
    """Say whether an author has put something between this logger and the stream."""
    return bool(
        handler.formatter is not handler.plain
        or handler.filters
        or handler.level > logging.INFO
        or logger.filters
        or logger.handlers
        or not logger.propagate
    )
