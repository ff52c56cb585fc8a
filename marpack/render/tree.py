"""The members of an archive as a tree of folders."""

from collections.abc import Iterator, Sequence
from itertools import islice

from rich.filesize import decimal

from marpack.inspection.facts import MemberFacts
from marpack.render.layout import clean, rows

_MOST = 40  # files shown of one folder
_LONGEST = 200  # lines
_Folder = dict[str, "MemberFacts | _Folder"]


def member_tree(members: Sequence[MemberFacts], width: int) -> Iterator[str]:
    """Yield one line per member: its place, size, method and the beginning of its digest."""
    top: _Folder = {}
    for member in members:
        folder = top
        *path, name = member.name.split("/")
        for part in path:
            inner = folder.setdefault(f"{part}/", {})
            folder = inner if isinstance(inner, dict) else folder
        folder[name] = member
    table = list(islice(_lines(top, "  "), _LONGEST))
    yield from rows(table, width=width, right=frozenset({1}))
    if len(table) == _LONGEST:
        yield "  … and more: --json lists all of them"


def _lines(folder: _Folder, indent: str) -> Iterator[tuple[str, str, str, str]]:
    hidden = len(folder) - _MOST
    for number, (name, item) in enumerate(folder.items()):
        if number == _MOST and hidden > 1:
            yield f"{indent}… and {hidden:,} more", "", "", ""
            return
        if isinstance(item, dict):
            yield indent + clean(name), "", "", ""
            yield from _lines(item, f"{indent}  ")
        else:
            yield indent + clean(name), decimal(item.size), _method(item), (item.sha256 or "")[:12]


def _method(member: MemberFacts) -> str:
    if member.compressed_size >= member.size:
        return member.method
    return f"{member.method} to {member.compressed_size / member.size:.0%}"
