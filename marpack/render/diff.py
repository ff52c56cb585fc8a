"""What `marpack diff` shows on a terminal."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from rich.filesize import decimal

from marpack.inspection.diff import Change, Diff, FieldDifference, TensorDiff
from marpack.json_text import to_json
from marpack.render.layout import clean, fit, heading, paragraph

_SIGNS = {Change.ADDED: ("+", "green"), Change.REMOVED: ("-", "red")}
_MAX_COUNT = 40  # differences shown of one kind
Describe = Callable[[FieldDifference], str]


def diff_lines(found: Diff, width: int) -> Iterator[str]:
    """Yield the page line by line, in colours that click.echo takes off again where they are not wanted."""
    if found.same:
        yield "the same"
    for sign, source in (("-", found.before), ("+", found.after)):
        yield fit(f"{sign} {clean(source)}", width).rstrip()
    for title, parts, describe in differing(found):
        yield ""
        yield heading(title)
        yield from _differences(parts, describe, width)
    for tensors in found.tensors:
        yield ""
        yield from _tensors(tensors, width)


def differing(found: Diff) -> Iterator[tuple[str, Sequence[FieldDifference], Describe]]:
    """Yield each part but the tensors in which there are differences: its name, those, and what tells one of them."""
    for title in ("manifest", "recorded", "members", "config", "labels"):
        parts: Sequence[FieldDifference] = getattr(found, title)
        if parts:
            yield title, parts, _sized if title == "members" else _plain


def _tensors(found: TensorDiff, width: int) -> Iterator[str]:
    title, counts = tensors_of(found)
    yield heading(fit(clean(title), width - 24).rstrip())
    yield f"  {counts}"
    if found.problem:
        yield from paragraph("broken", found.problem, width=width)
    yield from _differences(found.differences, shaped, width)


def tensors_of(found: TensorDiff) -> tuple[str, str]:
    """Return whose tensors were compared, and how many of them differ."""
    name = found.member if found.member == found.other else f"{found.member} → {found.other}"
    counts = [f"{len(found.differences):,} of {found.same + found.uncompared + len(found.differences):,} differ"]
    if found.uncompared:
        counts.append(f"{found.uncompared:,} have no numbers here to compare")
    return f"tensors of {name}", ", ".join(counts)


def _differences(parts: Sequence[FieldDifference], describe: Describe, width: int) -> Iterator[str]:
    table = [(f"  {sign_of(part)} {clean(part.name)}", describe(part)) for part in parts[:_MAX_COUNT]]
    longest = min(max((len(name) for name, _ in table), default=0), width // 2)
    for part, (name, text) in zip(parts, table, strict=False):
        line = f"{fit(name, longest)}  {fit(clean(text), width - longest - 2).rstrip()}"
        yield click.style(line.rstrip(), fg=_SIGNS.get(part.change, ("~", "yellow"))[1])
    if len(parts) > _MAX_COUNT:
        yield f"  … and {len(parts) - _MAX_COUNT:,} more"


def sign_of(part: FieldDifference) -> str:
    """Return + for what is new, - for what is gone, and ~ for what is other."""
    return _SIGNS.get(part.change, ("~", "yellow"))[0]


def _plain(part: FieldDifference) -> str:
    if part.change is Change.ADDED:
        return _value(part.after)
    return _value(part.before) if part.change is Change.REMOVED else f"{_value(part.before)} → {_value(part.after)}"


def _value(value: Any) -> str:  # Any: JSON
    return value if isinstance(value, str) else to_json(value).decode()


def _sized(part: FieldDifference) -> str:
    before, after = (side and decimal(side["size"]) for side in (part.before, part.after))
    if before and after:
        return f"{before}, other bytes" if before == after else f"{before} → {after}"
    return str(before or after)


def shaped(part: FieldDifference) -> str:
    """Return how one tensor differs."""
    before, after = (side and f"{side['dtype']} {side['shape']}" for side in (part.before, part.after))
    if part.change is Change.CHANGED:
        return f"{after}, other values"
    return f"{before} → {after}" if before and after else str(before or after)
