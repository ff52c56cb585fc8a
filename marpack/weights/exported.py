"""torch.export and AOTInductor packages, from the JSON beside them; a library's ELF header."""

import re
from collections.abc import Iterable, Iterator
from struct import unpack_from
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct, field

from marpack.weights.onnx import Port
from marpack.weights.tensors import ITEM_SIZES, StoredTensor, Tensor, placed_tensors
from marpack.weights.torch_zip import TorchZip

T = TypeVar("T")
_User = dict[str, object]  # "arg": one of a dozen kinds, by its name
_JSON_LIMIT = 64 * 1024 * 1024  # bytes; of a larger description only the tensors are read
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")  # as sympy writes one
_OLD_PROGRAM = "serialized_exported_program.json"  # up to torch 2.7
_OLD_TENSORS = ("serialized_state_dict.pt", "serialized_constants.pt")
# torch's numbers of dtypes, in its schema of exported programs.
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu",
    34: "uint32", 35: "uint64",
}  # fmt: skip
_MACHINES = {0x03: "x86", 0x28: "arm", 0x3E: "x86-64", 0xB7: "aarch64", 0xF3: "riscv"}
_TYPES = {1: "object file", 2: "executable", 3: "shared object"}


class _Size(Struct):
    as_int: int | None = None
    as_expr: dict[str, object] | None = None

    @property
    def known(self) -> int | str:
        """The size, or the symbol that stands for it."""
        if self.as_int is not None:
            return self.as_int
        return _SYMBOL.sub(r"\1", str((self.as_expr or {}).get("expr_str", "?")))


class _Meta(Struct):
    dtype: int
    sizes: list[_Size]
    strides: list[_Size] = []
    storage_offset: _Size = field(default_factory=_Size)


class _Graph(Struct):
    tensor_values: dict[str, _Meta] = {}


class _Spec(Struct):
    user_input: _User | None = None
    user_output: _User | None = None


class _Signature(Struct):
    input_specs: list[_Spec] = []
    output_specs: list[_Spec] = []


class _Module(Struct):
    graph: _Graph
    signature: _Signature


class _Program(Struct):
    graph_module: _Module
    opset_version: dict[str, int] = {}
    torch_version: str | None = None


class _Stored(Struct):
    path_name: str
    tensor_meta: _Meta | None = None


class _Config(Struct):
    config: dict[str, _Stored]


class Exported(Struct, frozen=True, kw_only=True):
    """What the JSON says."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: tuple[StoredTensor, ...]
    torch_version: str | None


def read_program(file: TorchZip) -> Exported:
    """Read a program's description.

    Raises KeyError, ValueError, NotZipError when it is not one.
    """
    name = next((name for name in file.members if name.startswith("models/") and name.endswith(".json")), _OLD_PROGRAM)
    tensors = tuple(_old_tensors(file) if name == _OLD_PROGRAM else _tensors(file))
    if file.members[name].size > _JSON_LIMIT:
        return Exported(inputs=(), outputs=(), tensors=tensors, torch_version=None)
    program = _decode(file, name, _Program)
    known = program.graph_module.graph.tensor_values
    signature = program.graph_module.signature
    return Exported(
        inputs=tuple(_ports((spec.user_input for spec in signature.input_specs), known)),
        outputs=tuple(_ports((spec.user_output for spec in signature.output_specs), known)),
        tensors=tensors,
        torch_version=program.torch_version,
    )


def _decode(file: TorchZip, name: str, kind: type[T]) -> T:
    with file.open(name) as member:
        return msgspec.json.decode(member.read(), type=kind)


def _ports(users: Iterable[_User | None], known: dict[str, _Meta]) -> Iterator[Port]:
    for user in users:
        arg = user.get("arg") if user else None
        if not isinstance(arg, dict):
            continue
        kind, value = next(iter(arg.items()), ("", None))
        name = value.get("name") if isinstance(value, dict) else None
        if kind == "as_tensor" and name in known:
            meta = known[name]
            yield Port(name=name, dtype=_DTYPES.get(meta.dtype), shape=tuple(size.known for size in meta.sizes))
        else:
            yield Port(name=str(name or value), dtype=None)


def _tensors(file: TorchZip) -> Iterator[StoredTensor]:
    for name in file.members:
        if name.startswith(("data/weights/", "data/constants/")) and name.endswith("_config.json"):
            folder = name.rpartition("/")[0]
            for key, stored in _decode(file, name, _Config).config.items():
                if stored.tensor_meta is not None:
                    yield _placed(key, f"{folder}/{stored.path_name}", stored.tensor_meta, file)


def _placed(name: str, member: str, meta: _Meta, file: TorchZip) -> StoredTensor:
    entry = file.members.get(member)
    dtype = _DTYPES.get(meta.dtype, "unknown")
    return StoredTensor(
        tensor=Tensor(name=name, dtype=dtype, shape=_known(meta.sizes)),
        storage=member,
        inside=member,
        storage_bytes=entry.size if entry else 0,
        offset=(meta.storage_offset.as_int or 0) * ITEM_SIZES.get(dtype, 0),
        stride=_known(meta.strides),
    )


def _known(sizes: list[_Size]) -> tuple[int, ...]:
    return tuple(size.as_int or 0 for size in sizes)


def _old_tensors(file: TorchZip) -> Iterator[StoredTensor]:
    """Yield the tensors of the torch.save files inside, without places: each is a zip of its own."""
    for name in _OLD_TENSORS:
        if name in file.members and file.members[name].size:
            with file.open(name) as inner:
                for placed in placed_tensors(TorchZip.read(inner).pickle("data.pkl").root):
                    yield StoredTensor(tensor=placed.tensor, storage_bytes=placed.storage_bytes)


def library_facts(file: BinaryIO) -> dict[str, str]:
    """Return what an ELF header says about machine and type; nothing for another format."""
    file.seek(0)
    head = file.read(20)
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return {}
    kind, machine = unpack_from(">HH" if head[5] == 2 else "<HH", head, 16)
    bits = "64 bit" if head[4] == 2 else "32 bit"
    return {
        "machine": f"{_MACHINES.get(machine, f'machine {machine}')}, {bits}",
        "type": _TYPES.get(kind, f"type {kind}"),
    }
