"""YAML text → plain values with the lines of their keys, within limits; no tag makes an object."""

from enum import StrEnum
from typing import Any

import yaml
from msgspec import Struct

from marpack.errors import first_line

MAX_BYTES = 1 << 20  # of a document: marpack.yaml, a model config, for every command
MAX_DEPTH = 64
_MAX_KEY = 1024  # characters of a key without '?' (YAML 1.1, section 9.3.1)
_SERVER_DEPTH = 500  # Python's own recursion ends just below
MAX_EXPANDED = 50_000  # what aliases stand for: ten lines of YAML can otherwise mean a billion values

# Any: unrelated classes with one interface; libyaml's are ten times as fast, and not in every wheel
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_NOT_MADE = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")  # keys that have no value of their own
# What is never ended shows only later, often lines below; the mistake is where it begins.
_BEGUN = {
    "while scanning a simple key": "a key is followed by a colon and a space: 'key: value'",
    "while scanning a quoted scalar": "close the quotation mark that is opened here",
    "while parsing a flow sequence": "close the list that is opened here: [a, b]",
    "while parsing a flow mapping": "close the mapping that is opened here: {a: b}",
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
    line: int | None = None  # where what is wrong begins, counted from 1
    seen: int | None = None  # where the parser came upon it
    context: str = ""  # what the parser was at
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
        as_server: Whether it is read as the worker reads it: by Python's own parser, which refuses some tabs that
            libyaml takes, and however deep.
    """
    if len(text) > MAX_BYTES:
        return _failed(f"it is larger than {MAX_BYTES >> 10} KiB", YamlFault.EXCESS)
    kind = _PythonLoader if as_server else TEXT_LOADER if as_text else SAFE_LOADER
    try:
        extent = _measure(text, kind, deep=as_server)
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


class _PythonLoader(yaml.SafeLoader):
    """PyYAML's own loader, without its square of the depth: keys are noted in the order in which they may begin."""

    possible_simple_keys: dict[int, Any]  # Any: PyYAML has no types

    def next_possible_simple_key(self) -> int | None:
        """Return the number of the token that the first of the possible keys begins with."""
        first = next(iter(self.possible_simple_keys.values()), None)
        return None if first is None else first.token_number

    def stale_possible_simple_keys(self) -> None:
        """Forget keys that are too long by now, or began on another line: the first ones do so first."""
        keys = self.possible_simple_keys
        while keys:
            level, key = next(iter(keys.items()))
            if key.line == self.line and self.index - key.index <= _MAX_KEY:
                return
            if key.required:
                raise yaml.scanner.ScannerError(
                    "while scanning a simple key", key.mark, "could not find expected ':'", self.get_mark()
                )
            del keys[level]


def _failed(reason: str, fault: YamlFault = YamlFault.SYNTAX, line: int | None = None) -> YamlDocument:
    return YamlDocument(problem=YamlProblem(fault=fault, reason=reason, line=line))


def _measure(text: str | bytes, kind: Any, *, deep: bool) -> YamlDocument:  # Any: see SAFE_LOADER
    """Return a document's depth and its number of aliases, or the limit that it exceeds, before it is composed."""
    expanded = depth = aliases = 0
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    for count, event in enumerate(yaml.parse(text, Loader=kind)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        depth = depth if isinstance(event, _CLOSING) else max(depth, len(opened) + 1)
        if isinstance(event, _OPENING):
            opened.append((event.anchor, count + expanded))
        elif isinstance(event, _CLOSING):
            anchor, start = opened.pop()
            sizes[anchor] = count + expanded - start
        elif isinstance(event, yaml.AliasEvent):
            if not deep and any(event.anchor == anchor for anchor, _ in opened):
                return _failed(f"it refers to itself by *{event.anchor}", YamlFault.EXCESS, line)
            aliases += event.anchor in sizes
            expanded += sizes.get(event.anchor, 1)
        if len(opened) > _SERVER_DEPTH:
            return _failed("it is nested too deeply")
        if not deep and len(opened) > MAX_DEPTH:
            return _failed(f"it nests deeper than {MAX_DEPTH} levels", YamlFault.EXCESS, line)
        if expanded > MAX_EXPANDED:
            return _failed(f"it has aliases that stand for over {MAX_EXPANDED:,} values", YamlFault.EXCESS, line)
    return YamlDocument(depth=depth, aliases=aliases)


def _compose(loader: Any, extent: YamlDocument) -> YamlDocument:  # Any: see SAFE_LOADER
    node = loader.get_single_node()
    if node is None:
        return extent
    reader = _KeyReader(loader)
    reader.read(node, "")
    return YamlDocument(
        value=loader.construct_document(node),
        lines=reader.lines,
        texts=reader.texts,
        duplicates=tuple(reader.duplicates),
        depth=extent.depth,
        aliases=extent.aliases,
    )


class _KeyReader:
    """Reads the line and the text of every key, and the repeated keys."""

    def __init__(self, loader: Any) -> None:  # Any: see SAFE_LOADER
        self.lines: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.duplicates: list[RepeatedKey] = []
        self._loader = loader
        self._open: set[int] = set()  # nodes that are being looked at: an alias may stand within its own

    def read(self, node: yaml.Node, path: str) -> None:
        if isinstance(node, yaml.ScalarNode):
            self.texts.setdefault(path, node.value)
        if isinstance(node, yaml.ScalarNode) or id(node) in self._open:
            return
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._mapping(node, path)
        else:
            for index, value in enumerate(node.value):
                self._note(value, f"{path}[{index}]", value.start_mark.line + 1)
        self._open.remove(id(node))

    def _mapping(self, node: yaml.MappingNode, path: str) -> None:
        seen: dict[Any, int] = {}  # Any: a key may be a number or a date, too
        for key, value in node.value:
            made = isinstance(key, yaml.ScalarNode) and key.tag not in _NOT_MADE
            name = self._loader.construct_object(key) if made else "<<"
            line = key.start_mark.line + 1
            if made and name in seen:
                self.duplicates.append(RepeatedKey(str(name), seen[name], line))
            seen.setdefault(name, line)
            self._note(value, f"{path}.{name}" if path else str(name), line)

    def _note(self, node: yaml.Node, path: str, line: int) -> None:
        self.lines.setdefault(path, line)
        self.read(node, path)
