"""TorchScript: the methods of a scripted or traced model, from the code text that it carries."""

import re
from itertools import islice

from msgspec import Struct

from marpack.weights.pickle_stream import Global, PickledCall
from marpack.weights.tensors import StoredTensor, in_folder, placed_tensors
from marpack.weights.torch_zip import TorchZip

_CODE_LIMIT = 8 * 1024 * 1024  # bytes of one file of code
_METHOD = re.compile(r"^  def (\w+)\(", re.MULTILINE)
_MAX_LENGTH = 8192  # characters of a signature
_MAX_COUNT = 1000  # methods
_SELF = re.compile(r"^\w+: [\w.]+(?:, *|(?=\)))")


class ScriptMethod(Struct, frozen=True):
    """A method that the model answers to."""

    name: str
    signature: str  # "(x: Tensor) -> Tensor"


def script_methods(file: TorchZip) -> tuple[ScriptMethod, ...]:
    """Return the methods of the model's own class, `forward` first. Raises KeyError, NotZipError."""
    root = file.pickle("data.pkl").root
    if not isinstance(root, PickledCall) or not isinstance(root.function, Global):
        return ()
    owner = root.function
    with file.open(f"code/{owner.module.replace('.', '/')}.py") as code:
        text = code.read(_CODE_LIMIT).decode("utf-8", "replace")
    _, _, rest = text.partition(f"class {owner.name}(")
    body = re.split(r"^(?=class )", rest, maxsplit=1, flags=re.MULTILINE)[0]
    matches = _METHOD.finditer(body)
    found = [_method(match[1], body[match.end() : match.end() + _MAX_LENGTH]) for match in islice(matches, _MAX_COUNT)]
    return tuple(sorted(found, key=lambda method: (method.name != "forward", method.name)))


def script_tensors(file: TorchZip) -> tuple[StoredTensor, ...]:
    """Return a model's parameters and buffers, then the constants that freezing turned some of them into.

    Raises KeyError, NotZipError.
    """
    constants = placed_tensors(file.pickle("constants.pkl").root)
    return (
        *(in_folder(placed, "data/") for placed in placed_tensors(file.pickle("data.pkl").root)),
        *(in_folder(placed, "constants/", "constants.") for placed in constants),
    )


def _method(name: str, text: str) -> ScriptMethod:
    """Return a method from the text behind its opening bracket: on one line, without self and common prefixes."""
    signature, _, _ = text.partition(":\n")
    args = _SELF.sub("", " ".join(signature.split()))
    return ScriptMethod(name, f"({args}".replace("__torch__.", ""))
