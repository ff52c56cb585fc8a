"""The formats that weights come in, and what is known of each besides its content."""

from enum import StrEnum
from typing import BinaryIO, Protocol

from msgspec import Struct

from marpack.weights import onnx, safetensors
from marpack.weights.tensors import WeightsHeader


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


class HeaderReader(Protocol):
    """A module of this package that tells one format by its own marks."""

    def looks_like(self, file: BinaryIO, /) -> bool:
        """Tell whether a file is of this format."""

    def read_header(self, file: BinaryIO, /) -> WeightsHeader:
        """Read the header. Raises ValueError, or another error that `read_contents` knows."""


class FormatRow(Struct, frozen=True, kw_only=True):
    """One format. A loader is "module:function" of worker/loaders, and is given a Job."""

    title: str  # with its article
    suffixes: tuple[str, ...] = ()  # the one that the server wants comes first
    reader: HeaderReader | None = None  # None: what is inside the zip or the pickle tells
    model: str | None = None  # the loader, of a file that is a model by itself
    state: str | None = None  # the loader, of tensors for a model's class
    needs_class: bool = False
    marpack_only: bool = False  # the server has no loader for it
    served_by: str | None = None  # BaseHandler's method that loads every file of the suffix

    @property
    def served_suffix(self) -> str | None:
        """The suffix under which the server takes it, if it tells it by that."""
        return None if self.marpack_only else next(iter(self.suffixes), None)


FORMATS = {
    WeightsFormat.TORCHSCRIPT: FormatRow(
        title="TorchScript", suffixes=(".pt",), model="torchscript:load_job", served_by="_load_torchscript_model"
    ),
    WeightsFormat.STATE_DICT: FormatRow(
        title="a state_dict", suffixes=(".pt", ".pth", ".bin", ".ckpt"), state="torch_save:load_job", needs_class=True
    ),
    WeightsFormat.PICKLED_MODULE: FormatRow(
        title="a whole pickled model", model="torch_save:load_job", needs_class=True
    ),
    WeightsFormat.SAFETENSORS: FormatRow(
        title="a safetensors file",
        suffixes=(".safetensors",),
        reader=safetensors,
        state="safetensors:load_job",
        needs_class=True,
        marpack_only=True,
    ),
    WeightsFormat.ONNX: FormatRow(
        title="ONNX", suffixes=(".onnx",), reader=onnx, model="onnx:load_job", served_by="initialize"
    ),
    WeightsFormat.TORCH_EXPORT: FormatRow(
        title="a torch.export program", suffixes=(".pt2",), model="pt2:load_exported", marpack_only=True
    ),
    WeightsFormat.AOTI_PACKAGE: FormatRow(
        title="an AOTInductor package", suffixes=(".pt2",), model="pt2:load_package", marpack_only=True
    ),
    WeightsFormat.ELF: FormatRow(
        title="a shared library", suffixes=(".so",), model="pt2:load_aoti", served_by="_load_torch_export_aot_compile"
    ),
    WeightsFormat.UNKNOWN: FormatRow(title="of no format that is known", suffixes=(".gguf",), marpack_only=True),
}
# Of files that hold weights, whoever can read them.
SUFFIXES = tuple(dict.fromkeys(suffix for row in FORMATS.values() for suffix in row.suffixes))
# Suffix → what the server takes such a file for, where there is no model file.
SERVED = {row.served_suffix: kind for kind, row in FORMATS.items() if row.served_by}
