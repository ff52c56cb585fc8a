"""Tell a weights file's format by its content, never by its name."""

from typing import BinaryIO

from marpack.weights import legacy, onnx_header, safetensors_header
from marpack.weights.kinds import Kind
from marpack.weights.torch_zip import TorchZip, saved_kind
from marpack.weights.zipdir import NotZipError

__all__ = ["Kind", "detect"]

_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # Linux, macOS


def detect(file: BinaryIO) -> Kind:
    """Return the format of the weights in a seekable file, reading its headers only.

    The file is left at its beginning. A file that is damaged, or none of the formats, is UNKNOWN.
    """
    file.seek(0)
    head = file.read(16)
    found = _by_head(file, head)
    file.seek(0)
    return found


def _by_head(file: BinaryIO, head: bytes) -> Kind:
    if head.startswith(_LIBRARIES):
        return Kind.ELF
    if head.startswith(b"PK\x03\x04"):
        return _zip_kind(file)
    if legacy.looks_like(file, head):
        stream = legacy.saved_object(legacy.read_pickles(file))
        return saved_kind(stream) if stream else Kind.UNKNOWN
    if safetensors_header.looks_like(file):
        return Kind.SAFETENSORS
    return Kind.ONNX if onnx_header.looks_like(file) else Kind.UNKNOWN


def _zip_kind(file: BinaryIO) -> Kind:
    try:
        return TorchZip.read(file).kind
    except NotZipError:
        return Kind.UNKNOWN
