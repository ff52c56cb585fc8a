"""The gRPC front: TorchServe's and KServe's inference services beside HTTP, with the same jobs, limits and log."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from msgspec import Struct
from msgspec.structs import replace

from marpack.serving.access import Admission
from marpack.serving.api import JSON, Exchange, ServingCore, bad_request, failure_of
from marpack.serving.grpc_messages import KSERVE, POOL, SERVICES, message_classes, methods
from marpack.serving.grpc_tensors import infer_response, request_json
from marpack.serving.http import HttpSettings, Reply, open_socket, wait_for
from marpack.serving.inference import submit
from marpack.serving.jobs import StreamAbortedError
from marpack.serving.models import ModelState, ServedModel
from marpack.serving.settings import GrpcSettings
from marpack.torchserve.http import Part, Request, RequestError, Response
from marpack.version import __version__

_HEALTH = "grpc.health.v1.Health"
_POLL = 0.2  # seconds between two checks of the health for a client that watches it
_DRAIN_START = 0.3  # seconds for such clients to notice the end, and for received calls to reach their method
_LARGE = 1 << 16  # bytes of tensors that a thread converts, beside other calls
_NEVER = 2**31 - 1  # ms

# As on TorchServe: gRPC's codes by HTTP's statuses, or by their hundreds; otherwise UNKNOWN.
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_CODE_OF_STATUS = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 413: 8, 416: 11, 429: 8, 499: 1, 501: 12, 503: 14, 504: 4}
_CODE_OF_HUNDREDS, _UNKNOWN = {4: 9, 5: 13}, 2
_JOB = "InternalServerException"  # the kind of the errors of jobs
# By the kind of an error, its code, if that is not the status's, and the second line of the details.
_DETAILS: Mapping[str, tuple[int | None, str]] = {
    "InvalidKeyException": (7, ""),
    "BadRequestException": (13, "BadRequestException.()"),
    "ServiceUnavailableException": (13, "InternalServerException.()"),
    _JOB: (None, "org.pytorch.serve.http.InternalServerException"),
    "ModelNotFoundException": (13, "org.pytorch.serve.archive.model.ModelNotFoundException"),
    "ModelVersionNotFoundException": (13, "org.pytorch.serve.archive.model.ModelVersionNotFoundException"),
}
_QUERIES = ("/ModelReady", "/ModelMetadata")  # whose code for an unknown model is that of the status


class _Head(Struct):
    method: str
    target: str
    remote: str


# Any stands for the types of grpc and protobuf, which are not declared.
class GrpcServer:
    """The services on one address."""

    def __init__(self, core: ServingCore, admission: Admission, settings: GrpcSettings, limits: HttpSettings) -> None:
        self._core = core
        self._admission = admission
        self._address = settings.address
        self._running: set[Any] = set()  # the contexts of calls for which the drain waits
        options = (
            ("grpc.so_reuseport", 0),  # an address in use is an error
            ("grpc.max_allowed_incoming_connections", limits.max_connections),
            ("grpc.max_receive_message_length", limits.max_request_size),
            ("grpc.max_connection_age_ms", settings.max_connection_age or _NEVER),
            ("grpc.max_connection_age_grace_ms", settings.max_connection_age_grace or _NEVER),
        )
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.max_connections)
        hidden = () if core.open_inference or not core.compat else KSERVE
        self._names = [name for name in SERVICES if name not in hidden]
        services = [grpc.method_handlers_generic_handler(name, self._handlers(name)) for name in self._names]
        self._server.add_generic_rpc_handlers(services)
        health = health_pb2_grpc.HealthServicer()  # without tokens: probes have none
        health.Check, health.Watch = self._check_health, self._watch_health
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        reflection.enable_server_reflection((*self._names, reflection.SERVICE_NAME, _HEALTH), self._server, pool=POOL)

    async def listen(self) -> str:
        """Answer from now on; return host and port. Raises UsageError for an address that is not available."""
        with open_socket(self._address) as probe:  # grpc does not report why an address is not available
            address = replace(self._address, host=probe.getsockname()[0])
        port = self._server.add_insecure_port(address.place)
        await self._server.start()
        return replace(address, port=port).place

    async def drain(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Refuse further calls, and wait for running ones, at most `seconds` or until `until()` is true."""
        end = time.monotonic() + seconds
        stopping = asyncio.create_task(self._server.stop(seconds))
        await wait_for(until, time.monotonic() + min(seconds, _DRAIN_START))
        await wait_for(lambda: until() or not self._running, end)
        await asyncio.gather(self.close(), stopping)

    async def close(self) -> None:
        """Close the address and every connection; abort running calls."""
        await self._server.stop(None)

    def _handlers(self, service: str) -> Mapping[str, Any]:
        found = dict[str, Any]()
        for name, method in methods(service).items():
            kinds = ["stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)]
            operation = self._stream if kinds == ["unary", "stream"] else self._answer
            make = getattr(grpc, "{}_{}_rpc_method_handler".format(*kinds))
            found[name] = make(partial(self._call, f"/{service}/{name}", partial(operation, *message_classes(method))))
        return found

    async def _call(self, target: str, operation: Callable[..., Awaitable[Any]], data: Any, context: Any) -> Any:
        """Check a call's token, make the call, count and log it; end it with the code of an error."""
        peer = unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")  # of "ipv4:HOST:PORT"
        exchange, encoded, error = Exchange(_Head("gRPC", target, peer)), None, None
        exchange.route = target
        self._running.add(context)
        context.add_done_callback(self._running.discard)
        try:
            if self._admission.tokens is not None:
                given = [value for name, value in context.invocation_metadata() if name == "authorization"]
                self._admission.check_token(given[0] if len(given) == 1 else None)
            encoded = await operation(exchange, data, context)
        except asyncio.CancelledError:  # the client is gone, or its deadline has passed
            self._core.record(exchange, None)
            raise
        except RequestError as refusal:
            error = refusal
        except DecodeError as problem:
            error = RequestError(f"invalid message: {problem}", kind="")
        except Exception as bug:  # noqa: BLE001 - grpc would hide it
            error = RequestError("the server failed on this request; see its log for the error", status=500, kind=_JOB)
            asyncio.get_running_loop().call_exception_handler({"message": error.message, "exception": bug})
        response = error.response if error else Response(status=200, body=b"")
        self._core.metrics.count_response(response.status)
        self._core.record(exchange, response)
        if error:
            await context.abort(*_code_and_details(error, is_query=target.endswith(_QUERIES)))
        return encoded

    async def _answer(self, request: Any, response: Any, exchange: Exchange, data: Any, _: Any) -> Any:
        if not isinstance(data, bytes):  # a stream of requests
            raise RequestError("sequences are not supported; call StreamPredictions", status=501, kind="")
        return (await self._operate(exchange, request.FromString(data), response)).SerializeToString()

    async def _operate(self, exchange: Exchange, request: Any, response: Any) -> Any:
        """Return a method's response, of the class `response`; raise RequestError."""
        core = self._core
        match exchange.head.target.rpartition("/")[2]:
            case "Predictions":
                return response(prediction=await self._predict(exchange, request))
            case "ModelInfer":
                return await self._infer(exchange, request, response)
            case "Ping":
                return response(health=json.dumps({"status": "Healthy" if core.is_healthy else "Unhealthy"}, indent=2))
            case "ServerLive":
                return response(live=True)
            case "ServerReady":
                return response(ready=core.compat or core.registry.is_ready)
            case "ModelReady":
                model = self._find(exchange, request.name, request.version, "name")
                return response(ready=bool(model.workers) if core.compat else model.state is ModelState.READY)
            case "ModelMetadata":
                model = self._find(exchange, request.name, request.version)
                return response(name=model.name, versions=core.registry.versions(model.name))
            case "ServerMetadata" if not core.compat:
                return response(name="marpack", version=__version__)
        raise RequestError(f"Method {exchange.head.target[1:]} is unimplemented", status=501, kind="")

    async def _infer(self, exchange: Exchange, request: Any, response: Any) -> Any:
        body = await asyncio.to_thread(request_json, request) if request.ByteSize() > _LARGE else request_json(request)
        result = await self._predict(exchange, request, Part("body", body, JSON))
        convert = partial(infer_response, response, result, raw=bool(request.raw_input_contents))
        return await asyncio.to_thread(convert) if len(result) > _LARGE else convert()

    async def _predict(self, exchange: Exchange, request: Any, *parts: Part) -> bytes:
        reply = await self._submit(exchange, request, *parts)
        return b"".join([piece async for piece in _pieces(reply)]) if reply.stream else reply.response.body

    async def _stream(self, request: Any, response: Any, exchange: Exchange, data: bytes, context: Any) -> None:
        async with aclosing(_pieces(await self._submit(exchange, request.FromString(data)))) as pieces:
            async for piece in pieces:
                await context.write(response(prediction=piece).SerializeToString())

    async def _submit(self, exchange: Exchange, request: Any, *parts: Part) -> Reply:
        """Send parts, or the inputs of a request, to its model; raise RequestError if that fails."""
        model = self._find(exchange, request.model_name, request.model_version)
        parts = parts or tuple([Part(name, value) for name, value in request.input.items()])
        given = Request(id=exchange.id, parts=parts, url_path=None, explain=None)
        reply = await submit(exchange, model, request.model_version or None, given)
        if reply.response.failed or reply.response.reset:
            raise RequestError(failure_of(reply.response), status=reply.response.status, kind=_JOB)
        return reply

    def _find(self, exchange: Exchange, name: str, version: str, parameter: str = "model_name") -> ServedModel:
        if not name:
            raise bad_request(f"Parameter {parameter} is required.")
        exchange.model = model = self._core.registry.find(name, version or None)
        return model

    def _health(self, request: Any) -> Any:
        status = "SERVING" if self._core.is_healthy and not self._core.ending.is_set() else "NOT_SERVING"
        is_known = request.service in ("", _HEALTH, *self._names)
        return health_pb2.HealthCheckResponse(status=status if is_known else "SERVICE_UNKNOWN")

    async def _check_health(self, request: Any, context: Any) -> Any:
        health = self._health(request)
        if health.status == health.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health

    async def _watch_health(self, request: Any, context: Any) -> None:
        last = None
        while (health := self._health(request)) != last or not self._core.ending.is_set():
            if health != last:
                await context.write(health)
            last = health
            await asyncio.sleep(_POLL)


async def _pieces(reply: Reply) -> AsyncGenerator[bytes, None]:
    if reply.stream is None:
        yield reply.response.body
        return
    try:
        async for piece in reply.stream.pieces():
            yield piece
    except StreamAbortedError:
        raise RequestError("Prediction failed", status=503, kind=_JOB) from None
    finally:
        reply.stream.leave()


def _code_and_details(error: RequestError, *, is_query: bool) -> tuple[grpc.StatusCode, str]:
    """Return TorchServe's code and details for an error."""
    code, line = _DETAILS.get(error.kind, (None, ""))
    if code is None or (is_query and error.status == 404):
        code = _CODE_OF_STATUS.get(error.status) or _CODE_OF_HUNDREDS.get(error.status // 100, _UNKNOWN)
    return _CODES[code], f"{error.message}\n{line}".rstrip("\n")
