"""Rows → requests, one at a time as they are asked for; a row that cannot become one costs only itself."""

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any

from marpack.errors import UsageError, first_line
from marpack.runner.inputs import Input, refused, request_id, type_of, unreadable
from marpack.scoring.answers import FieldType
from marpack.scoring.batches import UnreadableValue, python_values
from marpack.scoring.fetching import fetch_url
from marpack.scoring.mapping import RowMapping
from marpack.scoring.storage import FileFolder
from marpack.torchserve.forms import parts_of, receive
from marpack.torchserve.http import Request, RequestError

Columns = Mapping[str, Any]  # Any: a list, an array of numpy's or of Arrow's; or a whole RecordBatch
_FETCHED_AHEAD = 16  # addresses asked at once: servers take longer to answer than handlers
_SECONDS = 30.0  # that one address may take


class RowRequests:
    """Makes the requests of a mapping's rows."""

    def __init__(self, mapping: RowMapping) -> None:
        """Prepare what all requests have in common; raises UsageError for a root that is no folder."""
        self._mapping = mapping
        self.bare_column = mapping.bare_column
        self._files = FileFolder(mapping.root) if mapping.path else None
        self._heads: dict[str | None, Request] = {}  # content type → a request without a body
        # source → a row's values → its content type and body
        self._bodies: Callable[[tuple[Any, ...]], tuple[str, bytes]] = getattr(self, f"_from_{mapping.source}")

    def inputs(self, columns: Columns, first_number: int = 0) -> Iterator[Input]:
        """Yield one input per row, in order, each made when it is asked for; the first is of number `first_number`.

        A row that cannot become a request (null, of a wrong type, a file or an address that cannot be read) is an
        input that is refused, with status 0 and the reason; one that the server would refuse has its status.
        """
        values = [python_values(columns[name]) for name in self._mapping.asked]
        rows = enumerate(zip(*values, strict=True), first_number)
        make = (partial(self._input, number, row) for number, row in rows)
        return _prefetched(make) if self._mapping.url else (each() for each in make)

    def _input(self, number: int, row: tuple[Any, ...]) -> Input:  # Any: of any column
        identity = request_id(number)
        try:
            content_type, body = self._bodies(row)
            head = self._head(content_type)
            parts = parts_of(_content_type(head), body, limit=self._mapping.max_request_size)
        except UsageError as error:
            return unreadable(identity, error)
        except RequestError as error:
            return refused(identity, error, Request(id=identity, parts=(), explain=self._mapping.explain))
        return Input(identity, Request(id=identity, parts=parts, headers=head.headers, explain=self._mapping.explain))

    def _head(self, content_type: str) -> Request:
        """Return a request with the headers that all of a content type have; raises RequestError."""
        kind = self._mapping.content_type if self._mapping.content_type is not None else content_type
        if kind not in self._heads:
            self._heads[kind] = receive(self._mapping.headers, b"", request_id="", content_type=kind or None)
        return self._heads[kind]

    def _from_body(self, row: tuple[Any, ...]) -> tuple[str, bytes]:
        value = self._present(row[0])
        return "", value if isinstance(value, bytes) else _encoded(_text(value, "neither bytes nor text"))

    def _from_text(self, row: tuple[Any, ...]) -> tuple[str, bytes]:
        return "text/plain", _encoded(_text(self._present(row[0])))

    def _from_json(self, row: tuple[Any, ...]) -> tuple[str, bytes]:
        names = self._mapping.json_columns
        values = [self._typed(name, _readable(value)) for name, value in zip(names, row, strict=True)]
        is_bare = self._mapping.bare_column is not None
        what = self._present(values[0]) if is_bare else dict(zip(names, values, strict=True))
        try:
            return "application/json", _JSON.encode(what).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"JSON cannot hold this row: {first_line(error)}") from None

    _from_json_object = _from_json

    def _from_path(self, row: tuple[Any, ...]) -> tuple[str, bytes]:
        assert self._files is not None  # noqa: S101 - see __init__
        name = _encoded(_text(self._present(row[0]))).decode()
        data = self._files.read(name, self._mapping.max_request_size)
        return type_of(name, data), data

    def _from_url(self, row: tuple[Any, ...]) -> tuple[str, bytes]:
        mapping, url = self._mapping, _text(self._present(row[0]))
        allowed, most = mapping.allow_private, mapping.max_request_size
        data = fetch_url(url, allow_private=allowed, max_bytes=most, seconds=_SECONDS)
        return type_of(url, data), data

    def _present(self, value: Any) -> Any:  # Any: as above
        if _readable(value) is None:
            raise UsageError(f"the column {self._mapping.asked[0]} is null in this row")
        return value

    def _typed(self, name: str, value: Any) -> Any:  # Any: as above
        """Return what a text stands for, where the mapping says that it stands for anything."""
        kind = self._mapping.types.get(name, FieldType.TEXT)
        if kind is FieldType.TEXT or not isinstance(value, str):
            return value
        try:
            return _READ[kind](value) if value.strip() else None
        except (ValueError, KeyError, RecursionError):
            raise UsageError(f"the column {name} holds in this row what is no {kind}") from None


_READ: dict[FieldType, Callable[[str], object]] = {
    FieldType.FLOAT: float,
    FieldType.INT: int,
    FieldType.BOOL: lambda text: {"true": True, "false": False, "1": True, "0": False}[text.strip().lower()],
    FieldType.JSON: json.loads,
}


_Task = tuple[Callable[[], Input], "Future[Input]"]


def _prefetched(make: Iterator[Callable[[], Input]]) -> Generator[Input, None, None]:
    """Yield inputs in order, some of them made ahead by threads of their own.

    Nothing waits for these threads: when the inputs are given up or the process ends, a fetch in progress does not
    delay it. Where the process goes on, such a fetch ends by its own deadline.
    """
    tasks: SimpleQueue[_Task | None] = SimpleQueue()
    ahead: deque[Future[Input]] = deque()

    def submit(count: int) -> None:
        for each in islice(make, count):
            ahead.append(Future())
            tasks.put((each, ahead[-1]))

    for _ in range(_FETCHED_AHEAD):
        Thread(target=_make_inputs, args=(tasks,), name="marpack-fetch", daemon=True).start()
    try:
        submit(_FETCHED_AHEAD)
        while ahead:
            yield ahead.popleft().result()
            submit(1)
    finally:
        for future in ahead:
            future.cancel()
        for _ in range(_FETCHED_AHEAD):
            tasks.put(None)


def _make_inputs(tasks: "SimpleQueue[_Task | None]") -> None:
    while (task := tasks.get()) is not None:
        make, future = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            future.set_exception(error)


def _content_type(head: Request) -> str | None:
    return next((value for name, value in head.headers if name.lower() == "content-type"), None)


def _readable(value: Any) -> Any:  # Any: as above
    if isinstance(value, UnreadableValue):
        raise UsageError(value.why)
    return value


def _text(value: object, wrong: str = "no text") -> str:
    if not isinstance(value, str):
        raise UsageError(f"a value of type {type(value).__name__} is {wrong}")
    return value


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError("this text is not UTF-8") from None


def _plain(value: object) -> object:
    """Return what stands in JSON for a value that it does not know; raises TypeError for one that has no such."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
