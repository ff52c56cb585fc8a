"""Frames between parent and worker: a length of four bytes, little-endian, then msgpack of plain structs."""

import contextlib
import socket
import struct
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 20
_GONE = (BrokenPipeError, ConnectionResetError)


class Pipe:
    """One end of the connection; whole messages go in and come out.

    Args:
        sock: A connected stream socket.
        expects: The union of message types that arrive at this end.
    """

    def __init__(self, sock: socket.socket, expects: Any) -> None:  # Any: a union type is no type
        self._sock = sock
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(expects).decode
        self._arrived = bytearray()
        self._leaving = bytearray()

    def fileno(self) -> int:
        """Return the socket's descriptor, for polling."""
        return self._sock.fileno()

    def send(self, message: object) -> None:
        """Send one message whole, waiting as long as it takes; OSError if the other end is gone."""
        self._sock.sendall(self._frame(message))

    def post(self, message: object) -> None:
        """Queue one message, to be sent by `flush` (the socket must not block)."""
        self._leaving += self._frame(message)

    def flush(self) -> bool:
        """Send what can be sent of the queue; True once it is empty."""
        # An end that is gone is noticed, with its reason, by whoever reads from it.
        with contextlib.suppress(BlockingIOError, *_GONE):
            while self._leaving:
                with memoryview(self._leaving) as view:
                    sent = self._sock.send(view)
                del self._leaving[:sent]
        return not self._leaving

    def _frame(self, message: object) -> bytes:
        payload = self._encode(message)
        return _LENGTH.pack(len(payload)) + payload

    def receive(self) -> Any:
        """Wait for one message; None once the other end is closed."""
        while (message := self.arrived()) is None:
            if not self.fill():
                return None
        return message

    def fill(self) -> bool:
        """Read what is there; False at the end of the stream."""
        try:
            piece = self._sock.recv(self._wanted())
        except BlockingIOError:
            return True
        except _GONE:
            return False
        self._arrived += piece
        return bool(piece)

    def arrived(self) -> Any:
        """Return a message that has arrived whole, or None."""
        if len(self._arrived) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._arrived)[0]
        if len(self._arrived) < end:
            return None
        with memoryview(self._arrived) as view:
            message = self._decode(view[_LENGTH.size : end])
        del self._arrived[:end]
        return message

    def _wanted(self) -> int:
        if len(self._arrived) < _LENGTH.size:
            return 1 << 16
        length: int = _LENGTH.unpack_from(self._arrived)[0]
        return min(max(_LENGTH.size + length - len(self._arrived), 1 << 16), _CHUNK)
