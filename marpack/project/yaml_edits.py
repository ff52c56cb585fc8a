"""marpack.yaml with other samples, edited in place: comments, order and quotes stay."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from marpack.archive.staging import replace_file
from marpack.errors import ProjectError, first_line
from marpack.project.load import parse_document

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

_MAX_WIDTH = 110  # columns of a sample on one line

Expected = dict[str, Any]  # Any: as in marpack.yaml


class _Dumper(yaml.SafeDumper):
    """Writes text that contains line breaks (NEL and its like, too) on one line, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = '"' if text.splitlines() not in ([], [text]) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def flow(value: Any) -> str:  # Any: plain YAML values
    """Return a value as YAML on one line."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()


def update_samples(file: Path, samples: Mapping[str, Expected]) -> None:
    """Write expectations into a marpack.yaml, and add the samples that it does not list yet.

    Args:
        file: A marpack.yaml that can be read.
        samples: Expectation by the sample's `input`, as in the file.

    Raises ProjectError, with the file unchanged, if it cannot be read, changed safely, or written.
    """
    try:
        data = file.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"it cannot be read: {error}", where=str(file), code="unreadable-file") from error
    changed = with_samples(text, samples, file=str(file))
    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    try:
        replace_file(file, mark + changed.encode())
    except OSError as error:
        raise ProjectError(f"it cannot be written: {error.strerror}", where=str(file)) from error


def with_samples(text: str, samples: Mapping[str, Expected], *, file: str) -> str:
    """Return the text of a marpack.yaml with these expectations; see `update_samples`."""
    if not samples:
        return text
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - needed only where a file is edited

    before = parse_document(text, file=file).value
    known = {sample["input"]: sample for sample in before.get("samples", ())}
    for name, expected in samples.items():
        known[name] = known.get(name, {"input": name}) | {"expect": expected}
    try:
        changed = _edit(text.replace("\r\n", "\n"), samples)
        after = _canonical(parse_document(changed, file=file).value)
        is_meant = after == _canonical(before | {"samples": list(known.values())})
        why = "" if is_meant and _comments(changed) == _comments(text) else "other values or comments would change"
    except (YAMLError, ProjectError) as error:
        why = first_line(error)
    if why:
        hint = "change the samples by hand"
        raise ProjectError(f"the samples cannot be written: {why}", where=file, hint=hint, code="unsafe-edit")
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _edit(text: str, samples: Mapping[str, Expected]) -> str:
    """Return the text with these expectations, by a parser that keeps comments, order and quotes."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - as above
    from ruamel.yaml.comments import CommentedMap, CommentedSeq  # noqa: PLC0415 - as above

    editor = YAML()
    editor.preserve_quotes, editor.width, editor.explicit_start = True, 1 << 20, text.startswith("---")
    root = editor.load(text)
    # Indent every list as the file indents its first one.
    lists = (each for each in root.values() if isinstance(each, CommentedSeq) and each and not each.fa.flow_style())
    dash, indent = next(((each.lc.col, each.lc.item(0)[1]) for each in lists), (2, 4))
    editor.indent(mapping=2, sequence=indent, offset=dash)
    known = {sample["input"]: sample for sample in root.setdefault("samples", CommentedSeq())}
    for name, expected in samples.items():
        # Loaded from PyYAML's spelling: ruamel writes YAML 1.2, in which `no` is text.
        new = editor.load(line := flow({"input": name, "expect": expected}))
        if len(line) + indent > _MAX_WIDTH:
            new.fa.set_block_style()
        if len(flow(expected)) + indent > _MAX_WIDTH:
            new["expect"].fa.set_block_style()
        old = known[name].get("expect") if name in known else None
        if name not in known:
            root["samples"].append(new)
        elif isinstance(old, CommentedMap):
            _replace_values(old, new["expect"])
        else:
            known[name]["expect"] = new["expect"]
    output = io.StringIO()
    editor.dump(root, output)
    return output.getvalue()


def _replace_values(old: "CommentedMap", new: "CommentedMap") -> None:
    """Give a mapping the values of another one; the comments of removed keys move to the last key."""
    removed = [key for key in old if key not in new]
    moved = [token for key in removed if (token := old.ca.items.get(key, [None] * 3)[2]) is not None]
    for key in removed:
        del old[key]
    old.update(new)
    for token in moved:
        places = old.ca.items.setdefault(list(old)[-1], [None] * 4)
        if places[2] is None:
            places[2] = token
        else:
            places[2].value += token.value


def _canonical(value: Any) -> str:  # Any: plain YAML values
    """Return one text for equal values: 1, 1.0 and true differ, the order of keys does not count."""
    return yaml.dump(value, Dumper=_Dumper)


def _comments(text: str) -> list[str]:
    """Return the comments of a YAML text, sorted."""
    for token in yaml.scan(text):
        if isinstance(token, yaml.ScalarToken):
            start, end = token.start_mark.index, token.end_mark.index
            text = text[:start] + "x" * (end - start) + text[end:]
    return sorted(comment.rstrip() for comment in re.findall(r"(?m)(?:^|(?<=\s))#.*$", text))
