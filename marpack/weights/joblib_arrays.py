"""What joblib writes into a pickle: behind each array's wrapper, the array itself, raw."""

import re
from math import prod

from marpack.weights.values import Made, Table

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
_DTYPE = re.compile(r"[a-zA-Z](\d+)")
_WIDTHS = {"U": 4}  # bytes per counted unit; 1 for all others


def raw_length(state: object) -> int | None:
    """Return how many bytes follow a wrapper of this state; None for objects, which follow as a pickle of their own.

    Raises ValueError when the state does not say.
    """
    if not isinstance(state, Table):
        state = Table([])
    match state.get("shape"), state.get("dtype"):
        case tuple(shape), Made(args=(str(code), *_)):
            width = _DTYPE.fullmatch(code)
        case _:
            raise ValueError("no shape or dtype")
    if code.startswith("O"):
        return None
    if width is None or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError("an unknown dtype or shape")
    return prod(shape) * int(width[1]) * _WIDTHS.get(code[0], 1)


def is_padded(state: object) -> bool:
    """Tell whether a byte that counts padding, and the padding, stand before the array."""
    return isinstance(state, Table) and state.get("numpy_array_alignment_bytes") is not None
