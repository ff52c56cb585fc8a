"""Kinds of files: the formats of weights, with their loaders and advice, and native and generated code."""

import re
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from marpack.archive.bytesource import read_at

if TYPE_CHECKING:
    from marpack.archive.zip_format import ZipEntry

_PE_OFFSET = 0x3C  # bytes from the start of a DOS header to the offset of the PE header
_PYC_MAGIC = range(3000, 4000)  # Python 3's; every release has its own
_PYC_2 = range(50_000, 65_536)  # Python 1.5 to 2.7
_PYC_HEADER = 16  # bytes
_NATIVE = (
    b"\x7fELF",  # ELF
    b"\xfe\xed\xfa\xce",  # Mach-O
    b"\xfe\xed\xfa\xcf",  # Mach-O
    b"\xce\xfa\xed\xfe",  # Mach-O
    b"\xcf\xfa\xed\xfe",  # Mach-O
    b"\xca\xfe\xba\xbe",  # Mach-O or Java class
    b"\xbe\xba\xfe\xca",  # Mach-O
    b"\xca\xfe\xba\xbf",  # Mach-O
    b"!<arch>\n",  # object archive
    b"\0asm\x01\0\0\0",  # WebAssembly
    b"BC\xc0\xde",  # LLVM bitcode
    b"\xde\xc0\x17\x0b",  # LLVM bitcode
    b"\x50\xed\x55\xba",  # CUDA fat binary
    b"dex\n0",  # Dalvik
)
_NAMES = re.compile(
    r"\.(?:so(?:\.\d+)*|pyd|dll|dylib|exe|o|cubin|fatbin|hsaco|metallib|engine|trt|node|wasm)\Z", re.IGNORECASE
)
_PYTHON_NAMES = re.compile(r"\.py[co]\Z", re.IGNORECASE)
# torch looks members up without regard to case.
_AOTI = re.compile(r"(?:^|/)data/aotinductor/.", re.IGNORECASE)
_GENERATED = re.compile(r"\.(?:py|c|cc|cpp|cxx|h|hpp|cu|cuh|s|ptx|ll|metal|spv)\Z", re.IGNORECASE)
_PACKAGE = re.compile(r"(?:^|/)\.data/extern_modules\Z", re.IGNORECASE)
# What torch.export.load takes for a program, under the folder of the first member.
_EXPORT = re.compile(r"(?:[^/]*/archive_format|serialized_exported_program\.json)\Z", re.IGNORECASE)
FIRST_BYTES = frozenset(magic[:1] for magic in _NATIVE) | {b"M"}  # with which native code may begin


class WeightsFormat(StrEnum):
    """A weights file's format; the value is how messages name it."""

    TORCHSCRIPT = "TorchScript"
    STATE_DICT = "state_dict"  # torch.save of plain containers and tensors
    PICKLED_MODULE = "whole pickled model"  # torch.save of an nn.Module: needs its classes and trust
    SAFETENSORS = "safetensors"
    ONNX = "ONNX"
    TORCH_EXPORT = "torch.export program"
    AOTI_PACKAGE = "AOTInductor package"
    ELF = "shared library"  # AOTInductor's .so
    UNKNOWN = "unknown"


class FormatRow(Struct, frozen=True, kw_only=True):
    """One format."""

    title: str  # with its article
    suffixes: tuple[str, ...] = ()  # the one that the server wants comes first
    is_model: bool = False  # marpack loads it as a model by itself
    is_state: bool = False  # marpack loads it as tensors for a model's class
    needs_class: bool = False
    marpack_only: bool = False  # the server has no loader for it
    served_by: str | None = None  # BaseHandler's method that loads every file of the suffix
    as_model: str | None = None  # the hint where the server needs a model
    as_state: str | None = None  # the hint where the server needs a state_dict for a model file


_OWN_CODE = "Remove model_file (--model-file), as {} has its own code, or save model.state_dict()."
_SAVE_SCRIPT = "Set target: marpack, which runs it, or save TorchScript: torch.jit.trace(model, x).save(path)"
FORMATS = {
    WeightsFormat.TORCHSCRIPT: FormatRow(
        title="TorchScript",
        suffixes=(".pt",),
        is_model=True,
        served_by="_load_torchscript_model",
        as_model="Rename the file to end in .pt.",
        as_state=_OWN_CODE.format("TorchScript"),
    ),
    WeightsFormat.STATE_DICT: FormatRow(
        title="a state_dict",
        suffixes=(".pt", ".pth", ".bin", ".ckpt"),
        is_state=True,
        needs_class=True,
        as_model="Add the model's class as model_file, or save TorchScript: torch.jit.trace(model, x).save(path)",
    ),
    WeightsFormat.PICKLED_MODULE: FormatRow(
        title="a whole pickled model",
        is_model=True,
        needs_class=True,
        as_model="Save TorchScript as .pt, or save model.state_dict() and add the model's class as model_file.",
        as_state="Save model.state_dict() instead of the model.",
    ),
    WeightsFormat.SAFETENSORS: FormatRow(
        title="a safetensors file",
        suffixes=(".safetensors",),
        is_state=True,
        needs_class=True,
        marpack_only=True,
        as_model="Add the model's class as model_file, and save model.state_dict() with torch.save.",
        as_state="Save model.state_dict() with torch.save, or set target: marpack, which reads safetensors.",
    ),
    WeightsFormat.ONNX: FormatRow(
        title="ONNX",
        suffixes=(".onnx",),
        is_model=True,
        served_by="initialize",
        as_model="Rename the file to end in .onnx.",
        as_state=_OWN_CODE.format("ONNX"),
    ),
    WeightsFormat.TORCH_EXPORT: FormatRow(
        title="a torch.export program",
        suffixes=(".pt2",),
        is_model=True,
        marpack_only=True,
        as_model=_SAVE_SCRIPT,
        as_state="Save model.state_dict() instead of the exported program.",
    ),
    WeightsFormat.AOTI_PACKAGE: FormatRow(
        title="an AOTInductor package",
        suffixes=(".pt2",),
        is_model=True,
        marpack_only=True,
        as_model=_SAVE_SCRIPT,
        as_state="Save model.state_dict() instead of the compiled package.",
    ),
    WeightsFormat.ELF: FormatRow(
        title="a shared library",
        suffixes=(".so",),
        is_model=True,
        served_by="_load_torch_export_aot_compile",
        as_model="Rename the file to end in .so, and add to the config: pt2: {export: {aot_compile: true}}",
        as_state="Save model.state_dict() instead of the compiled library.",
    ),
    WeightsFormat.UNKNOWN: FormatRow(title="of no known format", suffixes=(".gguf",), marpack_only=True),
}
# Of all weights files, whether marpack reads them or not.
SUFFIXES = tuple(dict.fromkeys(suffix for row in FORMATS.values() for suffix in row.suffixes))
# Suffix → the format that the server expects in such a file without a model file.
SERVED = {row.suffixes[0]: kind for kind, row in FORMATS.items() if row.served_by}


class ProgramKind(StrEnum):
    """A kind of code that an archive can contain beside its handler."""

    NATIVE = "native code"
    BYTECODE = "Python bytecode"
    GENERATED = "generated code"
    AOTI_PACKAGE = "AOTInductor package"
    TORCH_EXPORT = "torch.export program"
    TORCH_PACKAGE = "torch.package"


class Program(Struct, frozen=True):
    """A file, or a member of one, that is code: native, generated, or run by its loader."""

    where: str  # "model.pt2!model/data/aotinductor/model/a.so"
    kind: ProgramKind


def program_kind(name: str, head: bytes, file: BinaryIO) -> ProgramKind | None:
    """Return the kind of program that a file is, by its name or its first 64 bytes or more; None for another file."""
    pe_header = int.from_bytes(head[_PE_OFFSET : _PE_OFFSET + 4], "little")  # of a DOS header
    if head.startswith(_NATIVE) or (head.startswith(b"MZ") and read_at(file, pe_header, 4) == b"PE\0\0"):
        return ProgramKind.NATIVE
    magic, flags = int.from_bytes(head[:2], "little"), int.from_bytes(head[4:8], "little")
    if len(head) >= _PYC_HEADER and head[2:4] == b"\r\n" and (magic in _PYC_2 or (magic in _PYC_MAGIC and flags <= 3)):
        return ProgramKind.BYTECODE
    return named_kind(name)


def named_kind(name: str) -> ProgramKind | None:
    """Return the kind of program that a file's name says it is; None for another name."""
    if _NAMES.search(name):
        return ProgramKind.NATIVE
    if _PYTHON_NAMES.search(name):
        return ProgramKind.BYTECODE
    return ProgramKind.GENERATED if _AOTI.search(name) and _GENERATED.search(name) else None


def package_kind(entries: "tuple[ZipEntry, ...]") -> ProgramKind | None:
    """Return the kind of program that a zip is, by the names of its members; None for another zip."""
    names = [entry.name for entry in entries]
    if any(map(_PACKAGE.search, names)):  # PackageImporter reads it first; TorchScript also has `.data/version`
        return ProgramKind.TORCH_PACKAGE
    if any(map(_AOTI.search, names)):
        return ProgramKind.AOTI_PACKAGE
    return ProgramKind.TORCH_EXPORT if any(map(_EXPORT.match, names)) else None
