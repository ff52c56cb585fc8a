"""The command `marpack diff`, and what it shows on a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.filesize import decimal

from marpack.cli.completion import sources
from marpack.cli.options import chosen_limits, limit_options
from marpack.errors import ExitCode
from marpack.inspection.diff import Change, Diff, FieldDifference, TensorDiff
from marpack.render.layout import clean, fit, heading, paragraph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SIGNS = {Change.ADDED: ("+", "green"), Change.REMOVED: ("-", "red")}
_MAX_COUNT = 40  # differences shown of one kind


@click.command()
@click.argument("before", metavar="A", shell_complete=sources)
@click.argument("after", metavar="B", shell_complete=sources)
@click.option("--verify", is_flag=True, help="Read every member, instead of trusting recorded digests.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@limit_options
@click.pass_context
def diff(
    context: click.Context, /, before: str, after: str, *, verify: bool, as_json: bool, **limits: int | None
) -> None:
    """Compare two archives: manifest, members, config, labels and, number by number, the tensors.

    \b
    Examples:
      marpack diff digits-1.0.mar digits-1.1.mar          what a release changes
      marpack diff https://host/digits.mar . --json       what is served, and what this project builds

    A and B are each a .mar, a .tar.gz, a model folder, an address (https, s3), or a project folder. The exit code is
    0 if they are the same, 1 if they differ.
    """
    from marpack.archive.protocol import total_size
    from marpack.archive.reader import open_archive
    from marpack.cli.options import archive_of
    from marpack.inspection.diff import diff as compare
    from marpack.render.progress import byte_bar

    bounds = chosen_limits(**limits)
    first, second = archive_of(before), archive_of(after)
    with (
        open_archive(first, limits=bounds) as old,
        open_archive(second, limits=bounds) as new,
        byte_bar("comparing", total_size(old) + total_size(new) if verify else 0) as progress,
    ):
        found = compare(old, new, verify=verify, progress=progress)
    if as_json:
        from marpack.render.output import show

        show(found)
    else:
        from marpack.render.layout import page_width, show_page

        show_page(diff_lines(found, page_width(os.environ.get("COLUMNS"))))
    context.exit(ExitCode.OK if found.same else ExitCode.SHORT)


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
    parts: Sequence[FieldDifference], describe: Callable[[FieldDifference], str], width: int
) -> Iterator[str]:
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
