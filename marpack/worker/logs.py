"""What a worker prints, read without ever letting it block, in bounded memory."""

import contextlib
import os

_MOST = 1 << 20  # bytes kept per batch: its beginning and its end


class LogPipe:
    """The reading end of a worker's stdout and stderr."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
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
        excess = len(self._kept) - _MOST
        if excess > 0:
            half = _MOST // 2
            del self._kept[half : half + excess]
            self._dropped += excess

    def take(self) -> str:
        """Return what was read since the last call, as text; a flood is shortened in its middle."""
        text = self._kept.decode("utf-8", "replace")
        if self._dropped:
            half = len(text) // 2
            text = f"{text[:half]}\n… {self._dropped} bytes of output left out …\n{text[half:]}"
        self._kept.clear()
        self._dropped = 0
        return text

    def close(self) -> None:
        """Close this end."""
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
