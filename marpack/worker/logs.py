"""What a worker prints, read without ever letting it block, told apart by batch, in bounded memory."""

import contextlib
import os

_MOST = 1 << 20  # bytes kept per batch: its beginning and its end


class LogPipe:
    """The reading end of a worker's stdout and stderr.

    Args:
        descriptor: The pipe's reading end.
        marker: What the worker prints after each batch.
    """

    def __init__(self, descriptor: int, marker: bytes) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._marker = marker
        self._open = True
        self._kept = bytearray()
        self._dropped = 0

    def fileno(self) -> int:
        """Return the descriptor, for polling."""
        return self._descriptor

    def drain(self) -> bool:
        """Read all that was printed so far; False once nothing can come any more.

        Whatever a worker printed before it answered is in the pipe by then: a write has returned once its bytes are.
        """
        while self._open:
            try:
                piece = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return True
            except OSError:
                piece = b""
            if not piece:
                return False
            self._keep(piece)
        return False

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        excess = len(self._kept) - 2 * _MOST
        if excess <= 0:
            return
        # Only the batch in hand can be flooding: those before it were taken as soon as they were answered.
        start = self._kept.rfind(self._marker) + 1
        half = start + _MOST // 2
        del self._kept[half : len(self._kept) - _MOST // 2]
        self._dropped += excess

    @property
    def complete(self) -> bool:
        """Whether all of the oldest batch's output has been read."""
        return self._marker in self._kept

    def take(self) -> str:
        """Return what was printed up to the next marker (all, if there is none), as text."""
        end = self._kept.find(self._marker)
        piece = bytes(self._kept[:end]) if end >= 0 else bytes(self._kept)
        del self._kept[: len(piece) + (len(self._marker) if end >= 0 else 0)]
        text = piece.decode("utf-8", "replace")
        if self._dropped and len(piece) > _MOST // 2:
            half = len(text) // 2
            text = f"{text[:half]}\n… {self._dropped} bytes of output left out …\n{text[half:]}"
            self._dropped = 0
        return text

    def close(self) -> None:
        """Close this end."""
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
