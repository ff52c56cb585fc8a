"""Where metric lines go: through logging, as the server sends them, or straight to what logging would end in."""

import logging
from contextlib import suppress
from typing import TextIO

logger = logging.getLogger("marpack.runtime.metrics")


class LogHandler(logging.StreamHandler[TextIO]):
    """What a worker's logging ends in: plain lines, each written at once, but for metrics.

    Those wait for the end of their batch, which is near: nobody reads them before.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(logging.Formatter("%(message)s"))
        self._plain = self.formatter

    def is_plain(self) -> bool:
        """Say whether it does with a line what it did when it was made."""
        return not self.filters and self.formatter is self._plain and self.level <= logging.INFO

    def write_line(self, line: str) -> None:
        """Write one line, some time before the batch ends."""
        with suppress(OSError, ValueError):  # the author closed the stream
            self.stream.write(f"{line}\n")


def emit(line: str) -> None:
    """Log one metric line, by the shortest way that shows no difference.

    A record made by logging costs more than all else that is done for a small request.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handlers = logging.root.handlers
    if len(handlers) == 1 and isinstance(handlers[0], LogHandler) and handlers[0].is_plain() and _is_untouched():
        handlers[0].write_line(line)
    else:
        logger.info("%s", line)


def _is_untouched() -> bool:
    """Say whether nothing lies between this logger and the root's handler."""
    return not (logger.handlers or logger.filters or logger.disabled) and logger.propagate
