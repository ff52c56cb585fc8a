"""The tensors of two weights files compared: by name, shape, dtype and the digest of their numbers."""

from typing import Any, BinaryIO

from msgspec import Struct

from marpack.inspection.differences import Change, Difference, TensorDiff
from marpack.weights.contents import Contents, read_contents
from marpack.weights.detect import Recognized, recognize
from marpack.weights.digests import tensor_digest
from marpack.weights.kind import Kind
from marpack.weights.tensors import Placed


class _Opened(Struct, frozen=True):
    file: BinaryIO
    found: Recognized
    contents: Contents
    tensors: dict[str, Placed]


def compare_tensors(member: str, before: BinaryIO, other: str, after: BinaryIO) -> TensorDiff | None:
    """Compare the tensors of two files, whatever formats they are in; None when neither is weights."""
    old, new = _opened(before), _opened(after)
    if old.found.kind is Kind.UNKNOWN and new.found.kind is Kind.UNKNOWN:
        return None
    problem = old.contents.problem or new.contents.problem
    same = uncompared = 0
    found = []
    for name in dict.fromkeys([*old.tensors, *new.tensors]):
        verdict = _compare(name, old, new)
        if isinstance(verdict, Difference):
            found.append(verdict)
        elif verdict:
            same += 1
        else:
            uncompared += 1
    return TensorDiff(
        member=member, other=other, same=same, differences=tuple(found), uncompared=uncompared, problem=problem
    )


def _opened(file: BinaryIO) -> _Opened:
    found = recognize(file)
    contents = read_contents(file, found)
    return _Opened(file, found, contents, {placed.tensor.name: placed for placed in contents.tensors})


def _compare(name: str, old: _Opened, new: _Opened) -> Difference | bool:
    """Return how a tensor differs, or whether its numbers are known to be the same."""
    before, after = old.tensors.get(name), new.tensors.get(name)
    if before is None or after is None:
        change = Change.REMOVED if before else Change.ADDED
        return Difference(name=name, change=change, before=_described(before), after=_described(after))
    for change, differs in (
        (Change.RESHAPED, before.tensor.shape != after.tensor.shape),
        (Change.RETYPED, before.tensor.dtype != after.tensor.dtype),
    ):
        if differs:
            return Difference(name=name, change=change, before=_described(before), after=_described(after))
    first = tensor_digest(old.file, old.found, before)
    second = tensor_digest(new.file, new.found, after)
    if first is None or second is None:
        return False
    if first == second:
        return True
    return Difference(
        name=name,
        change=Change.CHANGED,
        before=_described(before) | {"sha256": first},
        after=_described(after) | {"sha256": second},
    )


def _described(placed: Placed | None) -> Any:  # Any: JSON
    return None if placed is None else {"dtype": placed.tensor.dtype, "shape": list(placed.tensor.shape)}
