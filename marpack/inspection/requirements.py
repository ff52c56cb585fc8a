"""requirements.txt as pip reads it."""

import codecs
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator
from enum import StrEnum
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import first_line
from marpack.torchserve.server_modules import canonical

_COMMENT = r"(^|\s)#.*$"  # `re` compiles each when it is needed first
_BOMS = (
    (codecs.BOM_UTF32, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAX_LENGTH = 4096  # characters
# Options after a requirement.
_TRAILING = r"\s--(hash|config-settings?|global-option|install-option)\b.*$"
_URL = r"(?i)^(\w+\+)?[a-z][a-z0-9+.-]*://"
MAX_REQUIREMENTS = 1 << 20  # bytes of one file, for every reader
_MAX_FILES = 100  # that one requirements file leads to
_SDIST = r"(.+)-\d[\w.!+]*\.(?:tgz|zip|tar(?:\.(?:gz|bz2|xz))?)"  # name-version.tar.gz


class LineKind(StrEnum):
    """What a line is."""

    REQUIREMENT = "requirement"
    INCLUDE = "include"  # -r FILE
    CONSTRAINT = "constraint"  # -c FILE
    LIMIT = "limit"  # a line of a constraints file: it bounds a version, and nothing is installed for it
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
    """Yield the lines of a requirements file and of the files that it names by -r and -c, each with its file's name.

    A file is read once. The requirements of a file that is only named by -c are limits. `read` returns a file's bytes,
    or None for a file that is missing or must not be read.
    """
    required, limits = [first], list[str]()  # both grow while they are walked
    for names in (required, limits):
        for name in names:
            if names is limits and name in required:
                continue
            for line in read_lines(read(name) or b""):
                is_limit = names is limits and line.sort is LineKind.REQUIREMENT
                yield name, replace(line, sort=LineKind.LIMIT, name=None) if is_limit else line
                target = limits if line.sort is LineKind.CONSTRAINT else names
                inner = beside(name, line.text)
                is_file = line.sort in (LineKind.INCLUDE, LineKind.CONSTRAINT)
                if is_file and inner not in target and len(required) + len(limits) < _MAX_FILES:
                    target.append(inner)


def beside(file: str, text: str) -> str:
    """Return the name of what a line of a requirements file names, as seen from the folder of that file."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), text.strip("\"'")))


def read_lines(data: bytes) -> list[Line]:
    """Parse a requirements file; never raises."""
    return [_parse_line(number, text) for number, text in logical_lines(data)]


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


def _parse_line(number: int, text: str) -> Line:
    if text.startswith("-"):
        return _parse_option(number, text)
    text = re.sub(_TRAILING, "", text).strip()
    if re.match(_URL, text):
        return Line(number, LineKind.REQUIREMENT, text, _name_in_url(text))
    if " @ " not in text and (text.startswith((".", "/", "~")) or text.endswith((".whl", ".tar.gz", ".zip"))):
        return Line(number, LineKind.PATH, text)
    if len(text) > _MAX_LENGTH:
        return Line(number, LineKind.WRONG, text[:60], reason=f"it is longer than {_MAX_LENGTH} characters")
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - few archives need it

    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        return Line(number, LineKind.WRONG, text, reason=first_line(error))
    return Line(number, LineKind.REQUIREMENT, text, canonical(requirement.name))


def _parse_option(number: int, text: str) -> Line:
    """Parse an option of pip: one that names a file or an editable package, or any other."""
    for short, long in (("-r", "--requirement"), ("-c", "--constraint"), ("-e", "--editable")):
        option = re.match(rf"{long}(?=[=\s]|$)[=\s]?|{short}(?!-)", text)
        if option is None:
            continue
        try:
            value = next(iter(shlex.split(text[option.end() :])), "")  # as pip does
        except ValueError as error:
            return Line(number, LineKind.WRONG, text, reason=first_line(error))
        if not value:
            return Line(number, LineKind.WRONG, text, reason="it names no file")
        if short != "-e":
            return Line(number, LineKind.INCLUDE if short == "-r" else LineKind.CONSTRAINT, value)
        if re.match(_URL, value):
            return Line(number, LineKind.REQUIREMENT, value, _name_in_url(value))
        return Line(number, LineKind.PATH, value)
    return Line(number, LineKind.OPTION, text)


def _name_in_url(text: str) -> str | None:
    """Return the distribution that an address says it is: by egg=, or as a wheel or an sdist by its file's name."""
    egg = re.search(r"#.*\begg=([\w.-]+)", text)
    if egg:
        return canonical(egg[1])
    if re.match(r"(?i)(git|hg|svn|bzr)\+", text):
        return None  # a repository and its distribution may have different names
    file = unquote(posixpath.basename(re.split(r"[?#]", text)[0]))
    wheel, sdist = re.fullmatch(r"([^-]+)-.*\.whl", file), re.fullmatch(_SDIST, file)
    found = wheel or sdist
    return canonical(found[1]) if found else None
