"""Where metric lines go: through logging, as the server sends them, or straight to what logging would end in."""

import logging
from typing import TextIO

logger = logging.getLogger("marpack.runtime.metrics")


class LogHandler(logging.StreamHandler[TextIO]):
    """What a worker's logging ends in: plain lines, each written at once."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.plain = logging.Formatter("%(message)s")
        self.setFormatter(self.plain)

    def put(self, line: str) -> None:
        """Leave a line to be written with what comes after it: the next print, or the end of the batch."""
        buffer = getattr(self.stream, "buffer", None)
        if buffer is None:
            self.stream.write(f"{line}\n")
        else:
            buffer.write(f"{line}\n".encode("utf-8", "backslashreplace"))


def emit(line: str) -> None:
    """Log one metric line, by the shortest way that shows no difference.

    Metrics come with every request, and a log record costs more than all else that is done for a small one. Where
    logging is as the worker has set it up, they go straight to its stream, which is flushed at the end of the batch.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = logging.root.handlers[0] if len(logging.root.handlers) == 1 else None
    if not isinstance(handler, LogHandler) or _is_changed(handler):
        logger.info("%s", line)
        return
    try:
        handler.put(line)
    except (OSError, ValueError):  # the author closed it
        return


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
