"""How a row becomes a request and its answer becomes columns: one struct, for the command and for Python."""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import fields

from marpack.errors import UsageError, did_you_mean, first_line
from marpack.scoring.answers import AnswerColumns, FieldType
from marpack.torchserve.http import MAX_BODY

INPUT, ROW = "input", "row"
_SOURCES = ("body", "text", "json", "json_object", "path", "url")


class RowMapping(Struct, frozen=True, kw_only=True):
    """What of a row is sent, and what of the answer is kept. It pickles, and its JSON stands in every part.

    Exactly one of `body`, `text`, `json`, `json_object`, `path` and `url` is given. In JSON, dates and times are ISO
    8601, durations seconds, decimals strings (a float would change them), maps objects; bytes, NaN and infinities
    cannot be in it.
    """

    body: str | None = None  # a column of bytes, or of texts that go as UTF-8
    text: str | None = None  # a column of texts, sent as text/plain
    json: tuple[str, ...] = ()  # one column: its value; several: an object of them by their names
    json_object: tuple[str, ...] = ()  # an object of columns by their names, also of a single one
    path: str | None = None  # a column of files' names below `root`
    url: str | None = None  # a column of http and https addresses
    root: str | None = None  # a folder; None: the current one
    types: dict[str, FieldType] = {}  # column of texts → their type in JSON
    content_type: str | None = None  # None: what `body` and the like stand for
    headers: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    allow_private: bool = False  # ask private, loopback and link-local addresses, too
    max_request_size: int = MAX_BODY  # bytes of a body
    select: dict[str, str] = {}  # column → PATH[:TYPE] in an answer's JSON
    keep: tuple[str, ...] = ()  # columns that are copied
    encode_binary: bool = False  # answers that are no UTF-8 become base64, told in `answer_encoding`

    def __post_init__(self) -> None:
        """Raise UsageError for a value of a wrong type and for what contradicts itself."""
        for name, kind in _types().items():
            _check_type(name, getattr(self, name), kind)
        given = [name for name in _SOURCES if getattr(self, name)]
        if len(given) != 1:
            what = f"a row's request comes from one of {', '.join(_SOURCES)}"
            raise UsageError(f"{what}, and {' and '.join(given) or 'none of them'} is given")
        if self.root is not None and self.path is None:
            raise UsageError("a root is where the files of a path column lie, and there is none", where=self.root)
        if self.encode_binary and self.select:
            raise UsageError("what is selected from JSON is no binary: base64 is for whole answers")
        for name in self.types:
            if name not in self.json_columns:
                what = "a type says what a text stands for in JSON, and this column goes into none"
                raise UsageError(what, where=name, hint=did_you_mean(name, self.json_columns))
        names = [*self.keep, *(field.name for field in self.answers.fields)]
        taken = {INPUT, ROW}
        for name in names:
            if name in taken:
                hint = "name a selected column otherwise, or keep it not"
                raise UsageError(f"two columns of the output would be called {name}", where=name, hint=hint)
            taken.add(name)

    @property
    def source(self) -> str:
        """Which of `body`, `text`, `json` and the others it is."""
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
    def asked(self) -> tuple[str, ...]:
        """The columns that requests are made of."""
        return self.json_columns or (getattr(self, self.source),)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read: for requests, then those that are only kept."""
        return tuple(dict.fromkeys((*self.asked, *self.keep)))

    @property
    def answers(self) -> AnswerColumns:
        """How answers become columns."""
        return AnswerColumns(self.select, encode_binary=self.encode_binary)

    def check(self, schema: Any, where: str | None = None) -> None:  # Any: pyarrow's schema
        """Raise UsageError for a column that is not there, or of a type that cannot be what is asked for.

        Args:
            schema: Of a table.
            where: What to call the table.
        """
        self.check_names(schema.names, where)
        for name in self.asked:
            kind = schema.field(name).type
            while pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not _fits(self.source, kind):
                what = f"the column {name} is of type {kind}, which {_WANTED[self.source]}"
                raise UsageError(what, where=where, hint=_HINTS[self.source])

    def check_names(self, names: Sequence[str], where: str | None = None) -> None:
        """Raise UsageError for a column that is not there, or there twice; see `check`."""
        for name in self.needed:
            if name not in names:
                hint = did_you_mean(name, names) or f"its columns are {', '.join(names[:20])}"
                raise UsageError(f"there is no column {name}", where=where, hint=hint, code="column-not-found")
            if list(names).count(name) > 1:
                raise UsageError(f"there is more than one column {name}", where=where, code="duplicate-column")


@cache
def _types() -> dict[str, Any]:  # Any: types as msgspec takes them
    return {field.name: field.type for field in fields(RowMapping)}


def _check_type(name: str, value: object, kind: Any) -> None:  # Any: as above
    try:
        msgspec.convert(os.fspath(value) if isinstance(value, os.PathLike) else value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(first_line(error), where=name, hint=f"Set {name} to a value of that type.") from None


_WANTED = {
    "body": "is neither bytes nor text",
    "text": "is no text",
    "json": "JSON cannot hold",
    "json_object": "JSON cannot hold",
    "path": "names no file",
    "url": "is no address",
}
_HINTS = {
    "body": "--json sends a value of any other type",
    "text": "--body sends bytes, --json a value of any other type",
    "json": "--body sends bytes",
    "json_object": "--body sends bytes",
    "path": "name a column of texts",
    "url": "name a column of texts",
}


def _fits(source: str, kind: Any) -> bool:  # Any: pyarrow's type
    if source in {"json", "json_object"}:
        return not _is_bytes(kind)
    if pa.types.is_null(kind):  # nothing but nulls: each row says so
        return True
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return is_text or (source == "body" and _is_bytes(kind))


def _is_bytes(kind: Any) -> bool:  # Any: as above
    every = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in every)
