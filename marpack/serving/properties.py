"""What a config.properties is written in: Java's syntax, and the JSON of models and versions."""

import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.archive.names import quoted
from marpack.errors import UsageError, first_line, nearest

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
        what, hint = f"{around} is no escape: \\u needs four hexadecimal digits", "write \\\\u for a plain \\u"
        raise UsageError(what, hint=hint, code="invalid-escape")
    return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)


T = TypeVar("T")

_HINT = 'write {"MODEL": {"VERSION": {"minWorkers": 1, "batchSize": 8}}}, with \\ before each line end'


class ModelProperties(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is said of one version of a model; a value of 0 or less says nothing."""

    min_workers: int | None = None
    max_workers: int | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None  # ms
    response_timeout: int | None = None  # s
    startup_timeout: int | None = None  # s
    default_version: bool | None = None
    mar_name: str | None = None


Models = dict[str, dict[str, ModelProperties]]  # {model: {version: …}}


class _Snapshot(Struct, frozen=True):
    """What the original writes of its models; some deployments write it by hand."""

    models: Models


def parse_models(text: str) -> Models:
    """Return the models of `models`; raise UsageError if it is no JSON of that form."""
    return _positive(_decoded(text, Models))


def parse_snapshot(text: str) -> Models:
    """Return the models of `model_snapshot`; raise UsageError if it is no JSON of that form."""
    return _positive(_decoded(text, _Snapshot).models)


def unknown_properties(text: str) -> Iterator[str]:
    """Yield a sentence for each property in `models` that says nothing here; raise UsageError as `parse_models`."""
    known = [field.encode_name for field in msgspec.structs.fields(ModelProperties)]
    for model, versions in _decoded(text, dict[str, dict[str, dict[str, object]]]).items():
        for version, properties in versions.items():
            for name in sorted(properties.keys() - known):
                meant = nearest(name, known)
                end = f"; did you mean {meant}?" if meant else ""
                yield f"models: {quoted(name)} of {quoted(model)} {quoted(version)} has no effect{end}"


def _decoded(text: str, form: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=form, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(f"this is no JSON of models and versions: {first_line(error)}", hint=_HINT) from None


def _positive(models: Models) -> Models:
    return {
        model: {version: _without_negative(properties) for version, properties in versions.items()}
        for model, versions in models.items()
    }


def _without_negative(properties: ModelProperties) -> ModelProperties:
    said = asdict(properties).items()
    return replace(properties, **{name: None for name, value in said if type(value) is int and value <= 0})
