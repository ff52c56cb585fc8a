"""requirements.txt as pip reads it."""

import codecs
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import PurePosixPath

from msgspec import Struct

from marpack.errors import first_line
from marpack.torchserve.distributions import canonical

_COMMENT = r"(^|\s)#.*$"  # `re` compiles each when it is needed first
_BOMS = (
    (codecs.BOM_UTF32, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAX_LENGTH = 4096  # characters
# Options that stand behind a requirement.
_TRAILING = r"\s--(hash|config-settings?|global-option|install-option)\b.*$"
_URL = r"(?i)^(\w+\+)?[a-z][a-z0-9+.-]*://"


class LineKind(StrEnum):
    """What a line is."""

    REQUIREMENT = "requirement"
    INCLUDE = "include"  # -r FILE
    CONSTRAINT = "constraint"  # -c FILE
    OPTION = "option"  # an option of pip's
    PATH = "path"  # a file or folder
    WRONG = "wrong"  # none that pip takes


class Line(Struct, frozen=True):
    """One line that says something."""

    number: int
    sort: LineKind
    text: str  # the option's value, the path, the requirement
    name: str | None = None  # the distribution, canonical, where the line gives one
    reason: str = ""  # why it is wrong


def read_requirements(first: str, read: Callable[[str], bytes | None]) -> Iterator[tuple[str, Line]]:
    """Yield every line of a requirements file and of those that it includes, with the file it stands in.

    Args:
        first: The file's name.
        read: Returns a file's bytes, or None for one that is not there, or not to be looked into.
    """
    files = [first]
    for name in files:  # grows while it is walked
        for line in read_lines(read(name) or b""):
            yield name, line
            inner = beside(name, line.text)
            if line.sort is LineKind.INCLUDE and inner not in files:
                files.append(inner)


def beside(file: str, text: str) -> str:
    """Return the name of what a line of a requirements file names, as seen from where that file lies."""
    folder = file.rpartition("/")[0]
    bare = text.strip("\"'").removeprefix("./")
    return f"{folder}/{bare}" if folder else bare


def read_lines(data: bytes) -> list[Line]:
    """Parse a requirements file; never raises."""
    return [_line(number, text) for number, text in logical_lines(data)]


def logical_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines that ask for something, joined at their backslashes, with the number of their first."""
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8-sig")
    start, parts = 0, []
    for number, line in enumerate([*data.decode(encoding, "replace").splitlines(), ""], 1):
        start = start or number
        bare = re.sub(_COMMENT, "", line).rstrip()
        if line.endswith("\\") and bare.endswith("\\"):
            parts.append(bare[:-1])
            continue
        if text := "".join([*parts, bare]).strip():
            yield start, text
        start, parts = 0, []


def _line(number: int, text: str) -> Line:
    if text.startswith("-"):
        return _option(number, text)
    text = re.sub(_TRAILING, "", text).strip()
    if _is_path(text):
        return Line(number, LineKind.PATH, text)
    if re.match(_URL, text):
        return Line(number, LineKind.REQUIREMENT, text, _name_in_url(text))
    return _requirement(number, text)


def _option(number: int, text: str) -> Line:
    option, _, value = text.replace("=", " ", 1).partition(" ")
    value = value.strip()
    if option in {"-r", "--requirement"}:
        return Line(number, LineKind.INCLUDE, value)
    if option in {"-c", "--constraint"}:
        return Line(number, LineKind.CONSTRAINT, value)
    if option in {"-e", "--editable"}:
        sort = LineKind.REQUIREMENT if re.match(_URL, value) else LineKind.PATH
        return Line(number, sort, value, _name_in_url(value) if sort is LineKind.REQUIREMENT else None)
    return Line(number, LineKind.OPTION, text)


def _is_path(text: str) -> bool:
    if re.match(_URL, text) or " @ " in text:
        return False
    return text.startswith((".", "/", "~")) or text.endswith((".whl", ".tar.gz", ".zip"))


def _name_in_url(text: str) -> str | None:
    """Return the distribution that an address names, or that its last part is called."""
    egg = re.search(r"#.*\begg=([\w.-]+)", text)
    if egg:
        return canonical(egg[1])
    path = re.split(r"[?#]", text.partition("://")[2])[0].partition("/")[2]
    last = PurePosixPath(path).name.partition("@")[0].removesuffix(".git")
    return canonical(last.split("-")[0] if last.endswith(".whl") else last) or None


def _requirement(number: int, text: str) -> Line:
    if len(text) > _MAX_LENGTH:
        return Line(number, LineKind.WRONG, text[:60], reason=f"it is longer than {_MAX_LENGTH} characters")
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - few archives need it

    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        return Line(number, LineKind.WRONG, text, reason=first_line(error))
    return Line(number, LineKind.REQUIREMENT, text, canonical(requirement.name))
