"""marpack.yaml with other samples: only what changes is written anew, comments and all else stay as they are.

Samples are written into a list with an item a line, or where there is none; any other spelling is left to its author.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from marpack.archive.staging import replace_file
from marpack.errors import ProjectError
from marpack.project.load import parse_document

_WIDE = 110  # columns; a longer line is laid out over several
_BY_HAND = "change the samples by hand"

Expected = Mapping[str, Any]  # Any: as in marpack.yaml
Edit = tuple[int, int, str]  # from, to: indices into the text; what stands there instead


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
        raise ProjectError(f"it cannot be read: {error}", where=str(file), code="unreadable-file") from error
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
        for start, end, new in reversed(list(_edits(text, root, samples))):  # the last first: indices stay true
            changed = changed[:start] + new + changed[end:]
        after = parse_document(changed, file=file).value
    except ProjectError as error:
        raise ProjectError(
            f"the samples cannot be written: {error.what}", where=error.where, hint=_BY_HAND, code="unsafe-edit"
        ) from error
    if repr(after) != repr(_meant(before, samples)):
        raise ProjectError(
            "the samples cannot be written without changing other lines", where=file, hint=_BY_HAND, code="unsafe-edit"
        )
    return changed


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
    return yaml.safe_load(flow({"value": value}))["value"]


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()


def _edits(text: str, root: yaml.Node | None, samples: Mapping[str, Expected]) -> Iterator[Edit]:
    """Yield what changes, in the order of the text."""
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ProjectError("the file is no mapping with a key a line")
    listed = _table(root).get("samples", (None, None))[1]
    if listed is not None and (not isinstance(listed, yaml.SequenceNode) or listed.flow_style):
        raise ProjectError("samples is no list with an item a line")
    items = {str(_table(item)["input"][1].value): item for item in listed.value} if listed else {}
    newline = "\r\n" if "\r\n" in text else "\n"
    for name in filter(samples.__contains__, items):
        yield _changed(text, items[name], samples[name], newline)
    new = [(name, expected) for name, expected in samples.items() if name not in items]
    if new:
        end = _line_end(text, _end(text, *root.value[-1]) if listed is None else _end(text, None, listed))
        lines = ["samples:", *_items(new, 2)] if listed is None else _items(new, listed.start_mark.column)
        yield end, end, newline.join(["", *lines])


def _changed(text: str, item: yaml.MappingNode, expected: Expected, newline: str) -> Edit:
    """Return the edit that gives a sample another expectation."""
    key, value = _table(item).get("expect", item.value[-1])
    start, end = key.end_mark.index, _end(text, key, value)
    if _says_only_status(value, expected):
        return _filled(text, value, {name: more for name, more in expected.items() if name != "status"}, newline)
    if key.value == "expect":
        if "\n" in text[start:end] and "#" in text[start:end]:
            raise ProjectError("there are comments within the expectation")
        return start, end, f": {flow(expected)}"
    if item.flow_style:
        return end, end, f", expect: {flow(expected)}"
    end = _line_end(text, end)
    return end, end, newline.join(["", *_block("expect", expected, item.start_mark.column)])


def _says_only_status(value: yaml.Node, expected: Expected) -> bool:
    """Say whether a node expects the status that is expected still, and nothing else."""
    if not isinstance(value, yaml.MappingNode):
        return False
    items = [(key.value, item.value) for key, item in value.value]
    return items == [("status", str(expected.get("status")))] and len(expected) > 1


def _filled(text: str, value: yaml.MappingNode, more: Expected, newline: str) -> Edit:
    """Return the edit that adds to an expectation, whose comments stay."""
    key, last = value.value[-1]
    end = last.end_mark.index
    if value.flow_style:
        return end, end, f", {flow(dict(more))[1:-1]}"
    end = _line_end(text, end)
    indent = " " * key.start_mark.column
    return end, end, "".join(f"{newline}{indent}{flow({name: item})[1:-1]}" for name, item in more.items())


def _table(node: yaml.MappingNode) -> dict[Any, tuple[yaml.Node, yaml.Node]]:  # Any: keys are text in what can be read
    return {key.value: (key, value) for key, value in node.value}


def _end(text: str, key: yaml.Node | None, node: yaml.Node) -> int:
    """Return the index behind a node's last character that says something."""
    if key is not None and node.start_mark.index < key.end_mark.index:
        raise ProjectError(f"{key.value} stands for another place of the file (*)")
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        inner = node.value[-1]
        return _end(text, *inner) if isinstance(inner, tuple) else _end(text, None, inner)
    end: int = node.end_mark.index
    return len(text[:end].rstrip()) if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end


def _line_end(text: str, index: int) -> int:
    """Return the index of the end of a line, before its line break."""
    end = text.find("\n", index)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == "\r" else end


def _items(new: list[tuple[str, Expected]], indent: int) -> Iterator[str]:
    """Yield the lines of new samples."""
    for name, expected in new:
        line = f"{' ' * indent}- {flow({'input': name, 'expect': expected})}"
        if len(line) <= _WIDE:
            yield line
            continue
        yield f"{' ' * indent}- {flow({'input': name})[1:-1]}"
        yield from _block("expect", expected, indent + 2)


def _block(key: str, expected: Expected, indent: int) -> Iterator[str]:
    """Yield the lines of an expectation: one, or if that is too long, one for each of its keys."""
    line = f"{' ' * indent}{key}: {flow(dict(expected))}"
    if len(line) <= _WIDE:
        yield line
        return
    yield f"{' ' * indent}{key}:"
    yield from (f"{' ' * (indent + 2)}{flow({name: value})[1:-1]}" for name, value in expected.items())
