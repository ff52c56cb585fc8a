"""Names inside archives: which ones may become files on disk, and which ones collide there."""

import re
import unicodedata
from collections.abc import Iterable

from marpack.errors import UnsafeArchiveError

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")  # contract §1; match it whole
MAX_NAME = 1024  # bytes of UTF-8; PATH_MAX is 4096 and the cache's own path needs room
MAX_COMPONENT = 255  # bytes of UTF-8; what ext4, XFS, APFS and NTFS can hold
MAX_DEPTH = 64

_DRIVE = re.compile(r"[A-Za-z]:")
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, bidi and invisible marks, half surrogates
_DOTS = frozenset(". ")


def quoted(name: str) -> str:
    """Return a member's name as messages quote it: escaped, and not longer than a line."""
    text = repr(name if len(name) <= 80 else name[:77] + "…")
    return text if _printable(text) else ascii(name[:80])


def check_member_name(name: str) -> None:
    """Refuse a file's name that could land outside its folder, or that some file system would change.

    Raises UnsafeArchiveError naming the member (contract §11).
    """
    problem = name_problem(name)
    if problem:
        raise UnsafeArchiveError(f"the member {quoted(name)} {problem}", hint="pack the files again, by relative names")


def check_member_names(names: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Refuse names that are unsafe, or that would be one file on some file system.

    Args:
        names: The files' names.
        folders: Names of folders with entries of their own, without the final slash.

    Raises UnsafeArchiveError naming the members.
    """
    met: dict[str, tuple[str, bool]] = {}  # by the key under which names collide: a name, and whether it is a folder

    def add(name: str, *, is_folder: bool) -> None:
        parent = name.rpartition("/")[0]
        if parent and met.get(folded(parent)) != (parent, True):
            add(parent, is_folder=True)
        key = folded(name)
        before, was_folder = met.get(key, ("", is_folder))
        problem = None
        if was_folder != is_folder:
            name, problem = before if is_folder else name, "is a file where another member needs a folder"
        elif before == name and not is_folder:
            problem = "is repeated"
        elif before not in ("", name):
            problem = f"differs from {quoted(before)} only in case or Unicode form"
        if problem:
            raise UnsafeArchiveError(
                f"the member {quoted(name)} {problem}", hint="pack the files again, each name once"
            )
        met[key] = name, is_folder

    for folder in folders:
        check_member_name(folder)
        add(folder, is_folder=True)
    for name in names:
        check_member_name(name)
        add(name, is_folder=False)


def name_problem(name: str) -> str | None:
    """Return why a name is unsafe, as the end of a sentence, or None."""
    if not name:
        return "has no name"
    if not _printable(name):
        return "has a control or invisible character in its name"
    if "\\" in name:
        return "has a backslash in its name, which is a folder separator on Windows"
    if name.startswith("/"):
        return "has an absolute path"
    if _DRIVE.match(name):
        return "begins with a drive letter"
    size = len(name) if name.isascii() else len(name.encode())
    if size > MAX_NAME:
        return f"has a name of {size} bytes; {MAX_NAME} is the most"
    if name.count("/") >= MAX_DEPTH:
        return f"is more than {MAX_DEPTH} folders deep"
    return next(filter(None, map(_step_problem, name.split("/"))), None)


def _step_problem(step: str) -> str | None:
    if not step:
        return "has an empty step in its path"
    plain = step if step.isascii() else unicodedata.normalize("NFKC", step)
    # Windows drops dots and spaces at the end of a name, and some tools decode %2e: every spelling of "..".
    if _DOTS.issuperset(plain.lower().replace("%2e", ".")):
        return "contains '.' or '..'"
    if "/" in plain or "\\" in plain:
        return "has a look-alike of a slash in its name"
    if len(step) > MAX_COMPONENT // 4 and len(step.encode()) > MAX_COMPONENT:
        return f"has a step of more than {MAX_COMPONENT} bytes in its path"
    return None


def _printable(name: str) -> bool:
    return name.isprintable() or not any(unicodedata.category(char) in _UNPRINTABLE for char in name)


def folded(name: str) -> str:
    """Return what a file system that folds case and Unicode forms (and Python's import) makes of a name."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
