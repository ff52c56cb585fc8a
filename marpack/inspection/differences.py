"""What two archives differ in, as data: the result of `diff`, and the shape of its JSON."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct


class Change(StrEnum):
    """How two things differ."""

    ADDED = "added"  # only in the second archive
    REMOVED = "removed"  # only in the first
    CHANGED = "changed"
    RESHAPED = "reshaped"  # tensors
    RETYPED = "re-typed"


class Difference(Struct, frozen=True, kw_only=True):
    """One difference."""

    name: str  # "model.modelVersion", "handler.py", "pt2.compile.enable", "3", "layer.0.weight"
    change: Change
    before: Any = None  # Any: JSON; of a member size and digest, of a tensor dtype and shape
    after: Any = None  # Any: as above


class TensorDiff(Struct, frozen=True, kw_only=True):
    """The tensors of one weights file that is in both archives."""

    member: str
    other: str  # its name in the second archive
    same: int  # tensors that are equal to the last bit
    differences: tuple[Difference, ...] = ()
    uncompared: int = 0  # tensors whose numbers do not lie in the file so that they can be compared
    problem: str | None = None  # why its tensors are not known


class Diff(Struct, frozen=True, kw_only=True):
    """Everything that differs; nothing at all when they are the `same`."""

    before: str  # the first archive, as it was named
    after: str
    same: bool
    manifest: tuple[Difference, ...] = ()
    recorded: tuple[Difference, ...] = ()  # in MAR-INF/marpack.json beside the members: provenance, target, samples
    members: tuple[Difference, ...] = ()
    config: tuple[Difference, ...] = ()
    labels: tuple[Difference, ...] = ()
    tensors: tuple[TensorDiff, ...] = ()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:  # Any: JSON
    """Compare two mappings key by key, in the first one's order, then what only the second has."""
    found = []
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            found.append(Difference(name=name, change=Change.REMOVED, before=before[name]))
        elif name not in before:
            found.append(Difference(name=name, change=Change.ADDED, after=after[name]))
        elif before[name] != after[name]:
            found.append(Difference(name=name, change=Change.CHANGED, before=before[name], after=after[name]))
    return tuple(found)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # Any: JSON
    """Yield the leaves of nested mappings under dotted names; a list is a leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value
