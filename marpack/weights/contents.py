"""What a weights file holds, whatever its format: tensors, methods, inputs and outputs, from its headers only."""

from typing import BinaryIO

import msgspec
from msgspec import Struct

from marpack.weights import legacy, onnx, safetensors, torchscript
from marpack.weights.detect import Recognized
from marpack.weights.exported import library_facts
from marpack.weights.kind import Kind
from marpack.weights.onnx import Port, ProtobufError
from marpack.weights.pickle_machine import Global, Made, Table
from marpack.weights.tensors import Placed, in_folder, placed_tensors
from marpack.weights.torch_zip import TorchZip
from marpack.weights.torchscript import ScriptMethod
from marpack.weights.weights_only import ALLOWED
from marpack.weights.zip_entries import NotZipError

_FRUGAL = 64 * 1024  # bytes of a program's description that are worth fetching
_KEYS = 12  # of a checkpoint


class Contents(Struct, frozen=True, kw_only=True):
    """What the headers say."""

    kind: Kind
    tensors: tuple[Placed, ...] = ()
    methods: tuple[ScriptMethod, ...] = ()  # TorchScript
    inputs: tuple[Port, ...] = ()  # ONNX and torch.export
    outputs: tuple[Port, ...] = ()
    metadata: dict[str, str] = {}  # the author's own: safetensors, ONNX
    facts: dict[str, str] = {}  # the format's own: "opset", "machine", "torch"
    problem: str | None = None  # why the headers could not be read to their end


def read_contents(file: BinaryIO, found: Recognized, *, frugal: bool = False) -> Contents:
    """Read the headers of a file that `recognize` knew; what cannot be read is said in `problem`.

    Args:
        file: Seekable.
        found: What it was recognized as.
        frugal: Leave out what takes much reading to learn, as it is fetched from elsewhere.
    """
    try:
        return _read(file, found, frugal=frugal)
    except (NotZipError, ProtobufError, KeyError, ValueError, msgspec.MsgspecError) as error:
        return Contents(kind=found.kind, problem=f"its headers cannot be read: {error}")


def _read(file: BinaryIO, found: Recognized, *, frugal: bool) -> Contents:
    match found.kind:
        case Kind.STATE_DICT | Kind.PICKLED_MODULE:
            return _saved(found)
        case Kind.TORCHSCRIPT if found.zip:
            methods = torchscript.script_methods(found.zip)
            return Contents(kind=found.kind, tensors=torchscript.script_tensors(found.zip), methods=methods)
        case Kind.TORCH_EXPORT if found.zip:
            return _exported(found.zip, frugal=frugal)
        case Kind.AOTI_PACKAGE if found.zip:
            return _package(found.zip)
        case Kind.SAFETENSORS:
            header = safetensors.read_header(file)
            return Contents(kind=found.kind, tensors=header.tensors, metadata=header.metadata)
        case Kind.ONNX:
            return _onnx(file)
        case Kind.ELF:
            return Contents(kind=found.kind, facts=library_facts(file))
    return Contents(kind=found.kind)


def _saved(found: Recognized) -> Contents:
    saved = found.zip.pickle("data.pkl") if found.zip else legacy.saved_object(found.pickles)
    tensors = tuple(placed_tensors(saved.root if saved else None))
    if found.zip:
        tensors = tuple(in_folder(placed, "data/") for placed in tensors)
    else:
        tensors = tuple(legacy.with_places(found.pickles, tensors))
    problem = saved.problem if saved else None
    return Contents(
        kind=found.kind,
        tensors=tensors,
        facts=_shape(saved.root if saved else None),
        problem=problem and f"its pickle is not read: {problem}",
    )


def _shape(root: object) -> dict[str, str]:
    """Tell what was saved, where it is more than tensors by name: a model's class, a checkpoint's keys."""
    if isinstance(root, Made) and isinstance(root.function, Global) and root.function.path not in ALLOWED:
        return {"class": root.function.path}
    match root:
        case Made(items=[], args=(Table() as content, *_)) | (Table() | Made() as content):  # a Counter, any other
            items = content.items
        case _:
            return {}
    if all(isinstance(value, Made) for _, value in items):
        return {}
    keys = [str(key) for key, _ in items[: _KEYS + 1] if isinstance(key, str | int)]
    return {"keys": ", ".join(keys[:_KEYS]) + (", …" if len(items) > _KEYS else "")}


def _exported(file: TorchZip, *, frugal: bool) -> Contents:
    from marpack.weights.exported import read_program  # noqa: PLC0415 - a dozen types that few archives need

    program = read_program(file, most=_FRUGAL) if frugal else read_program(file)
    facts = {"torch": program.torch_version} if program.torch_version else {}
    if not program.inputs and frugal:
        facts["inputs"] = "not fetched: the graph's description is long"
    return Contents(
        kind=Kind.TORCH_EXPORT,
        tensors=program.tensors,
        inputs=program.inputs,
        outputs=program.outputs,
        facts=facts,
    )


def _package(file: TorchZip) -> Contents:
    """Return an AOTInductor package's facts, as its compiler noted them beside the library."""
    name = next((name for name in file.members if name.endswith("_metadata.json")), None)
    if name is None:
        return Contents(kind=Kind.AOTI_PACKAGE)
    with file.open(name) as member:
        noted = msgspec.json.decode(member.read(1 << 20), type=dict[str, str])
    facts = {key.removeprefix("AOTI_").lower().replace("_", " "): value for key, value in noted.items() if value}
    return Contents(kind=Kind.AOTI_PACKAGE, facts=facts)


def _onnx(file: BinaryIO) -> Contents:
    header = onnx.read_header(file)
    opsets = (f"{domain or 'ai.onnx'} {version}" for domain, version in header.opsets.items())
    facts = {"IR version": str(header.ir_version), "opsets": ", ".join(opsets), "nodes": f"{header.nodes:,}"}
    if header.producer:
        facts["producer"] = header.producer
    if header.external:
        facts["external data"] = "some tensors lie in other files"
    return Contents(
        kind=Kind.ONNX,
        tensors=header.tensors,
        inputs=header.inputs,
        outputs=header.outputs,
        metadata=header.metadata,
        facts=facts,
    )
