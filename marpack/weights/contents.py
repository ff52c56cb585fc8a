"""A weights file's format, by its content and never by its name, and the facts in its headers."""

from typing import BinaryIO

import msgspec
from msgspec import Struct

from marpack.archive.zip_format import NotZipError
from marpack.weights import onnx
from marpack.weights.kind import WeightsFormat
from marpack.weights.onnx import ProtobufError
from marpack.weights.pickle import ALLOWED, Global, OpcodeBudget, PickledCall, PickledDict, Stream
from marpack.weights.tensors import WeightsSummary, in_folder, is_safetensors, placed_tensors, read_safetensors
from marpack.weights.torch_files import (
    TorchZip,
    is_legacy,
    legacy_object,
    library_facts,
    place_legacy_tensors,
    read_legacy_pickles,
    read_program,
    saved_kind,
    script_methods,
    script_tensors,
)

_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # Linux, macOS
_KEYS = 12  # of a checkpoint
_METADATA_LIMIT = 1 << 20  # bytes


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
    elif is_legacy(file, head):
        pickles = tuple(read_legacy_pickles(file, budget))
        saved = legacy_object(pickles)
        kind = saved_kind(saved) if saved else WeightsFormat.UNKNOWN
    if kind is WeightsFormat.UNKNOWN:
        if is_safetensors(file):
            kind = WeightsFormat.SAFETENSORS
        elif onnx.looks_like(file):
            kind = WeightsFormat.ONNX
    return Recognized(kind=kind, zip=archive, pickles=pickles)


def read_contents(file: BinaryIO, found: Recognized) -> WeightsSummary:
    """Read the headers of a seekable file that `recognize` has recognized; `problem` says what cannot be read."""
    try:
        return _read(file, found)
    except (NotZipError, ProtobufError, KeyError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return WeightsSummary(kind=found.kind, problem=f"its headers cannot be read: {error}")


def _read(file: BinaryIO, found: Recognized) -> WeightsSummary:
    match found.kind, found.zip:
        case ((WeightsFormat.STATE_DICT | WeightsFormat.PICKLED_MODULE), archive):
            saved = found.saved
            root = saved.root if saved else None
            placed = placed_tensors(root)
            return WeightsSummary(
                kind=found.kind,
                tensors=tuple(
                    (in_folder(each, "data/") for each in placed)
                    if archive
                    else place_legacy_tensors(found.pickles, placed)
                ),
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
            return onnx.read_header(file)
        case WeightsFormat.SAFETENSORS, _:
            return read_safetensors(file)
        case WeightsFormat.ELF, _:
            return WeightsSummary(kind=found.kind, facts=library_facts(file))
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
