"""An ONNX header, and the protobuf wire format it is written in."""

from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.bytesource import ByteStream, TruncatedError
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import ONNX_DTYPES, Port, StoredTensor, Tensor, WeightsSummary

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
    """This is not a protocol buffer; private to the readers of this package."""


def fields(file: BinaryIO, start: int, end: int) -> Iterator[ProtoField]:
    """Yield the fields of the message in bytes [begin, end). Raises ProtobufError."""
    stream = ByteStream(file, start)
    try:
        while stream.position < end:
            number, wire = divmod(_varint(stream), 8)
            if number == 0:
                raise ProtobufError("field 0")
            if wire == VARINT:
                yield ProtoField(number, wire, _varint(stream))
                continue
            length = _varint(stream) if wire == BYTES else {FIXED64: 8, FIXED32: 4}.get(wire)
            if length is None or stream.position + length > end:
                raise ProtobufError("a field that does not fit")
            found = ProtoField(number, wire, length, stream.position)
            stream.skip(length)
            yield found
    except TruncatedError:
        raise ProtobufError("it ends in the middle of a field") from None


def _varint(stream: ByteStream) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.byte()
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ProtobufError("a number of more than ten bytes")


class _Message:
    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        """Read the fields, but no bytes in them. Raises ProtobufError."""
        self._file = file
        self.fields = list(islice(fields(file, start, end), _PART_LIMIT))
        if len(self.fields) == _PART_LIMIT:
            raise ProtobufError(f"a message of over {_PART_LIMIT:,} parts")

    def number(self, number: int) -> int:
        return next((field.value for field in self.fields if field.number == number and field.wire == VARINT), 0)

    def data(self, number: int) -> ProtoField | None:
        return next((field for field in self.fields if field.number == number and field.wire == BYTES), None)

    def text(self, number: int) -> str:
        """Return the first text of a field, its beginning only if it is long, or an empty one."""
        found = self.data(number)
        if found is None:
            return ""
        self._file.seek(found.start)
        return self._file.read(min(found.value, _NAME_LIMIT)).decode("utf-8", "replace")

    def inside(self, number: int) -> Iterator["_Message"]:
        for field in self.fields:
            if field.number == number:
                if field.wire != BYTES:
                    raise ProtobufError("a message that is a number")
                yield _Message(self._file, field.start, field.start + field.value)

    def numbers(self, number: int) -> Iterator[int]:
        """Yield a repeated number's values, packed into one field or not. Raises TruncatedError."""
        for field in self.fields:
            if field.number == number and field.wire == VARINT:
                yield field.value
            elif field.number == number and field.wire == BYTES:
                stream = ByteStream(self._file, field.start)
                end = field.start + min(field.value, _NAME_LIMIT)
                while stream.position < end:
                    yield _varint(stream)


def looks_like(file: BinaryIO) -> bool:
    """Return whether the whole file reads as an ONNX model: known fields, an IR version and one graph."""
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


def read_header(file: BinaryIO) -> WeightsSummary:
    """Read the header. Raises ProtobufError when it is not one."""
    model = _Message(file, 0, file.seek(0, 2))
    graph = next(model.inside(_GRAPH), None)
    if graph is None:
        raise ProtobufError("no graph")
    initializers = list(graph.inside(_INITIALIZER))
    try:
        tensors = tuple(map(_tensor, initializers))
    except TruncatedError:
        raise ProtobufError("a shape ends in the middle of a number") from None
    fed = {placed.tensor.name for placed in tensors}  # up to IR 3, initializers are also listed as inputs
    opsets = {opset.text(1): opset.number(2) for opset in model.inside(_OPSET)}  # by domain; "" is ONNX's own
    facts = {
        "IR version": str(model.number(_IR_VERSION)),
        "opsets": ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in opsets.items()),
        "nodes": f"{sum(field.number == _NODE for field in graph.fields):,}",
        "producer": " ".join(filter(None, (model.text(_PRODUCER), model.text(_PRODUCER_VERSION)))),
    }
    if any(initializer.number(14) == 1 for initializer in initializers):
        facts["external data"] = "some tensors are in other files"
    return WeightsSummary(
        kind=WeightsFormat.ONNX,
        tensors=tensors,
        inputs=tuple(port for port in map(_port, graph.inside(_INPUT)) if port.name not in fed),
        outputs=tuple(map(_port, graph.inside(_OUTPUT))),
        metadata={pair.text(1): pair.text(2) for pair in model.inside(_METADATA)},
        facts={name: fact for name, fact in facts.items() if fact or name != "producer"},
    )


def _tensor(message: _Message) -> StoredTensor:
    """Return a TensorProto: dims 1, data type 2, name 8, raw data 9."""
    dtype = ONNX_DTYPES.get(message.number(2), "undefined")
    tensor = Tensor(name=message.text(8), dtype=dtype, shape=tuple(message.numbers(1)))
    raw = message.data(9)
    if raw is None:
        return StoredTensor(tensor=tensor)
    return StoredTensor(tensor=tensor, storage=tensor.name, storage_bytes=raw.value, offset=raw.start)


def _port(message: _Message) -> Port:
    """Return a ValueInfoProto: name 1, type 2, in which a tensor's type is 1 (element type 1, shape 2)."""
    name = message.text(1)
    tensor = next((tensor for kind in message.inside(2) for tensor in kind.inside(1)), None)
    if tensor is None:
        return Port(name=name)
    shape = next(tensor.inside(2), None)
    sizes = None
    if shape is not None:  # a Dimension has a value 1 or a symbol 2
        known = ((size, any(field.number == 1 for field in size.fields)) for size in shape.inside(1))
        sizes = tuple(size.number(1) if is_known else size.text(2) or "?" for size, is_known in known)
    return Port(name=name, dtype=ONNX_DTYPES.get(tensor.number(1)), shape=sizes)
