"""YAML text within bounds, as values that know their lines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from marpack.errors import ProjectError

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_EXPANDED = 50_000  # what aliases stand for: ten lines of YAML can otherwise mean a billion values

# Any: unrelated classes with one interface; libyaml's are ten times as fast, and not in every wheel
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class LimitViolation(Struct, frozen=True):
    """What is too much about a document."""

    line: int  # counted from 1
    reason: str  # goes on from the document's name: "nests deeper than …"


def excess(document: str | bytes) -> LimitViolation | None:
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
                return LimitViolation(line, f"refers to itself by *{event.anchor}")
            expanded += sizes.get(event.anchor, 1)
        if len(opened) > MAX_DEPTH:
            return LimitViolation(line, f"nests deeper than {MAX_DEPTH} levels")
        if expanded > MAX_EXPANDED:
            return LimitViolation(line, f"has aliases that stand for over {MAX_EXPANDED:,} values")
    return None


class Document(Struct, frozen=True, kw_only=True):
    """One document's values; keys of `lines` and `texts` are dotted paths such as `files[0].from`."""

    file: str
    value: Any  # Any: whatever the author wrote
    lines: dict[str, int]  # counted from 1
    texts: dict[str, str]  # scalars as they are written: 1.10 stays 1.10

    def place(self, key: str = "") -> str:
        """Return where a key stands, as `path:line: key`."""
        line = self.lines.get(key)
        return self.file + (f":{line}" if line else "") + (f": {key}" if key else "")


def read_document(path: Path) -> Document:
    """Read one YAML file with the safe loader.

    Raises ProjectError if it cannot be read, is no YAML, repeats a key, or is too deep or too large.
    """
    return parse_document(_text_of(path), file=str(path))


def parse_document(text: str, *, file: str, as_text: bool = False) -> Document:
    """Parse one YAML document; see `read_document`.

    Args:
        text: The document.
        file: Its path, for messages.
        as_text: Whether every scalar stays the text it is written as: `no` is a label, not false.
    """
    try:
        _check_bounds(text, file)
        loader = (TEXT_LOADER if as_text else SAFE_LOADER)(text)
        node = loader.get_single_node()
        lines, texts = _survey(node, file)
        value = loader.construct_document(node) if node is not None else None
    except yaml.constructor.ConstructorError as error:
        where = f"{file}:{_line(error.problem_mark)}"
        raise ProjectError(f"this is no plain YAML value: {error.problem}", where=where) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ProjectError(f"this is not valid YAML: {_first_line(error)}", where=file) from None
    return Document(file=file, value=value, lines=lines, texts=texts)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProjectError(f"it cannot be read: {error.strerror}", where=str(path)) from None
    if len(data) > MAX_BYTES:
        raise ProjectError(f"it is larger than {MAX_BYTES // 1024} KiB", where=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ProjectError("this is not a text file in UTF-8", where=str(path), hint="save it as UTF-8 text")
    return text


def _check_bounds(text: str, file: str) -> None:
    """Refuse a document that is too deep or whose aliases stand for too much, before anything is composed."""
    if found := excess(text):
        raise ProjectError(f"the document asks for too much: it {found.reason}", where=f"{file}:{found.line}")


def _survey(root: yaml.Node | None, file: str) -> tuple[dict[str, int], dict[str, str]]:
    """Note the line and the written text of every key, refusing a key that is there twice."""
    lines: dict[str, int] = {}
    texts: dict[str, str] = {}
    for path, line, node in _nodes(root, "", file) if root is not None else ():
        lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            texts.setdefault(path, node.value)
    return lines, texts


def _nodes(node: yaml.Node, path: str, file: str) -> Iterator[tuple[str, int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise ProjectError(
                    f"the key {name} is there twice, first on line {seen[name]}",
                    where=f"{file}:{line}",
                    hint="keep one of them",
                )
            seen[name] = line
            inner = f"{path}.{name}" if path else name
            yield inner, line, value
            yield from _nodes(value, inner, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            inner = f"{path}[{index}]"
            yield inner, value.start_mark.line + 1, value
            yield from _nodes(value, inner, file)


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> ProjectError:
    line = _line(error.problem_mark or error.context_mark)
    rows = text.splitlines()
    row = rows[line - 1] if line <= len(rows) else ""
    hint = "indent with spaces: YAML takes no tabs" if "\t" in row[: len(row) - len(row.lstrip()) + 1] else None
    context = f" {error.context}" if error.context else ""
    return ProjectError(f"this is not valid YAML: {error.problem}{context}", where=f"{file}:{line}", hint=hint)


def _line(mark: Any) -> int:  # Any: the two loaders have marks of their own, and the stubs let them be None
    return int(mark.line) + 1 if mark else 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
