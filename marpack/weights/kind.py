"""The formats that weights come in."""

from enum import StrEnum


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
