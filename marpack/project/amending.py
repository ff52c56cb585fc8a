"""marpack.yaml with other samples: only what changes is written anew, comments and all else stay as they are."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from marpack.archive.staging import replace_file
from marpack.errors import ProjectError
from marpack.inspection.yaml_document import parse_document

_WIDE = 110  # columns; a longer line is laid out over several
_BY_HAND = "change the samples by hand"

Expected = Mapping[str, Any]  # Any: as in marpack.yaml


class _Edit(Struct, frozen=True):
    """One replacement in the text."""

    start: int
    end: int
    text: str


class _Dumper(yaml.SafeDumper):
    """Writes text with line ends in it on one line."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text.splitlines() not in ([], [text]) else None  # NEL and its like are line ends, too
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)


def amend(file: Path, samples: Mapping[str, Expected]) -> None:
    """Write the expectations of some samples into a marpack.yaml, adding the samples that are not there yet.

    Args:
        file: A marpack.yaml that can be read.
        samples: Expectation by the sample's `input`, as it stands, or is to stand, in the file.

    Raises ProjectError, with the file as it was, if it cannot be read, changed safely, or written.
    """
    try:
        data = file.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"it cannot be read: {error}", where=str(file)) from error
    changed = amended(text, samples, file=str(file))
    bom = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    try:
        replace_file(file, bom + changed.encode())
    except OSError as error:
        raise ProjectError(f"it cannot be written: {error.strerror}", where=str(file)) from error


def amended(text: str, samples: Mapping[str, Expected], *, file: str) -> str:
    """Return the text of a marpack.yaml with these expectations; see `amend`."""
    if not samples:
        return text
    before = parse_document(text, file=file).value
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    changed = text
    try:
        for edit in _last_first(_Amending(text, root).edits(samples)):
            changed = changed[: edit.start] + edit.text + changed[edit.end :]
        after = parse_document(changed, file=file).value
    except ProjectError as error:
        raise ProjectError(f"the samples cannot be written: {error.what}", where=error.where, hint=_BY_HAND) from error
    if repr(after) != repr(_meant(before, samples)):
        raise ProjectError("the samples cannot be written without changing other lines", where=file, hint=_BY_HAND)
    return changed


def _last_first(edits: Iterable[_Edit]) -> list[_Edit]:
    """Return edits from the end of the text on; of those at one place, the first comes to stand first."""
    ordered = sorted(enumerate(edits), key=lambda item: (item[1].start, item[0]), reverse=True)
    return [edit for _, edit in ordered]


def _meant(value: dict[str, Any], samples: Mapping[str, Expected]) -> dict[str, Any]:
    """Return what the document must say afterwards."""
    listed = [dict(sample) for sample in value.get("samples", ())]
    known = {sample["input"] for sample in listed}
    for sample in listed:
        if sample["input"] in samples:
            sample["expect"] = _plain(samples[sample["input"]])
    new = [{"input": name, "expect": _plain(expected)} for name, expected in samples.items() if name not in known]
    return value | {"samples": listed + new}


def _plain(value: Any) -> Any:
    """Return a value as YAML gives it back."""
    return yaml.safe_load(_flow({"value": value}))["value"]


def _flow(value: Any) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.strip()


class _Amending:
    """One document's text with its nodes, and the edits that change its samples."""

    def __init__(self, text: str, root: yaml.Node | None) -> None:
        if not isinstance(root, yaml.MappingNode):
            raise ProjectError("it is no mapping of keys to values")
        self._text = text
        self._root = root
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def edits(self, samples: Mapping[str, Expected]) -> Iterator[_Edit]:
        listed = _value(self._root, "samples")
        items = listed.value if isinstance(listed, yaml.SequenceNode) else []
        known = set()
        for item in items:
            name = str(item.value[_place(item, "input")][1].value)
            known.add(name)
            if name in samples:
                yield from self._changed(item, samples[name])
        new = [(name, expected) for name, expected in samples.items() if name not in known]
        if new:
            yield self._added(listed, new)

    def _changed(self, item: yaml.MappingNode, expected: Expected) -> Iterator[_Edit]:
        """Yield the edits that give a sample another expectation."""
        place = _place(item, "expect")
        key, value = item.value[place]
        end = self._end(key, value)
        if key.value == "expect":
            yield _Edit(key.end_mark.index, end, f": {_flow(expected)}")
            yield from self._kept(item, list(self._comments(key.end_mark.index, end)))
        elif item.flow_style:
            yield _Edit(end, end, f", expect: {_flow(expected)}")
        else:
            end = self._line_end(end)
            yield _Edit(end, end, self._newline.join(["", *_block("expect", expected, item.start_mark.column)]))

    def _kept(self, item: yaml.MappingNode, comments: list[str]) -> Iterator[_Edit]:
        """Yield the edit that puts comments above their sample."""
        if not comments:
            return
        start = self._text.rfind("\n", 0, item.start_mark.index) + 1
        before = self._text[start : item.start_mark.index]
        if before.strip() != "-":
            raise ProjectError("there are comments within the expectation")
        indent = before[: len(before) - len(before.lstrip())]
        yield _Edit(start, start, "".join(f"{indent}{comment}{self._newline}" for comment in comments))

    def _added(self, listed: yaml.Node | None, new: list[tuple[str, Expected]]) -> _Edit:
        """Return the edit that adds samples."""
        items = [{"input": name, "expect": expected} for name, expected in new]
        if listed is None:
            end = self._end(*self._root.value[-1])
            if self._root.flow_style:
                return _Edit(end, end, f", samples: {_flow(items)}")
            end = self._line_end(end)
            return _Edit(end, end, self._newline.join(["", "samples:", *_items(new, 2)]))
        if not isinstance(listed, yaml.SequenceNode):
            raise ProjectError("samples is no list")
        start, end = listed.start_mark.index, listed.end_mark.index
        if not listed.flow_style:
            end = self._line_end(self._end(None, listed))
            return _Edit(end, end, self._newline.join(["", *_items(new, listed.start_mark.column)]))
        if listed.value or self._root.flow_style:
            end = self._end(None, listed.value[-1]) if listed.value else start + 1
            return _Edit(end, end, (", " if listed.value else "") + _flow(items)[1:-1])
        start = len(self._text[:start].rstrip(" "))
        return _Edit(start, end, self._newline.join(["", *_items(new, 2)]))

    def _end(self, key: yaml.Node | None, node: yaml.Node) -> int:
        """Return the index behind a node's last character that says something."""
        if key is not None and node.start_mark.index < key.end_mark.index:
            raise ProjectError(f"{key.value} stands for another place of the file (*)")
        if isinstance(node, yaml.ScalarNode):
            end = node.end_mark.index
            while node.style in ("|", ">") and self._text[end - 1 : end].isspace():
                end -= 1
            return end
        if not isinstance(node, yaml.MappingNode | yaml.SequenceNode) or node.flow_style:
            return int(node.end_mark.index)
        inner = node.value[-1]
        return self._end(*inner) if isinstance(inner, tuple) else self._end(None, inner)

    def _line_end(self, index: int) -> int:
        """Return the index of the end of a line, before its line break."""
        end = self._text.find("\n", index)
        end = len(self._text) if end < 0 else end
        return end - 1 if self._text[end - 1 : end] == "\r" else end

    def _comments(self, start: int, end: int) -> Iterator[str]:
        """Yield the comments between two places."""
        tokens = [(token.start_mark.index, token.end_mark.index) for token in yaml.scan(self._text) if _says(token)]
        inside = [(begin, stop) for begin, stop in tokens if start <= begin < end]
        before = start
        for begin, stop in [*inside, (end, end)]:
            for line in self._text[before:begin].splitlines():
                _, mark, comment = line.partition("#")
                if mark:
                    yield f"#{comment}".rstrip()
            before = max(before, stop)


def _says(token: yaml.Token) -> bool:
    return bool(token.end_mark.index > token.start_mark.index)


def _value(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((value for key, value in node.value if key.value == name), None)


def _place(node: yaml.MappingNode, name: str) -> int:
    """Return the place of a key in a mapping, or that of the last one."""
    names = [key.value for key, _ in node.value]
    return names.index(name) if name in names else len(names) - 1


def _items(new: list[tuple[str, Expected]], indent: int) -> Iterator[str]:
    """Yield the lines of new samples."""
    for name, expected in new:
        line = f"{' ' * indent}- {_flow({'input': name, 'expect': expected})}"
        if len(line) <= _WIDE:
            yield line
            continue
        yield f"{' ' * indent}- {_flow({'input': name})[1:-1]}"
        yield from _block("expect", expected, indent + 2)


def _block(key: str, expected: Expected, indent: int) -> Iterator[str]:
    """Yield the lines of an expectation: one, or if that is too long, one for each of its keys."""
    line = f"{' ' * indent}{key}: {_flow(dict(expected))}"
    if len(line) <= _WIDE:
        yield line
        return
    yield f"{' ' * indent}{key}:"
    yield from (f"{' ' * (indent + 2)}{_flow({name: value})[1:-1]}" for name, value in expected.items())
