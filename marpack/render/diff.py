"""What `marpack diff` shows on a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from rich.filesize import decimal

from marpack.inspection.diff import Change, Diff, FieldDifference, TensorDiff
from marpack.render.layout import clean, fit, heading, paragraph

_SIGNS = {Change.ADDED: ("+", "green"), Change.REMOVED: ("-", "red")}
_MAX_COUNT = 40  # differences shown of one kind


def diff_lines(found: Diff, width: int) -> Iterator[str]:
    """Yield the page line by line, in colours that click.echo takes off again where they are not wanted."""
    if found.same:
        yield "the same"
    for sign, source in (("-", found.before), ("+", found.after)):
        yield fit(f"{sign} {clean(source)}", width).rstrip()
    for title in ("manifest", "recorded", "members", "config", "labels"):
        parts: Sequence[FieldDifference] = getattr(found, title)
        if parts:
            yield ""
            yield heading(title)
            yield from _differences(parts, _sized if title == "members" else _plain, width)
    for tensors in found.tensors:
        yield ""
        yield from _tensors(tensors, width)


def _tensors(found: TensorDiff, width: int) -> Iterator[str]:
    name = found.member if found.member == found.other else f"{found.member} → {found.other}"
    counts = [f"{len(found.differences):,} of {found.same + found.uncompared + len(found.differences):,} differ"]
    if found.uncompared:
        counts.append(f"{found.uncompared:,} have no numbers here to compare")
    yield heading(fit(f"tensors of {clean(name)}", width - 24).rstrip())
    yield f"  {', '.join(counts)}"
    if found.problem:
        yield from paragraph("broken", found.problem, width=width)
    yield from _differences(found.differences, _shaped, width)


def _differences(
    parts: Sequence[FieldDifference], describe: Any, width: int
) -> Iterator[str]:  # Any: one of the three below
    table = []
    for part in parts[:_MAX_COUNT]:
        sign, _ = _SIGNS.get(part.change, ("~", "yellow"))
        table.append((f"  {sign} {clean(part.name)}", describe(part)))
    longest = min(max((len(name) for name, _ in table), default=0), width // 2)
    for part, (name, text) in zip(parts, table, strict=False):
        line = f"{fit(name, longest)}  {fit(clean(text), width - longest - 2).rstrip()}"
        yield click.style(line.rstrip(), fg=_SIGNS.get(part.change, ("~", "yellow"))[1])
    if len(parts) > _MAX_COUNT:
        yield f"  … and {len(parts) - _MAX_COUNT:,} more"


def _plain(part: FieldDifference) -> str:
    if part.change is Change.ADDED:
        return _value(part.after)
    return _value(part.before) if part.change is Change.REMOVED else f"{_value(part.before)} → {_value(part.after)}"


def _value(value: Any) -> str:  # Any: JSON
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _sized(part: FieldDifference) -> str:
    before, after = (side and decimal(side["size"]) for side in (part.before, part.after))
    if before and after:
        return f"{before}, other bytes" if before == after else f"{before} → {after}"
    return str(before or after)


def _shaped(part: FieldDifference) -> str:
    before, after = (side and f"{side['dtype']} {side['shape']}" for side in (part.before, part.after))
    if part.change is Change.CHANGED:
        return f"{after}, other values"
    return f"{before} → {after}" if before and after else str(before or after)
