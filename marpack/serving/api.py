"""What the ports have in common: a request finds its operation in a table, and every answer is counted and told."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from marpack.serving.http import HttpRequest, Reply
from marpack.serving.listener import AnsweredRequest, ServerListener, ServerStatistics
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ServedModel
from marpack.serving.registry import Registry
from marpack.torchserve.forms import BAD_ESCAPE
from marpack.torchserve.http import RequestError, Response, TooLargeError, phrase_of

JSON = "application/json"
_CHALLENGE = (("WWW-Authenticate", "Bearer"),)
_BITS = random.Random().getrandbits  # noqa: S311 - an id, not a secret; the system's source takes as long as an answer


class ServingCore(Struct, frozen=True, kw_only=True):
    """What every operation works on."""

    ending: asyncio.Event  # set once the server has to end
    registry: Registry
    metrics: ServerMetrics
    listener: ServerListener
    statistics: ServerStatistics
    compat: bool = False  # answer as the original does even where that harms
    open_inference: bool = False  # the setting ts_open_inference_protocol
    max_request_size: int
    log_requests: bool = False
    cors: tuple[tuple[str, str], ...] = ()  # headers on every answer


class Call:
    """One request on its way through an operation."""

    __slots__ = ("began", "handler_ms", "id", "model", "query", "queue_ms", "request")

    def __init__(self, request: HttpRequest, query: str) -> None:
        self.began = time.perf_counter()
        self.id = _new_id()
        self.request = request
        self.query = query
        self.model: ServedModel | None = None
        self.queue_ms: float | None = None
        self.handler_ms: float | None = None


def _new_id() -> str:
    """Return a new UUID of version 4, by hand: the library takes three times as long, of every request."""
    digits = f"{_BITS(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{'89ab'[_BITS(2)]}{digits[17:20]}-{digits[20:]}"


Operation = Callable[..., Awaitable[Reply]]


class Route(Struct, frozen=True):
    """A path and what answers it: literal segments, `{name}` for any one, `*` at the end for all the rest."""

    path: str
    operation: Operation
    methods: frozenset[str] = frozenset()  # none: any
    admit: Callable[[Call], None] | None = None  # raises RequestError for a request that may not be answered


class Router:
    """A table of routes, asked by segments."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._routes = [(tuple(route.path.strip("/").split("/")), route) for route in routes]

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a path, and what its placeholders stand for; None: there is none.

        Raises RequestError (405) for a method that none of a path's routes takes.
        """
        refused = False
        for pattern, route in self._routes:
            found = _matched(pattern, segments)
            if found is None:
                continue
            if not route.methods or method in route.methods:
                return route, found
            refused = True
        if refused:
            raise method_not_allowed()
        return None


def _matched(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    if pattern[-1] == "*":
        pattern = pattern[:-1]
        segments, rest = segments[: len(pattern)], segments[len(pattern) :]
        found["rest"] = "/".join(rest)
    if len(pattern) != len(segments):
        return None
    for asked, given in zip(pattern, segments, strict=True):
        name, colon, suffix = asked.partition(":")  # {model}:predict
        value = given.removesuffix(colon + suffix) if colon else given
        if colon and value == given:
            return None
        if name.startswith("{"):
            found[name[1:-1]] = value
        elif asked != given:
            return None
    return found


class Api:
    """What answers one port."""

    def __init__(self, core: ServingCore, routes: tuple[Route, ...]) -> None:
        """Answer for a core by a table of routes."""
        self.core = core
        self.routes: tuple[Route, ...] = ()
        self.include(routes)

    def include(self, routes: tuple[Route, ...]) -> None:
        """Answer these routes, too, where none of those before does."""
        self.routes += routes
        self._router = Router(self.routes)
        self._found = lru_cache(maxsize=1024)(self._find)  # clients ask for the same few paths

    async def handle(self, request: HttpRequest) -> Reply:
        """Answer one request."""
        path, _, query = request.target.partition("?")
        call = Call(request, query)
        try:
            request.check_length()
            route, given = self._found(request.method, path)
            if route.admit is not None:
                route.admit(call)
            reply = await route.operation(call, **given)
        except RequestError as error:
            reply = self._refused(call, error)
        except asyncio.CancelledError:  # the client has gone
            self._tell(call, None)
            raise
        if reply.request_id is not None:
            self.core.metrics.count_answer(reply.response.status)
            if self.core.cors:
                reply.headers = (*self.core.cors, *reply.headers)
        self._tell(call, reply.response)
        return reply

    def _find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        found = self._router.find(method, segments_of(path))
        if found is None:
            raise not_found()
        return found

    def _refused(self, call: Call, error: RequestError) -> Reply:
        response = error.response
        if error.status in {413, 417}:  # the frontend's HTTP library says so, before anything of the server's own does
            announced = isinstance(error, TooLargeError) and call.request.header("content-length") is not None
            return Reply(
                response=Response(status=error.status, phrase=phrase_of(error.status), body=b""), keeps_open=announced
            )
        headers = _CHALLENGE if error.status == 401 else ()
        return Reply(response=response, request_id=call.id, headers=headers)

    def _tell(self, call: Call, response: Response | None) -> None:
        """Count an answer, and tell of it if that is wanted; None: the client has gone."""
        status = response.status if response else 0
        milliseconds = (time.perf_counter() - call.began) * 1000
        cause = _cause(response) if response and response.failed else ""
        self.core.statistics.add(status, milliseconds, cause)
        if not self.core.log_requests:
            return
        model = call.model
        self.core.listener.answered(
            AnsweredRequest(
                id=call.id,
                method=call.request.method,
                target=call.request.target,
                remote=call.request.remote,
                status=status,
                milliseconds=milliseconds,
                model=model.name if model else None,
                version=model.version if model else None,
                queue_ms=call.queue_ms,
                handler_ms=call.handler_ms,
            )
        )


def _cause(response: Response) -> str:
    """Return the words of the server's own error."""
    try:
        return str(json.loads(response.body)["message"])
    except (ValueError, KeyError, TypeError):
        return response.phrase


@lru_cache(maxsize=1024)
def segments_of(path: str) -> tuple[str, ...]:
    """Return a path's segments, decoded; trailing slashes do not count. Raises RequestError for what is no path."""
    if not path.startswith("/") or path.startswith("//"):
        raise not_found()
    path = path.partition("#")[0]
    check_escapes(path)
    return tuple(unquote(path).rstrip("/")[1:].split("/"))  # an escaped slash is one


def check_escapes(target: str) -> None:
    """Raise RequestError (403) for a path or a query with a percent sign that begins no escape."""
    bad = BAD_ESCAPE.search(target)
    if bad is None:
        return
    at, rest = bad.start(), target[bad.start() + 1 : bad.start() + 3]
    message = f"invalid hex byte '{rest}' at index {at + 1} of '{target}'"
    if len(rest) < 2:
        message = f"unterminated escape sequence at index {at} of: {target}"
    raise RequestError(message, status=403, kind="IllegalArgumentException")


def not_found() -> RequestError:
    """Return the refusal of a path that nothing answers."""
    message = "Requested resource is not found, please refer to API document."
    return RequestError(message, status=404, kind="ResourceNotFoundException")


def method_not_allowed() -> RequestError:
    """Return the refusal of a method that a path does not take."""
    message = "Requested method is not allowed, please refer to API document."
    return RequestError(message, status=405, kind="MethodNotAllowedException")


def bad_request(message: str) -> RequestError:
    """Return the refusal of a parameter."""
    return RequestError(message, status=400, kind="BadRequestException")


def json_reply(call: Call, value: Any, *, status: int = 200) -> Reply:  # Any: what JSON holds
    """Return an answer of the server's own: JSON with two-space indent and a final newline."""
    body = json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    response = Response(status=status, phrase=phrase_of(status), body=body, content_type=JSON)
    return Reply(response=response, request_id=call.id)


def status_reply(call: Call, text: str, *, status: int = 200) -> Reply:
    """Return the JSON `{"status": text}`."""
    return json_reply(call, {"status": text}, status=status)
