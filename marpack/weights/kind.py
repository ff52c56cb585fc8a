"""Tell a weights file's format by its content, never by its name."""

from enum import StrEnum
from typing import BinaryIO


class Kind(StrEnum):
    """The formats that weights come in; the value is how messages name them."""

    TORCHSCRIPT = "TorchScript"
    STATE_DICT = "state_dict"  # torch.save of plain containers and tensors
    PICKLED_MODULE = "whole pickled model"  # torch.save of an nn.Module: needs its classes and trust
    SAFETENSORS = "safetensors"
    ONNX = "ONNX"
    TORCH_EXPORT = "torch.export program"
    AOTI_PACKAGE = "AOTInductor package"
    ELF = "shared library"  # AOTInductor's .so
    UNKNOWN = "unknown"


def detect(file: BinaryIO) -> Kind:
    """Return the format of the weights in a seekable file, reading its headers only."""
    raise NotImplementedError
