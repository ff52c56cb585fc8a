"""The tensors that a pickle of torch's describes: names, shapes, dtypes and the storages they lie in."""

from collections.abc import Iterator
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from marpack.weights.pickle_stream import Global, Persistent, PickledCall, PickledDict

# Bytes per element, by the name torch prints after "torch."
ITEM_SIZES = {
    **dict.fromkeys(("bool", "uint8", "int8", "quint8", "qint8", "quint4x2", "quint2x4"), 1),
    **dict.fromkeys(("bits8", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", "bits16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "qint32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
_STORAGE_DTYPES = {
    "Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "BFloat16": "bfloat16", "Float": "float32", "Double": "float64",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "QInt8": "qint8", "QInt32": "qint32", "QUInt8": "quint8", "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4",
    "Untyped": "uint8",
}  # fmt: skip
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")  # where an nn.Module keeps what has names
_WRAPPERS = {
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor", "torch._utils._rebuild_device_tensor_from_numpy",
}  # fmt: skip
TENSOR_LIMIT = 1_000_000
_DEEPEST = 100  # containers within containers
_HOLDERS = (PickledDict, PickledCall, list, tuple)


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
        """Tell whether its numbers lie one after the other, in the order of its shape."""
        step = 1
        for size, stride in zip(reversed(self.tensor.shape), reversed(self.stride), strict=False):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


class WeightsHeader(Struct, frozen=True, kw_only=True):
    """What the beginning of a file tells."""

    tensors: tuple[StoredTensor, ...]
    metadata: dict[str, str]  # the author's own words


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
    """Yield what may hold tensors, under its name."""
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
    """Return the tensor that a call of torch's rebuilds, or None for anything else."""
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
            return _rebuilt(name, path, args) or _ancient(name, path, value.state)
    return None


def _rebuilt(name: str, path: str, args: tuple[object, ...]) -> StoredTensor | None:
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
    return None


def _ancient(name: str, path: str, state: object) -> StoredTensor | None:
    """Return a tensor as torch 0.x pickled it: an empty one whose state is its view."""
    match state:
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
    if isinstance(value, PickledCall) and value.made_by("torch.Size") and isinstance(value.args, tuple) and value.args:
        value = value.args[0]
    if not isinstance(value, tuple | list) or not all(isinstance(size, int) and size >= 0 for size in value):
        return None
    return tuple(value)
