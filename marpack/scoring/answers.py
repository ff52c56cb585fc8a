"""Answers → columns: the body as it is, or what `select` finds in its JSON, with a status and what went wrong."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from marpack.errors import UsageError, did_you_mean, first_line, shortened
from marpack.json_text import legible
from marpack.protocol.messages import Trouble
from marpack.torchserve.http import Response

_LEADING_KEY = re.compile(r"[^.\[\]:\"']+")
_STEP = re.compile(r"""\.([^.\[\]:"']+)|\[(-?\d{1,9})\]|\["([^"]*)"\]|\['([^']*)'\]""")
_PATH = 'a path is such as label, probs[0], $.a.b or ["any key"], with :TYPE behind it where it is no text'
_INT64 = range(-(1 << 63), 1 << 63)
_MAX_MESSAGE = 300  # letters of a row's error
ANSWER, ENCODING, STATUS, ERROR = "answer", "answer_encoding", "status", "error"


class FieldType(StrEnum):
    """What a selected value, or a text of a CSV that goes into JSON, stands for."""

    TEXT = "text"
    FLOAT = "float"
    INT = "int"
    BOOL = "bool"
    JSON = "json"


class AnswerField(Struct, frozen=True):
    """One column, and where in an answer's JSON its values stand."""

    steps: tuple[str | int, ...]  # keys and indices; none: the whole answer
    type: FieldType = FieldType.TEXT

    @classmethod
    def parse(cls, name: str, text: str) -> "AnswerField":
        """Return the field that `PATH[:TYPE]` names; raises UsageError for what is no path and no type."""
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
            raise UsageError("this is no path into an answer", where=where, hint=_PATH, code="invalid-answer-path")
        return cls(tuple(steps), field_type(rest[1:], where) if rest else FieldType.TEXT)

    def find(self, value: Any) -> Any:  # Any: JSON
        """Return what stands at the path; None where nothing does."""
        for step in self.steps:
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            else:
                value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
            if value is None:
                return None
        return value


def field_type(name: str, where: str) -> FieldType:
    """Return the type of a name; raises UsageError for one that there is not."""
    if name in set(FieldType):
        return FieldType(name)
    hint = did_you_mean(name, FieldType) or f"types are {', '.join(FieldType)}"
    raise UsageError(f"{name!r} is no type", where=where, hint=hint, code="unknown-type")


def _as_text(value: Any) -> str:  # Any: JSON
    return legible(value) if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> str:  # Any: as above
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # JSON has no NaN and no infinities; handlers write them all the same
        return _as_json(json.loads(json.dumps(value), parse_constant=lambda _: None))
    return legible(text)  # half a letter is spelt as JSON does


def _as_float(value: Any) -> float | None:  # Any: as above
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _as_int(value: Any) -> int | None:  # Any: as above
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT64 else None


def _as_bool(value: Any) -> bool | None:  # Any: as above
    return value if isinstance(value, bool) else None


_ARROW: dict[FieldType, tuple[Any, Callable[[Any], object]]] = {  # Any: pyarrow's types, and JSON
    FieldType.TEXT: (pa.string(), _as_text),
    FieldType.FLOAT: (pa.float64(), _as_float),
    FieldType.INT: (pa.int64(), _as_int),
    FieldType.BOOL: (pa.bool_(), _as_bool),
    FieldType.JSON: (pa.string(), _as_json),
}


class Failure(Struct, frozen=True):
    """Why a row has no answer, or not the one that was asked for."""

    kind: str  # rows that fail alike have the same
    message: str  # one line


def failure_of(response: Response, troubles: Sequence[Trouble] = (), bare_column: str | None = None) -> Failure | None:
    """Return the failure of one request, explained by the troubles of its batch; None for a status of 2xx.

    `bare_column` is the column that was sent as a JSON value outside of an object.
    """
    if 200 <= response.status < 300 and not response.reset:
        return None
    why = next((each for each in troubles if each.frames), troubles[0] if troubles else None)
    if response.status == 0:
        return Failure(why.kind, _line(why.message)) if why else Failure("unasked", "it was not asked")
    head = f"{response.status} {response.phrase}".strip()
    if response.reset:
        head += ", broken off in the middle"
    if why is None:
        return Failure(head, _line(f"{head}: {response.body[:_MAX_MESSAGE].decode('utf-8', 'replace')}".rstrip(": ")))
    message = f"missing key {why.message}" if why.kind == "KeyError" else why.message
    if bare_column is not None and _looks_up(why, bare_column):
        message = f"to send an object, use --json-object {bare_column} (Python: json_object); {message}"
    return Failure(f"{head}: {why.kind}", _line(f"{head}: {why.kind}: {message}"))


def _looks_up(why: Trouble, key: str) -> bool:
    """Return whether an exception comes from looking up a key, by its message or the line that raised it."""
    if why.kind not in {"KeyError", "TypeError"}:
        return False
    texts = (why.message, *(frame.code for frame in why.frames[-1:]))
    return any(quoted in text for text in texts for quoted in (f"'{key}'", f'"{key}"'))


def _line(text: str) -> str:
    return legible(shortened(text, _MAX_MESSAGE))


class AnswerColumns:
    """How answers become columns, of types that are known before the first.

    Without `select` there is one column, `answer`, with the body whatever its status is. With it, each path becomes a
    column; a path that finds nothing, or what cannot be of its type, gives null and is no failure. An answer of 2xx
    that is no JSON where some is selected, or no UTF-8 where text is asked for, is a failure that says so.
    """

    def __init__(self, select: Mapping[str, str], *, encode_binary: bool = False) -> None:
        """Take column → `PATH[:TYPE]`, and whether a body that is no UTF-8 is told as base64.

        Raises UsageError for what is no path.
        """
        self._selected = {name: AnswerField.parse(name, text) for name, text in select.items()}
        self._encode_binary = encode_binary and not select

    @property
    def answer_fields(self) -> tuple[Any, ...]:  # Any: pyarrow's fields
        """The answer's columns, without `status` and `error`."""
        if self._selected:
            return tuple(pa.field(name, _ARROW[field.type][0]) for name, field in self._selected.items())
        names = (ANSWER, ENCODING) if self._encode_binary else (ANSWER,)
        return tuple(pa.field(name, pa.string()) for name in names)

    @property
    def json_names(self) -> frozenset[str]:
        """The columns whose texts are JSON."""
        return frozenset(name for name, field in self._selected.items() if field.type is FieldType.JSON)

    @property
    def fields(self) -> tuple[Any, ...]:  # Any: as above
        """All columns: the answer's, `status` (0: never asked) and `error` (null where there is none)."""
        return (*self.answer_fields, pa.field(STATUS, pa.int32()), pa.field(ERROR, pa.string()))

    def columns(
        self, responses: Sequence[Response], failures: Mapping[int, Failure]
    ) -> tuple[tuple[Any, ...], dict[int, Failure]]:  # Any: pyarrow's arrays
        """Return one array per field, and all failures: those known before, and of answers that cannot be a column.

        Args:
            responses: One per row.
            failures: Of the rows, by their place among the responses, that have no status of 2xx.
        """
        failed = dict(failures)
        made = self._select(responses, failed) if self._selected else self._bodies(responses, failed)
        errors: list[str | None] = [None] * len(responses)
        for place, failure in failed.items():
            errors[place] = failure.message
        arrays = [pa.array(values, field.type) for values, field in zip(made, self.answer_fields, strict=True)]
        statuses = pa.array([response.status for response in responses], pa.int32())
        return (*arrays, statuses, pa.array(errors, pa.string())), failed

    def _bodies(self, responses: Sequence[Response], failed: dict[int, Failure]) -> list[list[object]]:
        """Return the bodies' column, and that of their encodings if it is wanted."""
        bodies: list[object] = [None] * len(responses)
        encodings: list[object] = [None] * len(responses)
        for place, response in enumerate(responses):
            if response.status == 0:
                continue
            try:
                bodies[place], encodings[place] = response.body.decode(), "text"
            except UnicodeDecodeError:
                if self._encode_binary:
                    bodies[place], encodings[place] = base64.b64encode(response.body).decode(), "base64"
                else:
                    failed.setdefault(place, _NO_TEXT)
        return [bodies, encodings] if self._encode_binary else [bodies]

    def _select(self, responses: Sequence[Response], failed: dict[int, Failure]) -> list[list[object]]:
        made: list[list[object]] = [[None] * len(responses) for _ in self._selected]
        ways = [
            (values, field, _ARROW[field.type][1]) for values, field in zip(made, self._selected.values(), strict=True)
        ]
        for place, response in enumerate(responses):
            if place in failed:
                continue
            try:
                answer = parse_json(response.body)
            except (ValueError, RecursionError) as error:
                failed[place] = Failure("answer-no-json", _line(f"the answer is no JSON: {first_line(error)}"))
                continue
            for values, field, convert in ways:
                if (value := field.find(answer)) is not None:
                    values[place] = convert(value)
        return made


_NO_TEXT = Failure("answer-no-text", "the answer's bytes are no UTF-8; ask for base64 to have them in a column")
_DECODE = msgspec.json.Decoder().decode


def parse_json(data: bytes) -> Any:  # Any: JSON
    """Return what JSON says, NaN and Infinity included, which handlers write; raises ValueError, RecursionError."""
    try:
        return _DECODE(data)
    except msgspec.DecodeError:
        return json.loads(data)
