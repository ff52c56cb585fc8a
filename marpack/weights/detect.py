"""Tell a weights file's format by its content, never by its name."""

from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from marpack.weights import legacy
from marpack.weights.kind import FORMATS, WeightsFormat
from marpack.weights.pickle_machine import OpcodeBudget
from marpack.weights.pickle_stream import Stream
from marpack.weights.torch_zip import TorchZip, saved_kind
from marpack.weights.zip_entries import NotZipError

_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # Linux, macOS


class Recognized(Struct, frozen=True, kw_only=True):
    """A file's format, with what was read to find it out, so that nobody reads it again."""

    kind: WeightsFormat
    zip: TorchZip | None = None  # any zip at all
    pickles: tuple[Stream, ...] = ()  # of a legacy torch.save


def detect(file: BinaryIO) -> WeightsFormat:
    """Return the format of the weights in a seekable file, reading its headers only.

    The file is left at its beginning. A file that is damaged, or none of the formats, is UNKNOWN.
    """
    found = recognize(file)
    file.seek(0)
    return found.kind


def recognize(file: BinaryIO, budget: OpcodeBudget | None = None) -> Recognized:
    """Return the format as `detect` does, with the directory or the pickles that showed it.

    The opcodes that it reads, and those of the directory's pickles later on, are taken from a budget, if one is given.
    """
    budget = budget or OpcodeBudget()
    file.seek(0)
    head = file.read(16)
    if head.startswith(_LIBRARIES):
        return Recognized(kind=WeightsFormat.ELF)
    found = Recognized(kind=WeightsFormat.UNKNOWN)
    if head.startswith(b"PK\x03\x04"):
        found = _recognize_zip(file, budget)
    elif legacy.looks_like(file, head):
        found = _recognize_legacy(file, budget)
    if found.kind is not WeightsFormat.UNKNOWN:
        return found
    known = (kind for kind, row in FORMATS.items() if row.reader and row.reader.looks_like(file))
    return replace(found, kind=next(known, WeightsFormat.UNKNOWN))


def _recognize_zip(file: BinaryIO, budget: OpcodeBudget) -> Recognized:
    try:
        found = TorchZip.read(file, budget)
    except NotZipError:
        return Recognized(kind=WeightsFormat.UNKNOWN)
    return Recognized(kind=found.kind, zip=found)


def _recognize_legacy(file: BinaryIO, budget: OpcodeBudget) -> Recognized:
    pickles = legacy.read_pickles(file, budget)
    saved = legacy.saved_object(pickles)
    return Recognized(kind=saved_kind(saved) if saved else WeightsFormat.UNKNOWN, pickles=tuple(pickles))
