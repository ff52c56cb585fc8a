"""marpack.yaml with other samples, edited in place: comments, order and quotes stay."""

import io
import re
import secrets
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from marpack.archive.staging import replace_file
from marpack.errors import ProjectError, convert_os_errors, first_line
from marpack.inspection.yaml_document import YamlDocument
from marpack.project.load import parse_document, read_text_file

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

_MAX_WIDTH = 110  # columns of a sample on one line

Expected = dict[str, Any]  # Any: as in marpack.yaml


class _Dumper(yaml.SafeDumper):
    """Writes text with line breaks (also NEL and similar ones) on one line, and no anchors."""

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
    """Write expectations, by the `input` of their samples, into a marpack.yaml; add samples that it does not list.

    Raises ProjectError, with the file unchanged, if it cannot be read, changed safely, or written.
    """
    changed = with_samples(read_text_file(file), samples, file=str(file))
    with convert_os_errors(ProjectError, "the file cannot be written", where=str(file)):
        mark = BOM_UTF8 if file.read_bytes().startswith(BOM_UTF8) else b""
        replace_file(file, mark + changed.encode())


def with_samples(text: str, samples: Mapping[str, Expected], *, file: str) -> str:
    """Return the text of a marpack.yaml with these expectations; see `update_samples`."""
    if not samples:
        return text
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - needed only where a file is edited

    document = parse_document(text, file=file)
    before = document.value
    known = {sample["input"]: sample for sample in before.get("samples", ())}
    for name, expected in samples.items():
        known[name] = known.get(name, {"input": name}) | {"expect": expected}
    try:
        changed = _edit(text.replace("\r\n", "\n"), samples)
        after = parse_document(changed, file=file)
        is_meant = _canonical(after.value) == _canonical(before | {"samples": list(known.values())})
        is_kept = _comments(changed) == _comments(text) and _other_texts(after) == _other_texts(document)
        why = "" if is_meant and is_kept else "other values or comments would change"
    except (YAMLError, ProjectError) as error:
        why = first_line(error)
    if why:
        hint = "Change the samples by hand."
        raise ProjectError(f"the samples cannot be written: {why}", where=file, hint=hint, code="unsafe-edit")
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _edit(text: str, samples: Mapping[str, Expected]) -> str:
    """Return the text with these expectations, by a parser that keeps comments, order and quotes."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - as above
    from ruamel.yaml.comments import CommentedMap, CommentedSeq  # noqa: PLC0415 - as above
    from ruamel.yaml.emitter import RoundTripEmitter  # noqa: PLC0415 - as above
    from ruamel.yaml.events import MappingEndEvent  # noqa: PLC0415 - as above

    class Emitter(RoundTripEmitter):
        """Ends the line after `{…} # comment`, which ruamel forgets in a list with a comment behind its key."""

        def expect_flow_mapping_key(self) -> None:
            is_end = isinstance(self.event, MappingEndEvent)
            super().expect_flow_mapping_key()
            self.no_newline = False if is_end else self.no_newline

    editor = YAML()
    editor.Emitter = Emitter
    editor.preserve_quotes, editor.width, editor.explicit_start = True, 1 << 20, text.startswith("---")
    root = editor.load(text)
    # Indent every list as the file indents its first one.
    lists = (each for each in root.values() if isinstance(each, CommentedSeq) and each and not each.fa.flow_style())
    dash, indent = next(((each.lc.col, each.lc.item(0)[1]) for each in lists), (2, 4))
    editor.indent(mapping=2, sequence=indent, offset=dash)
    known = {sample["input"]: sample for sample in root.setdefault("samples", CommentedSeq())}
    # PyYAML spells the new values, since ruamel writes YAML 1.2, in which `no` is text: each has a mark until the end.
    mark, spelt = f"x{secrets.token_hex(8)}x", list[str]()

    def marked(value: Any) -> CommentedSeq:  # Any: plain YAML values
        spelt.append(flow([value])[1:-1])  # quoted as within brackets, wherever it goes
        stand_in = CommentedSeq([f"{mark}{len(spelt) - 1}x"])
        stand_in.fa.set_flow_style()
        return stand_in

    for name, expected in samples.items():
        by_key = len(flow(expected)) + indent > _MAX_WIDTH
        new = {key: marked(value) for key, value in expected.items()} if by_key else marked(expected)
        old = known[name].get("expect") if name in known else None
        if isinstance(old, CommentedMap):
            _replace_values(old, {key: marked(value) for key, value in expected.items()})
        elif name in known:
            known[name]["expect"] = new
        elif len(flow(whole := {"input": name, "expect": expected})) + indent > _MAX_WIDTH:
            root["samples"].append({"input": marked(name), "expect": new})
        else:
            root["samples"].append(marked(whole))
    output = io.StringIO()
    editor.dump(root, output)
    return re.sub(rf"\[{mark}(\d+)x\]", lambda match: spelt[int(match[1])], output.getvalue())


def _replace_values(old: "CommentedMap", new: "dict[str, CommentedSeq]") -> None:
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


def _other_texts(document: YamlDocument) -> dict[str, str]:
    """Return the scalars outside of samples as they are written: version 1.10 is not 1.1."""
    return {key: text for key, text in document.texts.items() if not key.startswith("samples")}


def _comments(text: str) -> list[str]:
    """Return the comments of a YAML text, sorted."""
    for token in yaml.scan(text):
        if isinstance(token, yaml.ScalarToken):
            start, end = token.start_mark.index, token.end_mark.index
            text = text[:start] + "x" * (end - start) + text[end:]
    return sorted(comment.rstrip() for comment in re.findall(r"(?m)(?:^|(?<=\s))#.*$", text))
