"""The formats of weights files, with their suffixes, loaders and advice."""

from enum import StrEnum

from msgspec import Struct


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

    @property
    def served_suffix(self) -> str | None:
        """The suffix that the server recognizes it by, if any."""
        return None if self.marpack_only else next(iter(self.suffixes), None)


_OWN_CODE = "drop model_file (--model-file), {} has its own code; or save model.state_dict()"
FORMATS = {
    WeightsFormat.TORCHSCRIPT: FormatRow(
        title="TorchScript",
        suffixes=(".pt",),
        is_model=True,
        served_by="_load_torchscript_model",
        as_model="name the file .pt",
        as_state=_OWN_CODE.format("TorchScript"),
    ),
    WeightsFormat.STATE_DICT: FormatRow(
        title="a state_dict",
        suffixes=(".pt", ".pth", ".bin", ".ckpt"),
        is_state=True,
        needs_class=True,
        as_model="add the model's class as model_file, or save TorchScript: torch.jit.trace(model, x).save(path)",
    ),
    WeightsFormat.PICKLED_MODULE: FormatRow(
        title="a whole pickled model",
        is_model=True,
        needs_class=True,
        as_model="save TorchScript as .pt, or model.state_dict() with the model's class as model_file",
        as_state="save model.state_dict(), not the model",
    ),
    WeightsFormat.SAFETENSORS: FormatRow(
        title="a safetensors file",
        suffixes=(".safetensors",),
        is_state=True,
        needs_class=True,
        marpack_only=True,
        as_model="add the model's class as model_file, and save model.state_dict() with torch.save",
        as_state="save model.state_dict() with torch.save, or set target: marpack, which reads safetensors",
    ),
    WeightsFormat.ONNX: FormatRow(
        title="ONNX",
        suffixes=(".onnx",),
        is_model=True,
        served_by="initialize",
        as_model="name the file .onnx",
        as_state=_OWN_CODE.format("ONNX"),
    ),
    WeightsFormat.TORCH_EXPORT: FormatRow(
        title="a torch.export program",
        suffixes=(".pt2",),
        is_model=True,
        marpack_only=True,
        as_model="save TorchScript: torch.jit.trace(model, x).save(path); or set target: marpack, which runs them",
        as_state="save model.state_dict(), not the exported program",
    ),
    WeightsFormat.AOTI_PACKAGE: FormatRow(
        title="an AOTInductor package",
        suffixes=(".pt2",),
        is_model=True,
        marpack_only=True,
        as_model="save TorchScript: torch.jit.trace(model, x).save(path); or set target: marpack, which runs them",
        as_state="save model.state_dict(), not the compiled package",
    ),
    WeightsFormat.ELF: FormatRow(
        title="a shared library",
        suffixes=(".so",),
        is_model=True,
        served_by="_load_torch_export_aot_compile",
        as_model="name the file .so and add pt2: {export: {aot_compile: true}} to the config",
        as_state="save model.state_dict(), not the compiled library",
    ),
    WeightsFormat.UNKNOWN: FormatRow(title="of no known format", suffixes=(".gguf",), marpack_only=True),
}
# Of all weights files, whether marpack reads them or not.
SUFFIXES = tuple(dict.fromkeys(suffix for row in FORMATS.values() for suffix in row.suffixes))
# Suffix → the format that the server expects in such a file without a model file.
SERVED = {row.served_suffix: kind for kind, row in FORMATS.items() if row.served_by}
