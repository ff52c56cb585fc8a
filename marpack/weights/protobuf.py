"""The wire format of protocol buffers, field by field, values of messages and bytes not read until asked for."""

from collections.abc import Iterator
from typing import BinaryIO

from msgspec import Struct

from marpack.weights.bytestream import ByteStream, TruncatedError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Field(Struct, frozen=True):
    """One field: a number, or the place of its bytes."""

    number: int
    wire: int
    value: int  # the number of a varint, the length in bytes of anything else
    begin: int = 0  # bytes from the file's start


class ProtobufError(Exception):
    """This is no protocol buffer; private to the readers of this package."""


def fields(file: BinaryIO, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in bytes [begin, end). Raises ProtobufError."""
    stream = ByteStream(file, begin)
    try:
        while stream.position < end:
            key = _varint(stream)
            yield _field(stream, key >> 3, key & 7, end)
    except TruncatedError:
        raise ProtobufError("it ends in the middle of a field") from None


def _field(stream: ByteStream, number: int, wire: int, end: int) -> Field:
    if number == 0:
        raise ProtobufError("field 0")
    if wire == VARINT:
        return Field(number, wire, _varint(stream))
    length = {FIXED64: 8, FIXED32: 4}.get(wire)
    if wire == BYTES:
        length = _varint(stream)
    if length is None or stream.position + length > end:
        raise ProtobufError("a field that does not fit")
    found = Field(number, wire, length, stream.position)
    stream.skip(length)
    return found


def _varint(stream: ByteStream) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.byte()
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ProtobufError("a number of more than ten bytes")
