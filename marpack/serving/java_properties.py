"""The syntax of a Java properties file: keys and values, comments, continued lines, escapes."""

import re
from collections.abc import Iterator

from marpack.archive.names import quoted
from marpack.errors import UsageError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Return the keys and values of a properties file, which is Latin-1; the last of two equal keys counts.

    Raises UsageError for a \u without four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        key: str = _KEY.findall(line)[0]
        found[_unescaped(key)] = _unescaped(_SEPARATOR.sub("", line[len(key) :], count=1))
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without their indentation: continued ones joined, blank ones and comments left out."""
    gathered = ""
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if not gathered and line.startswith(("#", "!")):
            continue
        gathered += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            gathered = gathered[:-1]
            continue
        if gathered:
            yield gathered
        gathered = ""
    if gathered:  # the file ends with a backslash
        yield gathered


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_letter, text)
    # Java writes a letter beyond U+FFFF as two escapes: its halves in UTF-16
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _letter(escape: re.Match[str]) -> str:
    code = escape[1]
    if code == "u":
        around = quoted(escape.string[escape.start() :][:8])
        raise UsageError(
            f"{around} is no escape: \\u needs four hexadecimal digits", hint="write \\\\u for a plain \\u"
        )
    return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)
