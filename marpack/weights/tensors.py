"""Tensors of weights files: dtypes, shapes and storages, as safetensors, ONNX and torch's pickles describe them."""

from collections.abc import Iterator
from itertools import accumulate, islice
from math import prod
from operator import mul
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle import ByteStream, Global, Persistent, PickledCall, PickledDict, TruncatedError

# By the name that torch prints after "torch.": bytes per element, and the dtype in torch's storage classes, in
# safetensors, in ONNX (its number in onnx.proto) and in torch.export (its number in torch/_export/serde/schema.py).
_DTYPES: dict[str, tuple[int, str | None, str | None, int | None, int | None]] = {
    "bool": (1, "Bool", "BOOL", 9, 12),
    "uint8": (1, "Byte", "U8", 2, 1),
    "int8": (1, "Char", "I8", 3, 2),
    "uint16": (2, None, "U16", 4, 28),
    "int16": (2, "Short", "I16", 5, 3),
    "uint32": (4, None, "U32", 12, 34),
    "int32": (4, "Int", "I32", 6, 4),
    "uint64": (8, None, "U64", 13, 35),
    "int64": (8, "Long", "I64", 7, 5),
    "float16": (2, "Half", "F16", 10, 6),
    "bfloat16": (2, "BFloat16", "BF16", 16, 13),
    "float32": (4, "Float", "F32", 1, 7),
    "float64": (8, "Double", "F64", 11, 8),
    "complex32": (4, None, None, None, 9),
    "complex64": (8, "ComplexFloat", "C64", 14, 10),
    "complex128": (16, "ComplexDouble", None, 15, 11),
    "float8_e4m3fn": (1, None, "F8_E4M3", 17, 29),
    "float8_e4m3fnuz": (1, None, "F8_E4M3FNUZ", 18, 31),
    "float8_e5m2": (1, None, "F8_E5M2", 19, 30),
    "float8_e5m2fnuz": (1, None, "F8_E5M2FNUZ", 20, 32),
    "float8_e8m0fnu": (1, None, "F8_E8M0", 24, 33),
    "qint8": (1, "QInt8", None, None, None),
    "qint32": (4, "QInt32", None, None, None),
    "quint8": (1, "QUInt8", None, None, None),
    "quint4x2": (1, "QUInt4x2", None, None, None),
    "quint2x4": (1, "QUInt2x4", None, None, None),
}
ITEM_SIZES = {
    **{name: row[0] for name, row in _DTYPES.items()},
    **dict.fromkeys(("bits8", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2"), 1),
    "bits16": 2,
}
_STORAGE_DTYPES = {row[1]: name for name, row in _DTYPES.items()} | {"Untyped": "uint8"}
_SAFETENSORS_DTYPES = {row[2]: name for name, row in _DTYPES.items()}
ONNX_DTYPES = {row[3]: name for name, row in _DTYPES.items()} | {
    8: "string", 21: "uint4", 22: "int4", 23: "float4_e2m1", 25: "uint2", 26: "int2", 27: "float6_e2m3",
    28: "float6_e3m2",
}  # fmt: skip
EXPORT_DTYPES = {row[4]: name for name, row in _DTYPES.items()}
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")  # where an nn.Module keeps what has names
_WRAPPERS = {
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor", "torch._utils._rebuild_device_tensor_from_numpy",
}  # fmt: skip
TENSOR_LIMIT = 1_000_000
_HEADER_LIMIT = 100_000_000  # bytes of a safetensors header, the format's own limit
_LONGEST = 16 * 1024 * 1024  # bytes that are read: a header of 100,000 tensors has about eight million
_Natural = Annotated[int, Meta(ge=0)]
_DEEPEST = 100  # containers within containers
_HOLDERS = (PickledDict, PickledCall, list, tuple)
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


class Tensor(Struct, frozen=True, kw_only=True):
    """One tensor of a weights file."""

    name: str  # as in the state_dict: "layer.0.weight"
    dtype: str  # as torch prints it after "torch."
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes they take, packed."""
        return self.elements * ITEM_SIZES.get(self.dtype, 0)


class StoredTensor(Struct, frozen=True, kw_only=True):
    """A tensor with the place of its numbers: a view into a storage."""

    tensor: Tensor
    storage: str | None = None  # the storage's key; None where it keeps none, as on the meta device
    storage_bytes: int = 0
    inside: str | None = None  # the member of a torch zip that the storage is; None: the weights file itself
    offset: int = 0  # bytes from the start of that
    stride: tuple[int, ...] = ()  # elements

    @property
    def contiguous(self) -> bool:
        """Return whether its numbers follow one another, in the order of its shape."""
        step = 1
        for size, stride in zip(reversed(self.tensor.shape), reversed(self.stride), strict=False):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


class Port(Struct, frozen=True, kw_only=True):
    """An input or output of a model."""

    name: str
    dtype: str | None = None  # as torch prints it after "torch."; None for anything but a tensor
    shape: tuple[int | str, ...] | None = None  # a symbol such as "batch" where the size is free; None: unknown rank


class ScriptMethod(Struct, frozen=True):
    """A method of the model."""

    name: str
    signature: str  # "(x: Tensor) -> Tensor"


class WeightsSummary(Struct, frozen=True, kw_only=True):
    """The facts in a file's headers."""

    kind: WeightsFormat
    tensors: tuple[StoredTensor, ...] = ()
    methods: tuple[ScriptMethod, ...] = ()  # TorchScript
    inputs: tuple[Port, ...] = ()  # ONNX and torch.export
    outputs: tuple[Port, ...] = ()
    metadata: dict[str, str] = {}  # the author's own: safetensors, ONNX
    facts: dict[str, str] = {}  # the format's own: "opset", "machine", "torch"
    problem: str | None = None  # why the headers could not be read to their end


class _Described(Struct):
    dtype: str
    shape: tuple[_Natural, ...]
    data_offsets: tuple[_Natural, _Natural]


def is_safetensors(file: BinaryIO) -> bool:
    """Return whether a file begins as a safetensors file does: a length that fits, then a JSON object."""
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(9)
    length = int.from_bytes(head[:8], "little")
    return len(head) == 9 and head[8:] == b"{" and 2 <= length <= min(size - 8, _HEADER_LIMIT)


def read_safetensors(file: BinaryIO) -> WeightsSummary:
    """Read the header, each tensor its own storage. Raises ValueError when it is not one."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > _LONGEST:
        raise ValueError(f"it has {length:,} bytes; the maximum is {_LONGEST:,}")
    fields = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    metadata = msgspec.json.decode(fields.pop("__metadata__", b"{}"), type=dict[str, str])
    tensors = []
    for name, raw in fields.items():
        item = msgspec.json.decode(raw, type=_Described)
        start, end = item.data_offsets
        dtype = _SAFETENSORS_DTYPES.get(item.dtype, item.dtype.lower())
        placed = StoredTensor(
            tensor=Tensor(name=name, dtype=dtype, shape=item.shape),
            storage=name,
            storage_bytes=max(0, end - start),
            offset=8 + length + start,
            stride=tuple(accumulate(reversed(item.shape[1:]), mul, initial=1))[::-1] if item.shape else (),
        )
        tensors.append(placed)
    return WeightsSummary(kind=WeightsFormat.SAFETENSORS, tensors=tuple(tensors), metadata=metadata)


def is_exact_safetensors(file: BinaryIO) -> bool:
    """Return whether a whole file is safetensors: its tensors fill every byte behind the header."""
    if not is_safetensors(file):
        return False
    try:
        tensors = read_safetensors(file).tensors
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False
    file.seek(0)
    end = 8 + int.from_bytes(file.read(8), "little")
    for placed in sorted(tensors, key=lambda placed: (placed.offset, placed.storage_bytes)):
        if placed.offset != end or placed.storage_bytes != placed.tensor.bytes:
            return False
        end += placed.storage_bytes
    return end == file.seek(0, 2)


def placed_tensors(root: object) -> Iterator[StoredTensor]:
    """Yield the tensors of a pickle's value, depth first, named by their path within it."""
    seen: set[int] = set()
    waiting: list[tuple[str, object, int]] = [("", root, 0)]
    left = TENSOR_LIMIT
    while waiting and left:
        name, value, depth = waiting.pop()
        if found := _tensor(name, value):
            left -= 1
            yield found
        elif id(value) not in seen and depth < _DEEPEST:
            children = [(child, item, depth + 1) for child, item in _children(name, value)]
            if children:
                seen.add(id(value))
            waiting.extend(reversed(children))


def storage_width(kind: str) -> int:
    """Return the bytes per element of a storage, by its class: 4 for FloatStorage."""
    return ITEM_SIZES.get(_stored_dtype(kind), 1)


def _stored_dtype(kind: str) -> str:
    return _STORAGE_DTYPES.get(kind.removesuffix("Storage"), kind)


def in_folder(placed: StoredTensor, folder: str, prefix: str = "") -> StoredTensor:
    """Return a tensor whose storage is a member of a torch zip, in this folder of it; `prefix` goes before its name."""
    member = placed.storage and f"{folder}{placed.storage}"
    tensor = replace(placed.tensor, name=prefix + placed.tensor.name)
    return replace(placed, tensor=tensor, storage=member, inside=member)


def _children(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, PickledDict):
        yield from ((_joined(name, key), item) for key, item in value.items if isinstance(item, _HOLDERS))
    elif isinstance(value, list | tuple):
        yield from ((_joined(name, number), item) for number, item in enumerate(value) if isinstance(item, _HOLDERS))
    elif isinstance(value, PickledCall):
        yield from _children(name, PickledDict(value.items))
        yield from _children(name, value.values)
        yield name, value.state
        yield name, value.args


def _joined(name: str, key: object) -> str:
    if key in _MODULE_PARTS:
        return name
    text = str(key) if isinstance(key, str | int) else "?"
    return f"{name}.{text}" if name else text


def _tensor(name: str, value: object) -> StoredTensor | None:
    for _ in range(8):  # a parameter of a subclass of a device tensor: wrappers, never many
        if not isinstance(value, PickledCall) or not isinstance(value.function, Global):
            return None
        path, args = value.function.path, value.args
        if not isinstance(args, tuple):
            return None
        if path in _WRAPPERS and args:
            value = args[0]
        elif path == "torch._tensor._rebuild_from_type_v2" and len(args) > 2:
            value = PickledCall(args[0], args[2])
        else:
            return _rebuilt(name, path, args, value.state)
    return None


def _rebuilt(name: str, path: str, args: tuple[object, ...], state: object) -> StoredTensor | None:
    match path.removeprefix("torch._utils._rebuild_"), args:
        case "tensor" | "tensor_v2" | "qtensor", (Persistent() as storage, int(offset), shape, stride, *_):
            return _view(name, storage, None, offset, shape, stride)
        case "tensor_v3", (Persistent() as storage, int(offset), shape, stride, _, _, Global() as dtype, *_):
            return _view(name, storage, dtype.name, offset, shape, stride)
        case "meta_tensor_no_storage", (Global() as dtype, shape, *_):
            return _elsewhere(name, dtype.name, shape)
        case "wrapper_subclass", (_, Global() as dtype, shape, *_):
            return _elsewhere(name, dtype.name, shape)
        case "sparse_tensor", (_, (_, PickledCall() as values, shape, *_)):
            inner = _tensor(name, values)
            return inner and _elsewhere(name, inner.tensor.dtype, shape)
    match state:  # torch 0.x pickled an empty tensor, with its view as its state
        case (Persistent() as storage, int(offset), shape, stride) if path.endswith("Tensor"):
            return _view(name, storage, None, offset, shape, stride)
    return None


def _view(
    name: str, storage: Persistent, dtype: str | None, offset: int, shape: object, stride: object
) -> StoredTensor | None:
    match storage.key:
        case ("storage", Global() as kind, str(key), _, int(count), *_):
            stored = _stored_dtype(kind.name)
        case _:
            return None
    sizes, steps = _sizes(shape), _sizes(stride)
    if sizes is None or steps is None:
        return None
    width = storage_width(kind.name)
    tensor = Tensor(name=name, dtype=dtype or stored, shape=sizes)
    start = offset * ITEM_SIZES.get(tensor.dtype, width)
    return StoredTensor(tensor=tensor, storage=key, storage_bytes=count * width, offset=start, stride=steps)


def _elsewhere(name: str, dtype: str, shape: object) -> StoredTensor | None:
    sizes = _sizes(shape)
    return None if sizes is None else StoredTensor(tensor=Tensor(name=name, dtype=dtype, shape=sizes))


def _sizes(value: object) -> tuple[int, ...] | None:
    if isinstance(value, PickledCall) and value.calls("torch.Size") and isinstance(value.args, tuple) and value.args:
        value = value.args[0]
    if not isinstance(value, tuple | list) or not all(isinstance(size, int) and size >= 0 for size in value):
        return None
    return tuple(value)


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


def is_onnx(file: BinaryIO) -> bool:
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


def read_onnx(file: BinaryIO) -> WeightsSummary:
    """Read an ONNX header. Raises ProtobufError when it is not one."""
    model = _Message(file, 0, file.seek(0, 2))
    graph = next(model.inside(_GRAPH), None)
    if graph is None:
        raise ProtobufError("no graph")
    initializers = list(graph.inside(_INITIALIZER))
    try:
        tensors = tuple(map(_onnx_tensor, initializers))
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


def _onnx_tensor(message: _Message) -> StoredTensor:
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
