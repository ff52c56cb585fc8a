"""What a weights file holds, whatever its format: tensors, methods, inputs and outputs, from its headers only."""

from typing import BinaryIO

import msgspec
from msgspec import Struct

from marpack.weights import legacy, onnx, torchscript
from marpack.weights.detect import Recognized
from marpack.weights.exported import library_facts
from marpack.weights.kind import FORMATS, WeightsFormat
from marpack.weights.onnx import Port, ProtobufError
from marpack.weights.pickle_stream import Global, PickledCall, PickledDict
from marpack.weights.tensors import StoredTensor, in_folder, placed_tensors
from marpack.weights.torch_zip import TorchZip
from marpack.weights.torchscript import ScriptMethod
from marpack.weights.weights_only import ALLOWED
from marpack.weights.zip_entries import NotZipError

_KEYS = 12  # of a checkpoint


class WeightsSummary(Struct, frozen=True, kw_only=True):
    """What the headers say."""

    kind: WeightsFormat
    tensors: tuple[StoredTensor, ...] = ()
    methods: tuple[ScriptMethod, ...] = ()  # TorchScript
    inputs: tuple[Port, ...] = ()  # ONNX and torch.export
    outputs: tuple[Port, ...] = ()
    metadata: dict[str, str] = {}  # the author's own: safetensors, ONNX
    facts: dict[str, str] = {}  # the format's own: "opset", "machine", "torch"
    problem: str | None = None  # why the headers could not be read to their end


def read_contents(file: BinaryIO, found: Recognized) -> WeightsSummary:
    """Read the headers of a file that `recognize` knew; what cannot be read is said in `problem`.

    Args:
        file: Seekable.
        found: What it was recognized as.
    """
    try:
        return _read(file, found)
    except (NotZipError, ProtobufError, KeyError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return WeightsSummary(kind=found.kind, problem=f"its headers cannot be read: {error}")


def _read(file: BinaryIO, found: Recognized) -> WeightsSummary:
    match found.kind:
        case WeightsFormat.STATE_DICT | WeightsFormat.PICKLED_MODULE:
            return _saved(found)
        case WeightsFormat.TORCHSCRIPT if found.zip:
            methods = torchscript.script_methods(found.zip)
            return WeightsSummary(kind=found.kind, tensors=torchscript.script_tensors(found.zip), methods=methods)
        case WeightsFormat.TORCH_EXPORT if found.zip:
            return _exported(found.zip)
        case WeightsFormat.AOTI_PACKAGE if found.zip:
            return _package(found.zip)
        case WeightsFormat.ONNX:
            return _onnx(file)
        case WeightsFormat.ELF:
            return WeightsSummary(kind=found.kind, facts=library_facts(file))
    reader = FORMATS[found.kind].reader
    if reader is None:
        return WeightsSummary(kind=found.kind)
    header = reader.read_header(file)
    return WeightsSummary(kind=found.kind, tensors=header.tensors, metadata=header.metadata)


def _saved(found: Recognized) -> WeightsSummary:
    saved = found.zip.pickle("data.pkl") if found.zip else legacy.saved_object(found.pickles)
    tensors = tuple(placed_tensors(saved.root if saved else None))
    if found.zip:
        tensors = tuple(in_folder(placed, "data/") for placed in tensors)
    else:
        tensors = tuple(legacy.with_places(found.pickles, tensors))
    problem = saved.problem if saved else None
    return WeightsSummary(
        kind=found.kind,
        tensors=tensors,
        facts=_shape(saved.root if saved else None),
        problem=problem and f"its pickle is not read: {problem}",
    )


def _shape(root: object) -> dict[str, str]:
    """Tell what was saved, where it is more than tensors by name: a model's class, a checkpoint's keys."""
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


def _exported(file: TorchZip) -> WeightsSummary:
    from marpack.weights.exported import read_program  # noqa: PLC0415 - a dozen types that few archives need

    program = read_program(file)
    facts = {"torch": program.torch_version} if program.torch_version else {}
    return WeightsSummary(
        kind=WeightsFormat.TORCH_EXPORT,
        tensors=program.tensors,
        inputs=program.inputs,
        outputs=program.outputs,
        facts=facts,
    )


def _package(file: TorchZip) -> WeightsSummary:
    """Return an AOTInductor package's facts, as its compiler noted them beside the library."""
    name = next((name for name in file.members if name.endswith("_metadata.json")), None)
    if name is None:
        return WeightsSummary(kind=WeightsFormat.AOTI_PACKAGE)
    with file.open(name) as member:
        noted = msgspec.json.decode(member.read(1 << 20), type=dict[str, str])
    facts = {key.removeprefix("AOTI_").lower().replace("_", " "): value for key, value in noted.items() if value}
    return WeightsSummary(kind=WeightsFormat.AOTI_PACKAGE, facts=facts)


def _onnx(file: BinaryIO) -> WeightsSummary:
    header = onnx.read_header(file)
    opsets = (f"{domain or 'ai.onnx'} {version}" for domain, version in header.opsets.items())
    facts = {"IR version": str(header.ir_version), "opsets": ", ".join(opsets), "nodes": f"{header.nodes:,}"}
    if header.producer:
        facts["producer"] = header.producer
    if header.external:
        facts["external data"] = "some tensors lie in other files"
    return WeightsSummary(
        kind=WeightsFormat.ONNX,
        tensors=header.tensors,
        inputs=header.inputs,
        outputs=header.outputs,
        metadata=header.metadata,
        facts=facts,
    )
