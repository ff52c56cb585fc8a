"""Weights files: their formats, by content and never by name, and the facts in their headers."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from struct import unpack_from
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from marpack.archive.bytesource import read_at
from marpack.archive.zip_format import NotZipError, ZipEntry, open_entry, read_directories
from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle import (
    ALLOWED,
    Global,
    OpcodeBudget,
    PickledCall,
    PickledDict,
    Stream,
    disallowed,
    read_pickle,
)
from marpack.weights.tensors import (
    EXPORT_DTYPES,
    ITEM_SIZES,
    Port,
    ProtobufError,
    ScriptMethod,
    StoredTensor,
    Tensor,
    WeightsSummary,
    in_folder,
    is_onnx,
    is_safetensors,
    placed_tensors,
    read_onnx,
    read_safetensors,
    storage_width,
)

T = TypeVar("T")
_User = dict[str, object]  # "arg": one of a dozen kinds, by its name
_AOT_LIBRARY = re.compile(r"(?:^|/)data/aotinductor/[^/]+/.+\.(?:so|pyd|dll|dylib)$")
_STORAGES = {"data.pkl": "data/", "constants.pkl": "constants/", "traced_inputs.pkl": "traced_inputs/"}
_EXPORTED = re.compile(r"(?:^|/)models/[^/]+\.json$")
# torch looks members up without regard to case, under the folder of the first one.
_EXPORTED_NUMBERS = re.compile(r"[^/]*/data/(?:weights/weight|constants/tensor)_\d+", re.IGNORECASE)
_EXPORTED_PICKLES = re.compile(
    r"[^/]*/data/(?:weights|constants|sample_inputs)/.+(?<!_config\.json)"
    r"|serialized_(?:state_dict|constants|example_inputs)\.(?:pt|json)",
    re.IGNORECASE,
)
_CODE_LIMIT = 8 * 1024 * 1024  # bytes of one file of code
_CODE_TOTAL = 64 * 1024 * 1024  # bytes of all of it
# torch.jit.load looks members up without regard to case, under the folder of the first one.
_SCRIPT_MARK = re.compile(r"(?:[^/]*/)?constants\.pkl", re.IGNORECASE)
_OLD_SCRIPT = (re.compile(r"(?:[^/]*/)?model\.json", re.IGNORECASE), re.compile(r"(?:[^/]*/)?version", re.IGNORECASE))
_SCRIPT_CODE = re.compile(r"(?:[^/]*/)?code/.*\.py", re.IGNORECASE)
# Operators that write and map files, and those and classes of other libraries than torch and torchvision.
_OPERATORS = (
    b"aten prim prims quantized _quantized quantized_decomposed torchvision mkldnn mkldnn_prepacked prepacked xnnpack"
    b" profiler"
)
_CLASSES = b"quantized sparse rnn xnnpack mkldnn profiler cuda"
_SCRIPT_FOREIGN = re.compile(
    rb"\b(?:save|from_file)\b"
    rb"|(?<![\w.])ops\b(?! : |\.(?:%b)\.)"
    rb"|\btorch\.classes\b(?!\.(?:%b)\.)" % (_OPERATORS.replace(b" ", b"|"), _CLASSES.replace(b" ", b"|"))
)
_SCRIPT_ATTRIBUTE = re.compile(rb'\bgetattr\([\w.]+, "[^"\\]*"\)')  # as torch writes it
_DEEPEST_ATTRIBUTE = 16  # getattr within getattr
_METHOD = re.compile(r"^  def (\w+)\(", re.MULTILINE)
_MAX_LENGTH = 8192  # characters of a signature
_MAX_COUNT = 1000  # methods
_SELF = re.compile(r"^\w+: [\w.]+(?:, *|(?=\)))")
_JSON_LIMIT = 64 * 1024 * 1024  # bytes; of a larger description only the tensors are read
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")  # as sympy writes one
_OLD_PROGRAM = "serialized_exported_program.json"  # up to torch 2.7
_OLD_TENSORS = ("serialized_state_dict.pt", "serialized_constants.pt")
_MACHINES = {0x03: "x86", 0x28: "arm", 0x3E: "x86-64", 0xB7: "aarch64", 0xF3: "riscv"}
_TYPES = {1: "object file", 2: "executable", 3: "shared object"}
LEGACY_STARTS = (b"\x80", b"L")  # what precedes the magic number in a file that `is_legacy` accepts
_MAGIC = 0x1950A86A20F9469CFC6C
_COUNT = 8  # bytes before each storage: how many elements it has
_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # Linux, macOS
_KEYS = 12  # of a checkpoint
_SHOWN = 40  # bytes of code in a message
_METADATA_LIMIT = 1 << 20  # bytes
_PICKLES = 5  # magic number, protocol, system, object, storage keys


class TorchZip:
    """The members of a zip that torch wrote, without their common folder."""

    def __init__(self, file: BinaryIO, budget: OpcodeBudget | None = None) -> None:
        """Read the zip's directory; its pickles are read within a budget, or one of their own. Raises NotZipError."""
        directories = read_directories(file)
        self.file = file
        self._budget = budget or OpcodeBudget()
        self.entries = entries = tuple(dict.fromkeys(entry for each in directories for entry in each))
        self.is_ambiguous = len(directories) > 1  # readers find different members
        tops = {entry.name.partition("/")[0] for entry in entries}
        root = f"{min(tops, default='')}/"  # torch names the one folder of all members after the file
        self.root = root if len(tops) == 1 and all(entry.name.startswith(root) for entry in entries) else ""
        self.members = {entry.name.removeprefix(self.root): entry for entry in reversed(entries)}
        self.streams: dict[str, Stream] = {}  # the pickles that `pickle` has read, by the names of `members`

    def open(self, name: str) -> BinaryIO:
        """Open a member by its name without the common folder. Raises KeyError, NotZipError."""
        return open_entry(self.file, self.members[name])

    def pickle(self, name: str) -> Stream:
        """Read the first pickle of a member, at the first call. Raises KeyError, NotZipError."""
        if name not in self.streams:
            self.streams[name] = self._budget.read(self.open(name))
        return self.streams[name]

    @property
    def kind(self) -> WeightsFormat:
        """The format, by the members that each of torch's writers leaves."""
        if any(_AOT_LIBRARY.search(name) for name in self.members):
            return WeightsFormat.AOTI_PACKAGE
        if "serialized_exported_program.json" in self.members:  # torch.export.save up to torch 2.7
            return WeightsFormat.TORCH_EXPORT
        if "archive_format" in self.members:
            exported = any(_EXPORTED.search(name) for name in self.members)
            return WeightsFormat.TORCH_EXPORT if exported else WeightsFormat.UNKNOWN
        if "data.pkl" not in self.members:
            return WeightsFormat.UNKNOWN
        if "constants.pkl" in self.members:
            return WeightsFormat.TORCHSCRIPT
        try:
            return saved_kind(self.pickle("data.pkl"))
        except NotZipError:
            return WeightsFormat.UNKNOWN

    def exported_data(self) -> tuple[frozenset[ZipEntry], frozenset[ZipEntry]]:
        """Return the members of an exported program that are raw numbers by their names, and those it may unpickle."""
        numbers = frozenset(entry for entry in self.entries if _EXPORTED_NUMBERS.fullmatch(entry.name))
        pickled = frozenset(entry for entry in self.entries if _EXPORTED_PICKLES.fullmatch(entry.name))
        return numbers, pickled - numbers


def saved_kind(stream: Stream) -> WeightsFormat:
    """Return what torch.save wrote, by its pickle."""
    if stream.problem is not None and not stream.unfollowed:
        return WeightsFormat.UNKNOWN
    return WeightsFormat.PICKLED_MODULE if disallowed(stream.imports) or stream.computed else WeightsFormat.STATE_DICT


def plain_members(file: TorchZip) -> frozenset[ZipEntry]:
    """Return the members that torch reads as numbers, or as TorchScript code: it unpickles none of them."""
    names: set[str] = set()
    for pickle, folder in _STORAGES.items():
        with suppress(KeyError, NotZipError):
            names.update(f"{folder}{key}" for key in file.pickle(pickle).storages)
    if file.kind is WeightsFormat.TORCHSCRIPT:
        names.update(name for name in file.members if name.startswith("code/"))
    return frozenset(file.members[name] for name in names if name in file.members)


def script_methods(file: TorchZip) -> tuple[ScriptMethod, ...]:
    """Return the methods of the model's own class, `forward` first. Raises KeyError, NotZipError."""
    root = file.pickle("data.pkl").root
    if not isinstance(root, PickledCall) or not isinstance(root.function, Global):
        return ()
    owner = root.function
    with file.open(f"code/{owner.module.replace('.', '/')}.py") as code:
        text = code.read(_CODE_LIMIT).decode("utf-8", "replace")
    _, _, rest = text.partition(f"class {owner.name}(")
    body = re.split(r"^(?=class )", rest, maxsplit=1, flags=re.MULTILINE)[0]
    found = []
    for match in islice(_METHOD.finditer(body), _MAX_COUNT):
        signature, _, _ = body[match.end() : match.end() + _MAX_LENGTH].partition(":\n")
        args = _SELF.sub("", " ".join(signature.split()))  # on one line, without self and common prefixes
        found.append(ScriptMethod(match[1], f"({args}".replace("__torch__.", "")))
    return tuple(sorted(found, key=lambda method: (method.name != "forward", method.name)))


def script_tensors(file: TorchZip) -> tuple[StoredTensor, ...]:
    """Return a model's parameters and buffers, then the constants that freezing turned some of them into.

    Raises KeyError, NotZipError.
    """
    constants = placed_tensors(file.pickle("constants.pkl").root)
    return (
        *(in_folder(placed, "data/") for placed in placed_tensors(file.pickle("data.pkl").root)),
        *(in_folder(placed, "constants/", "constants.") for placed in constants),
    )


def script_problems(file: TorchZip) -> Iterator[tuple[str, str]]:
    """Yield each member of TorchScript code that may do more than compute, and why. Loading runs some methods."""
    names, left = [entry.name for entry in file.entries], _CODE_TOTAL
    if all(any(map(mark.fullmatch, names)) for mark in _OLD_SCRIPT):
        yield "model.json", "it describes TorchScript of torch before 1.4, which marpack does not read"
    if not any(map(_SCRIPT_MARK.fullmatch, names)):
        return
    for entry in file.entries:
        if not _SCRIPT_CODE.fullmatch(entry.name):
            continue
        left -= entry.size
        try:
            if entry.size > _CODE_LIMIT or left < 0:
                raise NotZipError(f"TorchScript code has over {_CODE_LIMIT:,} bytes, or all of it {_CODE_TOTAL:,}")
            with open_entry(file.file, entry) as member:
                found = _foreign_code(member.read())
        except NotZipError as error:
            yield entry.name, str(error)
            continue
        if found is not None:
            yield entry.name, f"its TorchScript code has {found!r}, which may do more than compute"


def _foreign_code(code: bytes) -> str | None:
    """Return the first part of TorchScript code that may be a foreign operator."""
    found = _SCRIPT_FOREIGN.search(code)
    for _ in range(_DEEPEST_ATTRIBUTE if b"getattr" in code and not found else 0):
        code = _SCRIPT_ATTRIBUTE.sub(b"_", code)
    if found := found or re.search(rb"\bgetattr\b", code):
        return code[found.start() : found.start() + _SHOWN].partition(b"\n")[0].decode("latin-1")
    return None


class _Size(Struct):
    as_int: int | None = None
    as_expr: dict[str, object] | None = None

    @property
    def known(self) -> int | str:
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


def read_program(file: TorchZip) -> WeightsSummary:
    """Read the description of an exported program. Raises KeyError, ValueError, NotZipError when it is not one."""
    name = next((name for name in file.members if name.startswith("models/") and name.endswith(".json")), _OLD_PROGRAM)
    tensors = tuple(_old_tensors(file) if name == _OLD_PROGRAM else _exported_tensors(file))
    if file.members[name].size > _JSON_LIMIT:
        return WeightsSummary(kind=WeightsFormat.TORCH_EXPORT, tensors=tensors)
    program = _decode(file, name, _Program)
    known = program.graph_module.graph.tensor_values
    signature = program.graph_module.signature
    return WeightsSummary(
        kind=WeightsFormat.TORCH_EXPORT,
        inputs=tuple(_ports((spec.user_input for spec in signature.input_specs), known)),
        outputs=tuple(_ports((spec.user_output for spec in signature.output_specs), known)),
        tensors=tensors,
        facts={"torch": program.torch_version} if program.torch_version else {},
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
            yield Port(name=name, dtype=EXPORT_DTYPES.get(meta.dtype), shape=tuple(size.known for size in meta.sizes))
        else:
            yield Port(name=str(name or value), dtype=None)


def _exported_tensors(file: TorchZip) -> Iterator[StoredTensor]:
    for config in file.members:
        if not (config.startswith(("data/weights/", "data/constants/")) and config.endswith("_config.json")):
            continue
        folder = config.rpartition("/")[0]
        for key, stored in _decode(file, config, _Config).config.items():
            meta, member = stored.tensor_meta, f"{folder}/{stored.path_name}"
            if meta is None:
                continue
            dtype = EXPORT_DTYPES.get(meta.dtype, "unknown")
            yield StoredTensor(
                tensor=Tensor(name=key, dtype=dtype, shape=tuple(size.as_int or 0 for size in meta.sizes)),
                storage=member,
                inside=member,
                storage_bytes=file.members[member].size if member in file.members else 0,
                offset=(meta.storage_offset.as_int or 0) * ITEM_SIZES.get(dtype, 0),
                stride=tuple(size.as_int or 0 for size in meta.strides),
            )


def _old_tensors(file: TorchZip) -> Iterator[StoredTensor]:
    """Yield the tensors of the torch.save files inside, without places: each is a zip of its own."""
    for name in _OLD_TENSORS:
        if name in file.members and file.members[name].size:
            with file.open(name) as inner:
                for placed in placed_tensors(TorchZip(inner).pickle("data.pkl").root):
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


def is_legacy(file: BinaryIO) -> bool:
    """Return whether torch.save before 1.6 wrote a file: its first pickle is a magic number."""
    return read_pickle(file, limit=4).root == _MAGIC


def read_legacy_pickles(file: BinaryIO, budget: OpcodeBudget) -> list[Stream]:
    """Read the five pickles at the file's beginning in order; fewer when one of them breaks off."""
    streams: list[Stream] = []
    end = 0
    for _ in range(_PICKLES):
        streams.append(budget.read(file, end))
        end = streams[-1].end
        if streams[-1].problem is not None:
            break
    return streams


def legacy_object(streams: Sequence[Stream]) -> Stream | None:
    """Return the pickle of the saved object itself."""
    return streams[3] if len(streams) > 3 else None


def _legacy_storages(streams: Sequence[Stream]) -> tuple[list[tuple[str, int, int, int]], bool]:
    """Return the storages behind the pickles (key, offset, elements, bytes), and whether they are all known."""
    found: list[tuple[str, int, int, int]] = []
    saved = legacy_object(streams)
    keys = streams[4].root if len(streams) == _PICKLES else None  # in the order of the storages in the file
    if saved is None or not isinstance(keys, list):
        return found, False
    at = streams[-1].end
    for key in keys:
        if not isinstance(key, str) or key not in saved.storages:
            return found, False
        kind, count = saved.storages[key]
        found.append((key, at + _COUNT, count, count * storage_width(kind)))
        at = found[-1][1] + found[-1][3]
    return found, True


def end_of_legacy_storages(file: BinaryIO, streams: Sequence[Stream]) -> int | None:
    """Return where the storages behind the pickles end, if all of them are complete; otherwise None."""
    storages, are_known = _legacy_storages(streams)
    noted = (read_at(file, begin - _COUNT, _COUNT) for _, begin, _, _ in storages)
    counts = (int.from_bytes(data, "little") if len(data) == _COUNT else None for data in noted)
    if not are_known or any(count != storage[2] for count, storage in zip(counts, storages, strict=True)):
        return None
    end = storages[-1][1] + storages[-1][3] if storages else streams[-1].end
    return end if end <= file.seek(0, 2) else None


def place_legacy_tensors(streams: Sequence[Stream], tensors: Iterable[StoredTensor]) -> Iterator[StoredTensor]:
    """Yield tensors with their offsets in the file, as far as the sizes of the storages before them are known."""
    begins = {key: begin for key, begin, _, _ in _legacy_storages(streams)[0]}
    for placed in tensors:
        if placed.storage in begins:
            yield replace(placed, offset=begins[placed.storage] + placed.offset)
        else:
            yield replace(placed, storage=None)


class Recognized(Struct, frozen=True, kw_only=True):
    """A file's format, with the parts that were read to recognize it, so that they are not read again."""

    kind: WeightsFormat
    zip: TorchZip | None = None  # any zip at all
    pickles: tuple[Stream, ...] = ()  # of a legacy torch.save

    @property
    def saved(self) -> Stream | None:
        """The pickle of the object that torch.save wrote. Raises KeyError, NotZipError."""
        return self.zip.pickle("data.pkl") if self.zip else legacy_object(self.pickles)


def detect(file: BinaryIO) -> WeightsFormat:
    """Return the format of the weights in a seekable file, reading its headers only.

    The file is left at its beginning. A damaged file, or one of another format, is UNKNOWN.
    """
    found = recognize(file)
    file.seek(0)
    return found.kind


def recognize(file: BinaryIO, budget: OpcodeBudget | None = None) -> Recognized:
    """Return the format as `detect` does, with the directory or the pickles that showed it.

    The opcodes that it reads, and those of the directory's pickles later on, are taken from the budget.
    """
    budget = budget or OpcodeBudget()
    file.seek(0)
    head = file.read(16)
    if head.startswith(_LIBRARIES):
        return Recognized(kind=WeightsFormat.ELF)
    kind, archive = WeightsFormat.UNKNOWN, None
    pickles: tuple[Stream, ...] = ()
    if head.startswith(b"PK\x03\x04"):
        try:
            archive = TorchZip(file, budget)
            kind = archive.kind
        except NotZipError:
            archive = None
    elif head.startswith(LEGACY_STARTS) and is_legacy(file):
        pickles = tuple(read_legacy_pickles(file, budget))
        saved = legacy_object(pickles)
        kind = saved_kind(saved) if saved else WeightsFormat.UNKNOWN
    if kind is WeightsFormat.UNKNOWN:
        if is_safetensors(file):
            kind = WeightsFormat.SAFETENSORS
        elif is_onnx(file):
            kind = WeightsFormat.ONNX
    return Recognized(kind=kind, zip=archive, pickles=pickles)


def read_contents(file: BinaryIO, found: Recognized) -> WeightsSummary:
    """Read the headers of a seekable file that `recognize` has recognized; `problem` says what cannot be read."""
    try:
        match found.kind, found.zip:
            case ((WeightsFormat.STATE_DICT | WeightsFormat.PICKLED_MODULE), archive):
                saved = found.saved
                root = saved.root if saved else None
                placed = placed_tensors(root)
                in_zip = (in_folder(each, "data/") for each in placed)
                return WeightsSummary(
                    kind=found.kind,
                    tensors=tuple(in_zip if archive else place_legacy_tensors(found.pickles, placed)),
                    facts=_describe(root),
                    problem=f"its pickle is not read: {saved.problem}" if saved and saved.problem else None,
                )
            case WeightsFormat.TORCHSCRIPT, TorchZip() as archive:
                return WeightsSummary(kind=found.kind, tensors=script_tensors(archive), methods=script_methods(archive))
            case WeightsFormat.TORCH_EXPORT, TorchZip() as archive:
                return read_program(archive)
            case WeightsFormat.AOTI_PACKAGE, TorchZip() as archive:
                return WeightsSummary(kind=found.kind, facts=_package_facts(archive))
            case WeightsFormat.ONNX, _:
                return read_onnx(file)
            case WeightsFormat.SAFETENSORS, _:
                return read_safetensors(file)
            case WeightsFormat.ELF, _:
                return WeightsSummary(kind=found.kind, facts=library_facts(file))
    except (NotZipError, ProtobufError, KeyError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return WeightsSummary(kind=found.kind, problem=f"its headers cannot be read: {error}")
    return WeightsSummary(kind=found.kind)


def _describe(root: object) -> dict[str, str]:
    """Return facts about a saved object that is more than tensors by name: a model's class, a checkpoint's keys."""
    if isinstance(root, PickledCall) and isinstance(root.function, Global) and root.function.path not in ALLOWED:
        return {"class": root.function.path}
    match root:
        case PickledCall(items=[], args=(PickledDict() as content, *_)) | (
            PickledDict() | PickledCall() as content
        ):  # a Counter, any other
            items = content.items
        case _:
            return {}
    if all(isinstance(value, PickledCall) for _, value in items):
        return {}
    keys = [str(key) for key, _ in items[: _KEYS + 1] if isinstance(key, str | int)]
    return {"keys": ", ".join(keys[:_KEYS]) + (", …" if len(items) > _KEYS else "")}


def _package_facts(file: TorchZip) -> dict[str, str]:
    name = next((name for name in file.members if name.endswith("_metadata.json")), None)
    if name is None:
        return {}
    with file.open(name) as member:
        noted = msgspec.json.decode(member.read(_METADATA_LIMIT), type=dict[str, str])
    return {key.removeprefix("AOTI_").lower().replace("_", " "): value for key, value in noted.items() if value}
