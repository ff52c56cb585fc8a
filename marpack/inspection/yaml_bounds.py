"""How much a YAML document may ask for: told from its events, before any of it is composed."""

from typing import Any

import yaml
from msgspec import Struct

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_EXPANDED = 50_000  # what aliases stand for: ten lines of YAML can otherwise mean a billion values

# Any: unrelated classes with one interface; libyaml's are ten times as fast, and not in every wheel
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class Excess(Struct, frozen=True):
    """What is too much about a document."""

    line: int  # counted from 1
    reason: str  # goes on from the document's name: "nests deeper than …"


def excess(document: str | bytes) -> Excess | None:
    """Return what is too much about a document, or None; raises yaml.YAMLError where it is no YAML."""
    expanded = 0
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    for count, event in enumerate(yaml.parse(document, Loader=SAFE_LOADER)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, _OPENING):
            opened.append((event.anchor, count + expanded))
        elif isinstance(event, _CLOSING):
            anchor, start = opened.pop()
            sizes[anchor] = count + expanded - start
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in opened):
                return Excess(line, f"refers to itself by *{event.anchor}")
            expanded += sizes.get(event.anchor, 1)
        if len(opened) > MAX_DEPTH:
            return Excess(line, f"nests deeper than {MAX_DEPTH} levels")
        if expanded > MAX_EXPANDED:
            return Excess(line, f"has aliases that stand for over {MAX_EXPANDED:,} values")
    return None
