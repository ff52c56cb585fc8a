"""Rows → requests → responses: each request is made when the handler needs it, and a failed row costs only itself."""

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
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input, refused, request_id, type_of, unreadable
from marpack.runner.pool import Batch
from marpack.scoring.mapping import Failure, FieldType, RowMapping, failure_of
from marpack.scoring.storage import FileFolder, UrlFetcher
from marpack.scoring.tables import RowBatch, UnreadableValue, python_values
from marpack.torchserve.forms import parts_of, receive
from marpack.torchserve.http import Request, RequestError, Response

Columns = Mapping[str, Any]  # Any: a list, an array of numpy's or of Arrow's; or a whole RecordBatch
_NUMBERS = 1 << 32  # request ids of one input
_NONE = Response(status=0, body=b"")
_FETCHED_AHEAD = 16  # addresses fetched at once: servers take longer to respond than handlers


class RowRequests:
    """Makes the requests of a mapping's rows."""

    def __init__(self, mapping: RowMapping) -> None:
        """Prepare the common part of all requests; raises UsageError for a root that is not a folder."""
        self._mapping = mapping
        self._source = mapping.source
        self.bare_column = mapping.bare_column
        self._files = FileFolder(mapping.root) if mapping.path else None
        self._fetcher = UrlFetcher(allow_private=mapping.allow_private, max_bytes=mapping.max_request_size)
        self._heads: dict[str | None, Request] = {}  # content type → a request without a body

    def inputs(self, columns: Columns, first_number: int = 0) -> Iterator[Input]:
        """Yield one input per row, in order, each made when it is needed; the first has the number `first_number`.

        A row that cannot become a request (null, of a wrong type, a file or an address that cannot be read) becomes a
        refused input, with status 0 and the reason; one that the server would refuse has the server's status.
        """
        values = [python_values(columns[name]) for name in self._mapping.request_columns]
        rows = enumerate(zip(*values, strict=True), first_number)
        make = (partial(self._input, number, row) for number, row in rows)
        return _prefetched(make) if self._mapping.url else (each() for each in make)

    def _input(self, number: int, row: tuple[Any, ...]) -> Input:  # Any: of any column
        identity, mapping = request_id(number), self._mapping
        try:
            content_type, body = self._body(row)
            kind = content_type if mapping.content_type is None else mapping.content_type
            if kind not in self._heads:
                self._heads[kind] = receive(mapping.headers, b"", request_id="", content_type=kind or None)
            headers = self._heads[kind].headers
            own_type = next((value for name, value in headers if name.lower() == "content-type"), None)
            parts = parts_of(own_type, body, limit=mapping.max_request_size)
        except UsageError as error:
            return unreadable(identity, error)
        except RequestError as error:
            return refused(identity, error, Request(id=identity, parts=(), explain=mapping.explain))
        return Input(identity, Request(id=identity, parts=parts, headers=headers, explain=mapping.explain))

    def _body(self, row: tuple[Any, ...]) -> tuple[str, bytes]:  # Any: as above
        """Return a row's content type and body. Raises UsageError."""
        source = self._source
        if source in ("json", "json_object"):
            return "application/json", self._json_body(row)
        value = self._present(row[0])
        if source == "body" and isinstance(value, bytes):
            return "", value
        if not isinstance(value, str):
            what = "neither bytes nor text" if source == "body" else "not a text"
            remedy = "; send the column with --json" if source in ("body", "text") else ""
            raise UsageError(f"a value of type {type(value).__name__} is {what}{remedy}")
        if source == "url":
            data = self._fetcher.fetch(value)
            return type_of(value, data), data
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the column {self._mapping.request_columns[0]} is not UTF-8 in this row") from None
        if self._files is not None:
            data = self._files.read(value, self._mapping.max_request_size)
            return type_of(value, data), data
        return "text/plain" if source == "text" else "", encoded

    def _json_body(self, row: tuple[Any, ...]) -> bytes:  # Any: as above
        names, content = self._mapping.json_columns, {}
        for name, value in zip(names, row, strict=True):
            if isinstance(value, UnreadableValue):
                raise UsageError(value.why)
            kind = self._mapping.types.get(name, FieldType.TEXT)
            content[name] = value
            if kind is not FieldType.TEXT and isinstance(value, str):
                try:
                    content[name] = _READ[kind](value) if value.strip() else None
                except (ValueError, KeyError, RecursionError):
                    raise UsageError(f"the column {name} contains an invalid {kind} in this row") from None
        try:
            is_bare = self.bare_column is not None
            return _JSON.encode(self._present(content[names[0]]) if is_bare else content).encode()
        except (TypeError, RecursionError) as error:
            raise UsageError(f"JSON cannot represent this row: {first_line(error)}") from None
        except ValueError:
            what = "JSON cannot represent this row: it contains NaN or an infinite number; replace it with null"
            raise UsageError(what) from None

    def _present(self, value: Any) -> Any:  # Any: as above
        if isinstance(value, UnreadableValue):
            raise UsageError(value.why)
        if value is None:
            raise UsageError(f"the column {self._mapping.request_columns[0]} is null in this row")
        return value


_READ: dict[FieldType, Callable[[str], object]] = {
    FieldType.FLOAT: float,
    FieldType.INT: int,
    FieldType.BOOL: lambda text: {"true": True, "false": False, "1": True, "0": False}[text.strip().lower()],
    FieldType.JSON: json.loads,
}


def _as_json(value: object) -> object:
    """Return the JSON form of a value that JSON does not know; raises TypeError for one without."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
    raise TypeError(f"convert the value of type {type(value).__name__} to text or a number")


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_json)


_Task = tuple[Callable[[], Input], "Future[Input]"]


def _prefetched(make: Iterator[Callable[[], Input]]) -> Generator[Input, None, None]:
    """Yield inputs in order, some of them made ahead in threads.

    Nothing waits for these threads: when the inputs are abandoned or the process ends, a fetch in progress does not
    delay it. If the process goes on, such a fetch ends by its own deadline.
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
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(make())
            except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
                future.set_exception(error)


class Chunk:
    """Consecutive rows, and their responses as far as they are known."""

    def __init__(self, number: int, rows: RowBatch) -> None:
        """Take some rows of the input of a number."""
        self.number = number
        self.rows = rows
        self.left = rows.count  # rows without a response
        self.responses: list[Response] = [_NONE] * rows.count
        self._bare_column: str | None = None
        self.failures: dict[int, Failure] = {}  # by the place of their rows

    def batches(self, maker: RowRequests, size: int) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the requests, `size` at a time, with the places of their rows; settle the rows without one."""
        self._bare_column = maker.bare_column
        requests: list[Request] = []
        places: list[int] = []
        inputs = maker.inputs(self.rows.columns, self.number * _NUMBERS + self.rows.first)
        for place, item in enumerate(inputs):
            if item.refused is not None:
                self._settle(place, item.refused, failure_of(item.refused, (item.why,) if item.why else ()))
                continue
            requests.append(item.request)
            places.append(place)
            if len(requests) == size:
                yield tuple(requests), places
                requests, places = [], []
        if requests:
            yield tuple(requests), places

    def settle(self, places: list[int], outcomes: tuple[BatchResult, ...]) -> None:
        """Take the responses of a batch, whose requests were sent together or one by one."""
        answers = [(response, outcome.troubles) for outcome in outcomes for response in outcome.responses]
        for place, (response, troubles) in zip(places, answers, strict=True):
            self._settle(place, response, failure_of(response, troubles, self._bare_column))

    def _settle(self, place: int, response: Response, failure: Failure | None) -> None:
        self.responses[place] = response
        self.left -= 1
        if failure is not None:
            self.failures[place] = failure
