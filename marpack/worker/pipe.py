"""Frames between parent and worker: a length of four bytes, little-endian, then msgpack of plain structs."""

import socket
import struct
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 20


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
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Return the socket's descriptor, for polling."""
        return self._sock.fileno()

    def send(self, message: object) -> None:
        """Send one message whole; OSError if the other end is gone."""
        self._sock.sendall(self.frame(message))

    def frame(self, message: object) -> bytes:
        """Return the bytes that one message becomes on the wire."""
        payload = self._encode(message)
        return _LENGTH.pack(len(payload)) + payload

    def receive(self) -> Any:
        """Wait for one message; None once the other end is closed."""
        while (message := self.buffered()) is None:
            if not self.fill():
                return None
        return message

    def fill(self) -> bool:
        """Read what is there (waiting for at least one byte); False at the end of the stream."""
        piece = self._sock.recv(self._wanted())
        self._buffer += piece
        return bool(piece)

    def buffered(self) -> Any:
        """Return a message that has arrived whole, or None."""
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            message = self._decode(view[_LENGTH.size : end])
        del self._buffer[:end]
        return message

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def _wanted(self) -> int:
        if len(self._buffer) < _LENGTH.size:
            return 1 << 16
        length: int = _LENGTH.unpack_from(self._buffer)[0]
        return min(max(_LENGTH.size + length - len(self._buffer), 1 << 16), _CHUNK)
