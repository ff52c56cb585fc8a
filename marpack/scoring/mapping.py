"""How a row becomes a request and its answer becomes columns: one struct, for the command and for Python."""

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import fields

from marpack.errors import UsageError, did_you_mean, first_line, shortened
from marpack.json_text import legible
from marpack.protocol.messages import Trouble
from marpack.torchserve import MAX_BODY
from marpack.torchserve.http import Response

INPUT, ROW = "input", "row"
_SOURCES = ("body", "text", "json", "json_object", "path", "url")
_LEADING_KEY = re.compile(r"[^.\[\]:\"']+")
_STEP = re.compile(r"""\.([^.\[\]:"']+)|\[(-?\d{1,9})\]|\["([^"]*)"\]|\['([^']*)'\]""")
_PATH = 'Write a path such as label, probs[0], $.a.b or ["any key"], and :TYPE after it if it is not a text.'
_INT64 = range(-(1 << 63), 1 << 63)
_MAX_MESSAGE = 300  # letters of a row's error
ANSWER, ENCODING, STATUS, ERROR = "answer", "answer_encoding", "status", "error"


class FieldType(StrEnum):
    """The type of a selected value, or of a text of a CSV that goes into JSON."""

    TEXT = "text"
    FLOAT = "float"
    INT = "int"
    BOOL = "bool"
    JSON = "json"


class AnswerField(Struct, frozen=True):
    """One column, and the place of its values in an answer's JSON."""

    steps: tuple[str | int, ...]  # keys and indices; none: the whole answer
    type: FieldType = FieldType.TEXT

    @classmethod
    def parse(cls, name: str, text: str) -> "AnswerField":
        """Parse `PATH[:TYPE]`; raise UsageError for an invalid path or type."""
        where = f"{name}={text}"
        rest = text.removeprefix("$")
        steps: list[str | int] = []
        if rest == text and (key := _LEADING_KEY.match(rest)):
            steps.append(key[0])
            rest = rest[key.end() :]
        while found := _STEP.match(rest):
            steps.append(int(found[2]) if found[2] else next(each for each in found.groups() if each is not None))
            rest = rest[found.end() :]
        if (rest and not rest.startswith(":")) or rest == text:
            raise UsageError("not a path into a JSON response", where=where, hint=_PATH, code="invalid-answer-path")
        return cls(tuple(steps), field_type(rest[1:], where) if rest else FieldType.TEXT)

    def find(self, value: Any) -> Any:  # Any: JSON
        """Return the value at the path; otherwise None."""
        for step in self.steps:
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            else:
                value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
            if value is None:
                return None
        return value

    def convert(self, value: Any) -> object:  # Any: JSON
        """Return a value as one of the column; None if it is of another type."""
        match self.type, value:
            case FieldType.TEXT, str():
                return legible(value)
            case FieldType.TEXT | FieldType.JSON, _:
                return _as_json(value)
            case FieldType.BOOL, bool():
                return value
            case _, bool():
                return None
            case FieldType.FLOAT, int() | float():
                try:
                    return float(value)
                except OverflowError:
                    return None
            case FieldType.INT, float() if value.is_integer():
                return int(value) if int(value) in _INT64 else None
            case FieldType.INT, int() if value in _INT64:
                return value
        return None


def field_type(name: str, where: str) -> FieldType:
    """Return the type of a name; raise UsageError for an unknown one."""
    if name in set(FieldType):
        return FieldType(name)
    hint = did_you_mean(name, FieldType) or f"Choose from {', '.join(FieldType)}."
    raise UsageError(f"{name!r} is not a type", where=where, hint=hint, code="unknown-type")


def _as_json(value: Any) -> str:  # Any: JSON
    try:
        return legible(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except ValueError:  # JSON has no NaN and no infinities; handlers write them
        return _as_json(json.loads(json.dumps(value), parse_constant=lambda _: None))


_ARROW: dict[FieldType, Any] = {  # Any: pyarrow's types
    FieldType.TEXT: pa.string(),
    FieldType.FLOAT: pa.float64(),
    FieldType.INT: pa.int64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.JSON: pa.string(),
}


class Failure(Struct, frozen=True):
    """Why a row has no answer, or an unusable one."""

    kind: str  # the same for rows that fail alike
    message: str  # one line


def failure_of(response: Response, troubles: Sequence[Trouble] = (), bare_column: str | None = None) -> Failure | None:
    """Return the failure of one request, explained by the troubles of its batch; None for a status of 2xx.

    `bare_column` is the column that was sent as a JSON value outside of an object.
    """
    if 200 <= response.status < 300 and not response.reset:
        return None
    why = next((each for each in troubles if each.frames), troubles[0] if troubles else None)
    if response.status == 0:
        return Failure(why.kind, _line(why.message)) if why else Failure("unasked", "it was not sent")
    head = f"{response.status} {response.phrase}".strip()
    if response.reset:
        head += ", broken off in the middle"
    if why is None:
        return Failure(head, _line(f"{head}: {response.body[:_MAX_MESSAGE].decode('utf-8', 'replace')}".rstrip(": ")))
    message = f"missing key {why.message}" if why.kind == "KeyError" else why.message
    if bare_column is not None and why.kind in {"KeyError", "TypeError"}:  # perhaps of looking up the column's name
        texts = (why.message, *(frame.code for frame in why.frames[-1:]))
        if any(quoted in text for text in texts for quoted in (f"'{bare_column}'", f'"{bare_column}"')):
            message = f"to send an object, use --json-object {bare_column} (Python: json_object); {message}"
    return Failure(f"{head}: {why.kind}", _line(f"{head}: {why.kind}: {message}"))


def _line(text: str) -> str:
    return legible(shortened(text, _MAX_MESSAGE))


_DECODE = msgspec.json.Decoder().decode


def parse_json(data: bytes) -> Any:  # Any: JSON
    """Parse JSON, also NaN and Infinity, which handlers write; raise ValueError, RecursionError."""
    try:
        return _DECODE(data)
    except msgspec.DecodeError:
        return json.loads(data)


class AnswerColumns:
    """How responses become columns, of types that are known before the first response.

    Without `select` there is one column, `answer`, with the body of any status. With it, each path becomes a column; a
    path that finds nothing, or a value of another type, gives null and is not a failure. A response of 2xx that is not
    JSON with `select`, or not UTF-8 without base64, is a failure.
    """

    def __init__(self, select: Mapping[str, str], *, encode_binary: bool = False) -> None:
        """Take column → `PATH[:TYPE]`, and whether a body that is not UTF-8 becomes base64.

        Raises UsageError for an invalid path.
        """
        self._selected = {name: AnswerField.parse(name, text) for name, text in select.items()}
        self._encode_binary = encode_binary and not select
        names = (ANSWER, ENCODING) if self._encode_binary else (ANSWER,)
        made = [pa.field(name, _ARROW[field.type]) for name, field in self._selected.items()]
        self._answers = made or [pa.field(name, pa.string()) for name in names]
        # All columns: the response's, `status` (0: never sent) and `error` (null without a failure).
        self.fields: tuple[Any, ...] = (  # Any: pyarrow's
            *self._answers,
            pa.field(STATUS, pa.int32()),
            pa.field(ERROR, pa.string()),
        )

    @property
    def json_names(self) -> frozenset[str]:
        """The columns whose texts are JSON."""
        return frozenset(name for name, field in self._selected.items() if field.type is FieldType.JSON)

    def columns(
        self, responses: Sequence[Response], failures: Mapping[int, Failure]
    ) -> tuple[tuple[Any, ...], dict[int, Failure]]:  # Any: pyarrow's arrays
        """Return one array per field, and all failures, also of unusable responses.

        There is one response per row; `failures` are those without a status of 2xx, by their place.
        """
        failed, nothing = dict(failures), (None,) * len(self._answers)
        rows: list[Sequence[object]] = []
        for place, response in enumerate(responses):
            values = self._values(response, failed=place in failed)
            if isinstance(values, Failure):
                failed[place] = values
            rows.append(nothing if values is None or isinstance(values, Failure) else values)
        errors = [failed[place].message if place in failed else None for place in range(len(responses))]
        arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(self._answers)]
        statuses = pa.array([response.status for response in responses], pa.int32())
        return (*arrays, statuses, pa.array(errors, pa.string())), failed

    def _values(self, response: Response, *, failed: bool) -> Sequence[object] | Failure | None:
        """Return the values of a response's columns; None if it has none, a Failure if it is unusable."""
        if self._selected:
            if failed:
                return None
            try:
                answer = parse_json(response.body)
            except (ValueError, RecursionError) as error:
                return Failure("answer-no-json", _line(f"the answer is not JSON: {first_line(error)}"))
            found = [(field, field.find(answer)) for field in self._selected.values()]
            return [None if value is None else field.convert(value) for field, value in found]
        if response.status == 0:
            return None
        try:
            return response.body.decode(), "text"
        except UnicodeDecodeError:
            if self._encode_binary:
                return base64.b64encode(response.body).decode(), "base64"
        return None if failed else _NO_TEXT


_NO_TEXT = Failure("answer-no-text", "the answer's bytes are not UTF-8; ask for base64 to have them in a column")


class RowMapping(Struct, frozen=True, kw_only=True):
    """How a row becomes a request, and its response a row of the output. It can be pickled.

    Set exactly one of `body`, `text`, `json`, `json_object`, `path` and `url`. In JSON, dates and times are in ISO
    8601, durations in seconds, decimals strings, and maps objects. Bytes, NaN and infinity make the row fail.
    """

    body: str | None = None  # column of bytes, or of text to send in UTF-8
    text: str | None = None  # column of text to send as text/plain
    json: tuple[str, ...] = ()  # columns to send as JSON: one is sent as its value, several as an object
    json_object: tuple[str, ...] = ()  # columns to send as a JSON object
    path: str | None = None  # column of file names below `root`
    url: str | None = None  # column of http and https addresses
    root: str | None = None  # folder; None: the current one
    types: dict[str, FieldType] = {}  # a text column's type in JSON
    content_type: str | None = None  # None: the default of the column's kind
    headers: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    allow_private: bool = False  # fetch also from private, loopback and link-local addresses
    max_request_size: int = MAX_BODY  # bytes
    select: dict[str, str] = {}  # output column → PATH[:TYPE] in the response's JSON
    keep: tuple[str, ...] = ()  # columns to copy
    encode_binary: bool = False  # encode responses that are not UTF-8 in base64, and add `answer_encoding`

    def __post_init__(self) -> None:
        """Raise UsageError for a value of a wrong type and for contradictions."""
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                msgspec.convert(os.fspath(value) if isinstance(value, os.PathLike) else value, field.type)
            except msgspec.ValidationError as error:
                hint = f"Set {field.name} to a value of that type."
                raise UsageError(first_line(error), where=field.name, hint=hint) from None
        given = [name for name in _SOURCES if getattr(self, name)]
        if len(given) != 1:
            what = f"{' and '.join(given)} exclude each other" if given else "no column for a row's request"
            raise UsageError(what, hint=f"Give exactly one of {', '.join(_SOURCES)}.")
        if self.root is not None and self.path is None:
            raise UsageError("root requires path", where=self.root, hint="Name the column of paths: path.")
        if self.encode_binary and self.select:
            hint = "Leave one of them out: selected values are JSON, which has no binary values."
            raise UsageError("encode_binary and select exclude each other", hint=hint)
        for name in self.types:
            if name not in self.json_columns:
                hint = did_you_mean(name, self.json_columns) or "Remove its type, or send the column as JSON."
                raise UsageError("a column with a type is not sent as JSON", where=name, hint=hint)
        names = [INPUT, ROW, *self.keep, *(field.name for field in self.answers.fields)]
        if repeated := [name for place, name in enumerate(names) if name in names[:place]]:
            hint = "Give the selected column another name, or do not keep the other one."
            what = f"two columns of the output would have the name {repeated[0]}"
            raise UsageError(what, where=repeated[0], hint=hint)

    @property
    def source(self) -> str:
        """The one of `body`, `text`, `json` and the others that is given."""
        return next(name for name in _SOURCES if getattr(self, name))

    @property
    def json_columns(self) -> tuple[str, ...]:
        """The columns that are sent as JSON."""
        return self.json or self.json_object

    @property
    def bare_column(self) -> str | None:
        """The column that is sent as a JSON value outside of an object."""
        return self.json[0] if len(self.json) == 1 else None

    @property
    def request_columns(self) -> tuple[str, ...]:
        """The columns that requests are made of."""
        return self.json_columns or (getattr(self, self.source),)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read: for requests, then those that are only kept."""
        return tuple(dict.fromkeys((*self.request_columns, *self.keep)))

    @property
    def answers(self) -> AnswerColumns:
        """How answers become columns."""
        return AnswerColumns(self.select, encode_binary=self.encode_binary)

    def check(self, schema: Any, where: str | None = None) -> None:  # Any: pyarrow's schema
        """Raise UsageError for a missing column, or one of an unsuitable type; `where` names the table."""
        self.check_names(schema.names, where)
        for name in self.request_columns:
            kind = schema.field(name).type
            while pa.types.is_dictionary(kind):
                kind = kind.value_type
            is_bytes, is_text = (any(check(kind) for check in checks) for checks in (_IS_BYTES, _IS_TEXT))
            if self.json_columns:
                fits, what, hint = not is_bytes, "JSON cannot represent", "Send bytes with --body."
            else:  # in a column of nulls, each row has an error of its own
                fits = is_text or pa.types.is_null(kind) or (self.source == "body" and is_bytes)
                what = "is neither bytes nor text" if self.source == "body" else "is not text"
                hint = _HINTS.get(self.source, "Name a column of texts.")
            if not fits:
                raise UsageError(f"the column {name} is of type {kind}, which {what}", where=where, hint=hint)

    def check_names(self, names: Sequence[str], where: str | None = None) -> None:
        """Raise UsageError for a missing or a repeated column; see `check`."""
        for name in self.needed:
            if name not in names:
                hint = did_you_mean(name, names) or f"Choose from {', '.join(names[:20])}."
                raise UsageError(f"the column {name} does not exist", where=where, hint=hint, code="column-not-found")
            if list(names).count(name) > 1:
                hint = "Rename one of them in the table."
                raise UsageError(f"there are several columns {name}", where=where, hint=hint, code="duplicate-column")


_HINTS = {
    "body": "Send a value of another type with --json.",
    "text": "Send bytes with --body, and a value of another type with --json.",
}
_IS_BYTES = (
    *(pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)
_IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
