"""An ONNX header, and the protobuf wire format it is written in."""

from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from msgspec import Struct

from marpack.weights.bytestream import ByteStream, TruncatedError
from marpack.weights.tensors import ONNX_DTYPES, StoredTensor, Tensor, WeightsHeader

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Field numbers of onnx.proto.
_IR_VERSION, _PRODUCER, _PRODUCER_VERSION, _GRAPH, _OPSET, _METADATA = 1, 2, 3, 7, 8, 14
_MODEL = {
    _IR_VERSION: VARINT, _PRODUCER: BYTES, _PRODUCER_VERSION: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, _GRAPH: BYTES,
    _OPSET: BYTES, _METADATA: BYTES, 20: BYTES, 25: BYTES, 26: BYTES,
}  # fmt: skip
_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_NAME_LIMIT = 4096  # bytes
_PART_LIMIT = 1_000_000  # of the graph: nodes, mostly
_FIELD_LIMIT = 10_000  # of the model itself: local functions are its only long list


class ProtoField(Struct, frozen=True):
    """One field: a number, or the place of its bytes."""

    number: int
    wire: int
    value: int  # the number of a varint, the length in bytes of anything else
    start: int = 0  # bytes from the file's start


class ProtobufError(Exception):
    """This is no protocol buffer; private to the readers of this package."""


def fields(file: BinaryIO, start: int, end: int) -> Iterator[ProtoField]:
    """Yield the fields of the message in bytes [begin, end). Raises ProtobufError."""
    stream = ByteStream(file, start)
    try:
        while stream.position < end:
            key = _varint(stream)
            yield _field(stream, key >> 3, key & 7, end)
    except TruncatedError:
        raise ProtobufError("it ends in the middle of a field") from None


def _field(stream: ByteStream, number: int, wire: int, end: int) -> ProtoField:
    if number == 0:
        raise ProtobufError("field 0")
    if wire == VARINT:
        return ProtoField(number, wire, _varint(stream))
    length = {FIXED64: 8, FIXED32: 4}.get(wire)
    if wire == BYTES:
        length = _varint(stream)
    if length is None or stream.position + length > end:
        raise ProtobufError("a field that does not fit")
    found = ProtoField(number, wire, length, stream.position)
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


class Port(Struct, frozen=True, kw_only=True):
    """An input or output of a model."""

    name: str
    dtype: str | None = None  # as torch prints it after "torch."; None for anything but a tensor
    shape: tuple[int | str, ...] | None = None  # a symbol such as "batch" where the size is free; None: unknown rank


class Onnx(WeightsHeader, frozen=True, kw_only=True):
    """What the header says."""

    ir_version: int
    producer: str | None
    opsets: dict[str, int]  # by domain; "" is ONNX's own
    nodes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    external: bool  # some tensors lie in other files


def looks_like(file: BinaryIO) -> bool:
    """Tell whether the whole file reads as an ONNX model: known fields, an IR version and one graph."""
    file.seek(0)
    if int.from_bytes(file.read(1)) & 7 not in _MODEL.values():  # no field begins so: most files go no further
        return False
    seen: list[int] = []
    try:
        for field in fields(file, 0, file.seek(0, 2)):
            if _MODEL.get(field.number) != field.wire or len(seen) > _FIELD_LIMIT:
                return False
            seen.append(field.number)
    except ProtobufError:
        return False
    return _IR_VERSION in seen and seen.count(_GRAPH) == 1


def read_header(file: BinaryIO) -> Onnx:
    """Read the header. Raises ProtobufError when it is not one."""
    model = list(fields(file, 0, file.seek(0, 2)))
    graph = next((field for field in model if field.number == _GRAPH and field.wire == BYTES), None)
    if graph is None:
        raise ProtobufError("no graph")
    parts = list(islice(_inside(file, graph), _PART_LIMIT))
    if len(parts) == _PART_LIMIT:
        raise ProtobufError(f"a graph of over {_PART_LIMIT:,} parts")
    initializers = [_initializer(file, field) for field in parts if field.number == _INITIALIZER]
    fed = {placed.tensor.name for placed, _ in initializers}  # up to IR 3 initializers are listed as inputs, too
    inputs = (_port(file, field) for field in parts if field.number == _INPUT)
    return Onnx(
        ir_version=_number(model, _IR_VERSION),
        producer=" ".join(filter(None, (_text(file, model, _PRODUCER), _text(file, model, _PRODUCER_VERSION)))) or None,
        opsets=dict(_opset(file, field) for field in model if field.number == _OPSET),
        nodes=sum(field.number == _NODE for field in parts),
        inputs=tuple(port for port in inputs if port.name not in fed),
        outputs=tuple(_port(file, field) for field in parts if field.number == _OUTPUT),
        tensors=tuple(placed for placed, _ in initializers),
        external=any(external for _, external in initializers),
        metadata=dict(_pair(file, field) for field in model if field.number == _METADATA),
    )


def _inside(file: BinaryIO, field: ProtoField) -> Iterator[ProtoField]:
    if field.wire != BYTES:
        raise ProtobufError("a message that is a number")
    return fields(file, field.start, field.start + field.value)


def _number(parts: list[ProtoField], number: int, default: int = 0) -> int:
    return next((field.value for field in parts if field.number == number and field.wire == VARINT), default)


def _text(file: BinaryIO, parts: list[ProtoField], number: int) -> str | None:
    found = next((field for field in parts if field.number == number and field.wire == BYTES), None)
    return None if found is None else _bytes(file, found, _NAME_LIMIT).decode("utf-8", "replace")


def _bytes(file: BinaryIO, field: ProtoField, limit: int) -> bytes:
    file.seek(field.start)
    return file.read(min(field.value, limit))


def _pair(file: BinaryIO, field: ProtoField) -> tuple[str, str]:
    parts = list(_inside(file, field))
    return _text(file, parts, 1) or "", _text(file, parts, 2) or ""


def _opset(file: BinaryIO, field: ProtoField) -> tuple[str, int]:
    parts = list(_inside(file, field))
    return _text(file, parts, 1) or "", _number(parts, 2)


def _initializer(file: BinaryIO, field: ProtoField) -> tuple[StoredTensor, bool]:
    """Return a TensorProto (dims 1, data type 2, name 8, raw data 9, data location 14), and whether it is external."""
    parts = list(_inside(file, field))
    dims = tuple(size for part in parts if part.number == 1 for size in _integers(file, part))
    dtype = ONNX_DTYPES.get(_number(parts, 2), "undefined")
    tensor = Tensor(name=_text(file, parts, 8) or "", dtype=dtype, shape=dims)
    raw = next((part for part in parts if part.number == 9 and part.wire == BYTES), None)
    storage = (
        StoredTensor(tensor=tensor, storage=tensor.name, storage_bytes=raw.value, offset=raw.start) if raw else None
    )
    return storage or StoredTensor(tensor=tensor), _number(parts, 14) == 1


def _integers(file: BinaryIO, field: ProtoField) -> Iterator[int]:
    """Yield a repeated integer's values, packed into one field or not."""
    if field.wire == VARINT:
        yield field.value
    elif field.wire == BYTES:
        value = shift = 0
        for byte in _bytes(file, field, _NAME_LIMIT):
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                yield value
                value = shift = 0


def _port(file: BinaryIO, field: ProtoField) -> Port:
    """Return a ValueInfoProto: name 1, type 2, in which a tensor's type is 1 (element type 1, shape 2)."""
    parts = list(_inside(file, field))
    name = _text(file, parts, 1) or ""
    kinds = [part for whole in parts if whole.number == 2 for part in _inside(file, whole) if part.number == 1]
    if not kinds:
        return Port(name=name)
    tensor = list(_inside(file, kinds[0]))
    shape = next((part for part in tensor if part.number == 2), None)
    sizes = tuple(_size(file, part) for part in _inside(file, shape) if part.number == 1) if shape else None
    return Port(name=name, dtype=ONNX_DTYPES.get(_number(tensor, 1)), shape=sizes)


def _size(file: BinaryIO, field: ProtoField) -> int | str:
    """Return a Dimension: a value 1 or a symbol 2; "?" where it has neither."""
    parts = list(_inside(file, field))
    symbol = _text(file, parts, 2)
    known = any(part.number == 1 for part in parts)
    return _number(parts, 1) if known else symbol or "?"
