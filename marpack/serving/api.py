"""What the ports share: a table of routes, its OpenAPI document, and the statistics and log of all responses."""

import asyncio
import json
import logging
import math
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Protocol, TypeVar, get_args
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from msgspec import Struct

from marpack.errors import shortened
from marpack.runner.results import Percentiles, Reservoir
from marpack.serving.http import Headers, HttpRequest, Reply
from marpack.serving.jobs import Job
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ServedModel
from marpack.serving.registry import Registry
from marpack.serving.settings import parse_int
from marpack.torchserve.forms import BAD_ESCAPE
from marpack.torchserve.http import RequestError, Response, TooLargeError, phrase_of
from marpack.version import __version__

T = TypeVar("T", bound=Struct)

JSON = "application/json"
_LOG = logging.getLogger(__name__)
_CHALLENGE = (("WWW-Authenticate", "Bearer"),)
_BITS = random.Random().getrandbits  # noqa: S311 - an id, not a secret; the system's source takes as long as a response
_MAX_CAUSES = 4  # of a status and a route that are counted separately
_MAX_CAUSE = 200  # characters of one
_MAX_CACHED = 256  # characters of a path whose route is kept


class Answered(Struct, frozen=True, kw_only=True, tag_field="event", tag="answered"):
    """The log event of a request."""

    id: str
    method: str
    target: str  # path and query, as the client sent them
    remote: str
    status: int  # 0: the client was gone
    milliseconds: float  # from the end of its head to the response
    model: str | None = None
    version: str | None = None
    queue_ms: float | None = None
    handler_ms: float | None = None  # of its batch


class ServerStatistics:
    """The number of requests and failures of a server, and the response times."""

    def __init__(self) -> None:
        self.requests = 0
        self.failures: Counter[str] = Counter()  # by status and message: "503 Prediction failed"
        self._causes: Counter[tuple[str, str]] = Counter()  # messages of a status and a route
        self._durations = Reservoir()  # ms

    def add(self, status: int, milliseconds: float, cause: str = "", route: str = "") -> None:
        """Count one response of a route; the status is 0 if the client was gone."""
        self.requests += 1
        self._durations.add(milliseconds)
        if 200 <= status < 400:
            return
        text = shortened(f"{status} {cause}", _MAX_CAUSE) if status else "the client was gone"
        if text not in self.failures:  # clients and handlers write causes, and handlers statuses, of any number
            shown = str(status) if status < 600 else "600 or more"
            if self._causes[shown, route] == _MAX_CAUSES:
                text = f"{shown} {route} with other messages"
            else:
                self._causes[shown, route] += 1
        self.failures[text] += 1

    def percentiles(self) -> Percentiles | None:
        """Return the percentiles of response times in ms; None before the first response."""
        return self._durations.percentiles() if self.requests else None


class ServingCore(Struct, frozen=True, kw_only=True):
    """The state that all operations share."""

    ending: asyncio.Event  # set when the server has to end
    registry: Registry
    metrics: ServerMetrics
    statistics: ServerStatistics
    compat: bool = False  # imitate TorchServe also where its behavior is harmful
    open_inference: bool = False  # the setting ts_open_inference_protocol
    log_requests: bool = False
    log_slow: float = math.inf  # seconds; a request that takes longer is logged as a warning

    @property
    def is_healthy(self) -> bool:
        """Whether every model has loaded and has a ready worker."""
        return self.registry.is_healthy_for_torchserve if self.compat else self.registry.is_ready

    def record(self, exchange: "Exchange", response: Response | None) -> None:
        """Count a response, and log it if it is slow or requests are logged; None: the client is gone."""
        status = response.status if response else 0
        milliseconds = (time.perf_counter() - exchange.began) * 1000
        cause = failure_of(response) if response and response.failed else ""
        self.statistics.add(status, milliseconds, cause, exchange.route)
        is_slow = milliseconds > self.log_slow * 1000
        if self.log_requests or is_slow:
            head, model, job = exchange.head, exchange.model, exchange.job
            _LOG.log(
                logging.WARNING if is_slow else logging.INFO,
                Answered(
                    id=exchange.id,
                    method=head.method,
                    target=head.target,
                    remote=head.remote,
                    status=status,
                    milliseconds=milliseconds,
                    model=model.name if model else None,
                    version=model.version if model else None,
                    queue_ms=job.queue_ms if job else None,
                    handler_ms=job.handler_ms if job else None,
                ),
            )


def failure_of(response: Response) -> str:
    """Return the message in the server's own error response."""
    try:
        return str(json.loads(response.body)["message"])
    except (ValueError, KeyError, TypeError):
        return response.phrase


class Head(Protocol):
    """The part of a request that is logged, in HTTP and in gRPC."""

    method: str
    target: str  # path and query, as the client sent them

    @property
    def remote(self) -> str:
        """The client's address."""


class Exchange:
    """One request and the facts about its response, for the log and the statistics."""

    __slots__ = ("began", "head", "id", "job", "model", "route")

    def __init__(self, head: Head) -> None:
        self.began = time.perf_counter()
        digits = f"{_BITS(128):032x}"  # a UUID of version 4, in a third of the time that the library takes
        self.id = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{'89ab'[_BITS(2)]}{digits[17:20]}-{digits[20:]}"
        self.head = head
        self.route = ""  # its path, once it is found
        self.model: ServedModel | None = None
        self.job: Job | None = None


class Call(Exchange):
    """One HTTP request on its way through an operation."""

    __slots__ = ("query", "request")

    def __init__(self, request: HttpRequest, query: str) -> None:
        super().__init__(request)
        self.request = request
        self.query = query

    def reply(self, body: bytes, content_type: str, *, status: int = 200, headers: Headers = ()) -> Reply:
        """Return a response of the server's own."""
        phrase = phrase_of(status)
        response = Response(status=status, phrase=phrase, body=body, content_type=content_type, headers=headers)
        return Reply(response=response, request_id=self.id)

    def json(self, value: Any, *, status: int = 200) -> Reply:  # Any: JSON
        """Return a JSON response as TorchServe formats it."""
        return self.reply(json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n", JSON, status=status)

    def parameters(self, kind: type[T]) -> T:
        """Return the query as a struct of strings, integers and flags.

        As on TorchServe, the first of equal names counts, and an invalid number counts as missing.
        """
        given = dict(reversed(parse_qsl(self.query, keep_blank_values=True)))
        values: dict[str, Any] = {}  # Any: each parameter has its own type
        for name, type_ in _parameter_types(kind).items():
            if type_ is int and (number := parse_int(given.get(name), None)) is not None:
                values[name] = number
            elif type_ is not int and name in given:
                values[name] = given[name] if type_ is str else given[name].lower() == "true"
        return kind(**values)


def _parameter_types(kind: type[Struct]) -> dict[str, type]:
    """Return the type of each field, without None."""
    return {
        field.name: next(each for each in (bool, int, str) if each in (field.type, *get_args(field.type)))
        for field in msgspec.structs.fields(kind)
    }


Operation = Callable[..., Awaitable[Reply]]


class Route(Struct, frozen=True):
    """A path and its operation: literal segments, `{name}` for any one, `*` at the end for all the rest."""

    path: str
    operation: Operation
    methods: frozenset[str] = frozenset()  # empty: any
    admit: Callable[[Call], None] | None = None  # raises RequestError for a request without permission
    query: type[Struct] | None = None  # parameters, for the document
    summary: str = ""  # for the document; by default, the operation's docstring
    takes_body: bool = False
    is_documented: bool = True


@cache
def _pattern(path: str) -> re.Pattern[str]:
    """Return the expression for a route's paths, with a group for each placeholder, and `rest` for the part of `*`."""
    segments = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", re.escape(path.removesuffix("*").rstrip("/")))
    return re.compile(segments + ("(?:/(?P<rest>.*))?" if path.endswith("*") else ""), re.DOTALL)


class Api:
    """The routes of one port."""

    def __init__(self, core: ServingCore, routes: tuple[Route, ...]) -> None:
        self.core = core
        self.routes = routes
        self._find_cached = lru_cache(maxsize=1024)(self._find)  # clients use the same few paths

    def include(self, routes: tuple[Route, ...]) -> None:
        """Add routes after the existing ones."""
        self.routes += routes
        self._find_cached.cache_clear()

    async def handle(self, request: HttpRequest) -> Reply:
        """Answer one request."""
        path, _, query = request.target.partition("?")
        call = Call(request, query)
        try:
            request.check_length()
            route, given = (self._find_cached if len(path) <= _MAX_CACHED else self._find)(request.method, path)
            call.route = route.path
            if route.admit is not None:
                route.admit(call)
            reply = await route.operation(call, **given)
        except RequestError as error:
            if error.status in {413, 417}:  # on TorchServe, the HTTP library gives these, without a body
                announced = isinstance(error, TooLargeError) and request.header("content-length") is not None
                empty = Response(status=error.status, phrase=phrase_of(error.status), body=b"")
                reply = Reply(response=empty, keeps_open=announced)
            else:
                headers = _CHALLENGE if error.status == 401 else ()
                reply = Reply(response=error.response, request_id=call.id, headers=headers)
        except asyncio.CancelledError:  # the client is gone
            self.core.record(call, None)
            raise
        if reply.request_id is not None:
            self.core.metrics.count_response(reply.response.status)
        self.core.record(call, reply.response)
        return reply

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the first route of a method and a path, with the values of its placeholders.

        Raises RequestError: 404, and 405 for a path whose routes take other methods.
        """
        if not path.startswith("/") or path.startswith("//"):
            raise not_found()
        path = path.partition("#")[0]
        check_escapes(path)
        plain = unquote(path).rstrip("/")  # an escaped slash also separates
        matches = [(route, match) for route in self.routes if (match := _pattern(route.path).fullmatch(plain))]
        for route, match in matches:
            if not route.methods or method in route.methods:
                return route, match.groupdict("")
        raise method_not_allowed() if matches else not_found()

    def document_routes(self, admit: Callable[[Call], None] | None = None) -> tuple[Route, Route]:
        """Return the routes to the OpenAPI document of this port."""
        at_root = Route("/", self.document, frozenset({"OPTIONS"}), admit)
        return Route("/api-description", self.document, admit=admit), at_root

    async def document(self, call: Call) -> Reply:
        """Describe the routes of this port."""
        return call.json(openapi_document(self.routes))


async def about(core: ServingCore, call: Call) -> Reply:
    """Return the server's name and version, and the models' names; not on TorchServe."""
    if core.compat:
        raise method_not_allowed()
    names = sorted({model.name for model in core.registry})
    return call.json({"name": "marpack", "version": __version__, "models": names})


def check_escapes(target: str) -> None:
    """Raise RequestError (403) for an invalid percent escape in a path or a query."""
    bad = BAD_ESCAPE.search(target)
    if bad is None:
        return
    at, rest = bad.start(), target[bad.start() + 1 : bad.start() + 3]
    message = f"invalid hex byte '{rest}' at index {at + 1} of '{target}'"
    if len(rest) < 2:
        message = f"unterminated escape sequence at index {at} of: {target}"
    raise RequestError(message, status=403, kind="IllegalArgumentException")


def not_found() -> RequestError:
    """Return the error for an unknown path."""
    message = "Requested resource is not found, please refer to API document."
    return RequestError(message, status=404, kind="ResourceNotFoundException")


def method_not_allowed() -> RequestError:
    """Return the error for a method that a path does not take."""
    message = "Requested method is not allowed, please refer to API document."
    return RequestError(message, status=405, kind="MethodNotAllowedException")


def bad_request(message: str) -> RequestError:
    """Return the error for a wrong parameter."""
    return RequestError(message, status=400, kind="BadRequestException")


_PLACEHOLDER = re.compile(r"{(\w+)}")
_JSON_TYPES: Mapping[type, str] = {str: "string", int: "integer", bool: "boolean"}
_ERROR = {
    "type": "object",
    "properties": {"code": {"type": "integer"}, "type": {"type": "string"}, "message": {"type": "string"}},
}


def openapi_document(routes: tuple[Route, ...], *, model: str | None = None) -> dict[str, Any]:  # Any: JSON
    """Return the OpenAPI 3.0 document of a port's routes, or of those for one model."""
    paths: dict[str, dict[str, Any]] = {}  # Any: JSON
    for route in routes:
        path = route.path.removesuffix("/*")
        if not route.is_documented or (model is not None and "{model_name}" not in path):
            continue
        shown = path if model is None else path.replace("{model_name}", quote(model, safe="", errors="replace"))
        for method in route.methods or {"POST" if route.takes_body else "GET"}:
            paths.setdefault(shown, {}).setdefault(method.lower(), _operation(route, method, path, shown))
    return {
        "openapi": "3.0.3",
        "info": {"title": model or "marpack serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],  # only a server with --token requires one
    }


def _operation(route: Route, method: str, path: str, shown: str) -> dict[str, Any]:  # Any: JSON
    query = _parameter_types(route.query) if route.query is not None else {}
    in_path = dict.fromkeys(_PLACEHOLDER.findall(shown), str)
    parameters = [
        {"name": name, "in": place, "required": place == "path", "schema": {"type": _JSON_TYPES[type_]}}
        for place, types in (("path", in_path), ("query", query))
        for name, type_ in types.items()
    ]
    error = {"description": "Error", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation = {
        "operationId": "_".join(re.findall(r"\w+", f"{method.lower()} {path}")),
        "summary": route.summary or (route.operation.__doc__ or "").partition("\n")[0],
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}, "default": error},
    }
    return operation | ({"requestBody": {"content": {"*/*": {"schema": {}}}}} if route.takes_body else {})
