"""YAML text → plain values with the lines of their keys, within limits; no tag makes an object."""

from enum import StrEnum
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import first_line

MAX_BYTES = 1 << 20  # of a document: marpack.yaml, a model config, for every command
_SLOW = 64 << 10  # bytes; Python's own parser takes a second for these
MAX_DEPTH = 64
MAX_EXPANDED = 50_000  # what aliases stand for: ten lines of YAML can otherwise mean a billion values

# Any: unrelated classes with one interface; libyaml's are ten times as fast, and not in every wheel
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NOT_MADE = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")  # keys that have no value of their own
# What is never ended shows only later, often lines below; the mistake is where it begins.
_BEGUN = {
    "while scanning a simple key": "Write a colon and a space after the key: 'key: value'",
    "while scanning a quoted scalar": "Add the closing quotation mark.",
    "while parsing a flow sequence": "Add the closing bracket: [a, b]",
    "while parsing a flow mapping": "Add the closing brace: {a: b}",
}


class YamlFault(StrEnum):
    """The kind of problem in a document."""

    SYNTAX = "syntax"
    VALUE = "value"  # an object's tag, a key that no mapping can have
    EXCESS = "excess"  # small to write, endless to expand


class YamlProblem(Struct, frozen=True, kw_only=True):
    """Why YAML cannot be read."""

    fault: YamlFault
    reason: str
    line: int | None = None  # of the problem's beginning, counted from 1
    seen: int | None = None  # where the parser found it
    context: str = ""  # of the parser
    hint: str | None = None


class RepeatedKey(Struct, frozen=True):
    """A key that occurs again in one mapping."""

    name: str
    first: int  # line, counted from 1
    line: int


class YamlDocument(Struct, frozen=True, kw_only=True):
    """A document; keys of `lines` and `texts` are dotted paths such as `files[0].from`."""

    value: Any = None  # Any: whatever the author wrote
    lines: dict[str, int] = {}  # counted from 1
    texts: dict[str, str] = {}  # scalars as they are written: 1.10 stays 1.10
    duplicates: tuple[RepeatedKey, ...] = ()
    depth: int = 0
    aliases: int = 0  # of lists and mappings
    problem: YamlProblem | None = None


def read_yaml(text: str | bytes, *, as_text: bool = False, as_server: bool = False) -> YamlDocument:
    """Parse one YAML document with a safe loader; errors are returned, never raised.

    Args:
        text: The document.
        as_text: Whether every scalar stays the text it is written as: `no` is a label, not false.
        as_server: Whether Python's own parser reads up to 64 KiB, as in the worker: libyaml accepts other documents.
    """
    if len(text) > MAX_BYTES:
        return _failed(f"it is larger than {MAX_BYTES >> 10} KiB", YamlFault.EXCESS)
    kind = yaml.SafeLoader if as_server and len(text) <= _SLOW else TEXT_LOADER if as_text else SAFE_LOADER
    try:
        extent = _measure(text, kind)
        return extent if extent.problem else _compose(kind(text), extent)
    except yaml.MarkedYAMLError as error:
        found, hint = error.problem_mark or error.context_mark, _BEGUN.get(error.context or "")
        mark = error.context_mark if hint and error.context_mark else found
        is_value = isinstance(error, yaml.constructor.ConstructorError)
        problem = YamlProblem(
            fault=YamlFault.VALUE if is_value else YamlFault.SYNTAX,
            reason=error.problem or "this is not YAML",
            line=mark.line + 1 if mark else None,
            seen=found.line + 1 if found else None,
            context=error.context or "",
            hint=hint,
        )
        return YamlDocument(problem=problem)
    except RecursionError:
        return _failed("it is nested too deeply")
    except (LookupError, AttributeError):
        return _failed("a value is not of the type that its tag names")
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:  # an impossible date, an endless number
        return _failed(first_line(error))


def _failed(reason: str, fault: YamlFault = YamlFault.SYNTAX, line: int | None = None) -> YamlDocument:
    return YamlDocument(problem=YamlProblem(fault=fault, reason=reason, line=line))


def _measure(text: str | bytes, kind: Any) -> YamlDocument:  # Any: see SAFE_LOADER
    """Return a document's depth and its number of aliases, or the limit that it exceeds, before it is composed."""
    expanded = depth = aliases = 0
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    for count, event in enumerate(yaml.parse(text, Loader=kind)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, start = opened.pop()
            sizes[anchor] = count + expanded - start
            continue
        depth = max(depth, len(opened) + 1)
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count + expanded))
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in opened):
                return _failed(f"it refers to itself by *{event.anchor}", YamlFault.EXCESS, line)
            aliases += event.anchor in sizes
            expanded += sizes.get(event.anchor, 1)
        if len(opened) > MAX_DEPTH:
            return _failed(f"it nests deeper than {MAX_DEPTH} levels", YamlFault.EXCESS, line)
        if expanded > MAX_EXPANDED:
            return _failed(f"it has aliases that stand for over {MAX_EXPANDED:,} values", YamlFault.EXCESS, line)
    return YamlDocument(depth=depth, aliases=aliases)


def _compose(loader: Any, extent: YamlDocument) -> YamlDocument:  # Any: see SAFE_LOADER
    """Return the document with its value, and with the line and the text of every key."""
    lines: dict[str, int] = {}
    texts: dict[str, str] = {}
    duplicates: list[RepeatedKey] = []

    def note(path: str, node: yaml.Node, line: int) -> None:
        lines.setdefault(path, line)
        read(path, node)

    def read(path: str, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            texts.setdefault(path, node.value)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                note(f"{path}[{index}]", value, value.start_mark.line + 1)
        else:
            seen: dict[Any, int] = {}  # Any: a key may be a number or a date
            for key, value in node.value:
                is_plain = isinstance(key, yaml.ScalarNode) and key.tag not in _NOT_MADE
                name = loader.construct_object(key) if is_plain else "<<"
                line = key.start_mark.line + 1
                if is_plain and name in seen:
                    duplicates.append(RepeatedKey(str(name), seen[name], line))
                seen.setdefault(name, line)
                note(f"{path}.{name}" if path else str(name), value, line)

    node = loader.get_single_node()
    if node is None:
        return extent
    read("", node)
    value = loader.construct_document(node)
    return replace(extent, value=value, lines=lines, texts=texts, duplicates=tuple(duplicates))
