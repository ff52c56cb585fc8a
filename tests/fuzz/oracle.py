"""The oracle: what marpack says of a pickle, compared with what Python's two unpicklers do with it."""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from fuzz.unpicklers import EXTENSIONS, Event, Load, Variant, load_all

from marpack.inspection.pickles import PickleVerdict, judge
from marpack.weights.pickle import INERT, Global, Stream, read_pickle

VARIANTS = [
    Variant(in_c=True, encoding="ASCII", has_buffers=False, kinds=0),
    Variant(in_c=True, encoding="latin1", has_buffers=True, kinds=1),
    Variant(in_c=True, encoding="bytes", has_buffers=False, kinds=1, is_buffered=True),
    Variant(in_c=False, encoding="ASCII", has_buffers=False, kinds=0),
    Variant(in_c=False, encoding="latin1", has_buffers=True, kinds=1),
    Variant(in_c=False, encoding="bytes", has_buffers=True, kinds=2),
]
_EXTENSION_OF = {key: f"extension_{code}" for code, key in EXTENSIONS.items()}


def some_variants(random: Random) -> list[Variant]:
    """Return a variant of each unpickler."""
    return [VARIANTS[int(random.random() * 3)], VARIANTS[3 + int(random.random() * 3)]]


def is_listed(spellings: tuple[tuple[str, str], ...], imports: Callable[[str, str], bool]) -> bool:
    """Return whether an import is among those that marpack lists, by one of its spellings or as an extension."""
    names = [*spellings, *(("copyreg", _EXTENSION_OF[key]) for key in spellings if key in _EXTENSION_OF)]
    return any(imports(module, name) for module, name in names)


def is_allowed(event: Event) -> bool:
    """Return whether a safe pickle may do this: call a listed name, and fill in what that returned."""
    if event.kind == "call":
        is_in_place = event.depth == 0 and not (event.args and event.path == "numpy.ndarray")
    else:
        is_in_place = event.kind == "read" or event.depth > 0
    return is_in_place and event.path in INERT


def compare(data: bytes, variants: list[Variant], seen: Counter[str] | None = None) -> Iterator[str]:
    """Yield the differences that make marpack's word on a bare file of pickles wrong; count what was loaded."""
    file, ours, seen = io.BytesIO(data), dict[int, Stream](), Counter() if seen is None else seen
    for variant in variants:
        for load in load_all(data, variant):
            stream = ours.get(load.begin) or read_pickle(file, load.begin)
            ours[load.begin] = stream
            count(load, seen)
            if problem := difference(load, stream):
                yield f"{problem} ({variant}, at {load.begin})"
            if stream.unfollowed:
                break


def count(load: Load, seen: Counter[str]) -> None:
    """Count a load by what it did."""
    seen["loads"] += 1
    seen["loads to the STOP"] += load.end is not None
    seen["loads that import"] += bool(load.imports)
    seen["loads that call"] += bool(load.events)


def difference(load: Load, stream: Stream) -> str | None:
    """Return how marpack's reading of one pickle falls short of a load of it."""
    if load.end is not None and not stream.unfollowed and (stream.problem or stream.end != load.end):
        return f"the load ends at {load.end}, the walk at {stream.end}: {stream.problem}"
    if not (stream.computed or stream.unfollowed):
        for spellings in load.imports:
            if not is_listed(spellings, lambda module, name: Global(module, name) in stream.imports):
                return f"the import of {spellings[-1]} is not listed"
    if not load.events:
        return None
    if stream.is_data:
        return f"data, but {load.events[0]}"
    if is_safe(stream) and not all(map(is_allowed, load.events)):
        return f"safe, but {next(event for event in load.events if not is_allowed(event))}"
    return None


def is_safe(stream: Stream) -> bool:
    """Return whether marpack calls a stream safe; a name beyond the list always needs trust."""
    if any(item.path not in INERT for item in stream.imports):
        return False
    return judge(stream, "stream").verdict is PickleVerdict.SAFE


def minimised(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Return as few bytes as still fail: pieces are left out, then bytes made simpler."""
    size = max(1, len(data) // 2)
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data
