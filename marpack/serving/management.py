"""The management port, where models are listed, described, registered from the store and scaled; the metrics port."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.addresses import is_http, public_address
from marpack.archive.protocol import quoted
from marpack.errors import ArchiveError, MarpackError, OutputError, UsageError, first_line
from marpack.project.source import ResolvedSource
from marpack.serving.access import Admission, TokenKind
from marpack.serving.api import JSON, Api, Call, Operation, Route, ServingCore, bad_request
from marpack.serving.http import Reply
from marpack.serving.jobs import StreamedResponse
from marpack.serving.loading import ModelLoader, ModelPlan, ModelStore, RemoteStore, run_in_loading_thread
from marpack.serving.metrics import CONTENT_TYPE
from marpack.serving.models import ModelState, ServedModel, WorkerState, log_failure
from marpack.serving.settings import ModelTuning
from marpack.torchserve.forms import bare_type, read_headers
from marpack.torchserve.http import Request, RequestError, death_response

T = TypeVar("T")
AddModel = Callable[[ModelPlan], ServedModel]  # raises RequestError if the version exists
_Work = Coroutine[Any, Any, T]  # Any: as in typing.Coroutine
Begin = Callable[[_Work[Any]], "asyncio.Task[Any]"]  # Any: tasks of all kinds

_SWITCHES = ("continuousBatching", "useJobTicket", "useVenv")  # of the model config, described unchanged
_SEQUENCES = {"sequenceMaxIdleMSec": 0, "sequenceTimeoutMSec": 0, "maxNumSequence": 1, "maxSequenceJobQueueSize": 1}
_UNKNOWN_PID = -1
_PAGE = 100  # models, at most
_MAX_WORKERS = 1000  # of one model
_MAX_INT = 2**31 - 1  # of Java
_NAME = re.compile(r"(?!\.+\Z)[\w.-]+", re.ASCII)  # `.` and `..` are folders in paths
_RUNTIMES = {"", "python", "python3"}
_IN_PROGRESS = "Processing worker updates..."
_RENEWABLE = {"management": TokenKind.MANAGEMENT, "inference": TokenKind.INFERENCE}


class _Listing(Struct, frozen=True):
    limit: int = _PAGE
    next_page_token: int = 0


class _Describing(Struct, frozen=True):
    customized: bool = False


class _Scaling(Struct, frozen=True):
    min_worker: int = 1
    max_worker: int | None = None
    model_version: str | None = None
    synchronous: bool = False


class _Renewing(Struct, frozen=True):
    type: str = ""


class Registration(Struct, frozen=True, kw_only=True):
    """The parameters of a request to register a model, in its query or its JSON body."""

    url: str | None = None
    digest: str | None = None  # of the file at an http or https url
    model_name: str | None = None
    handler: str | None = None
    runtime: str | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None  # ms
    initial_workers: int | None = None
    synchronous: bool | None = None
    response_timeout: int | None = None  # s
    startup_timeout: int | None = None  # s

    @classmethod
    def from_json(cls, body: bytes, *, compat: bool) -> Self:
        """Read a JSON object; raise RequestError for another body."""
        try:
            return msgspec.json.decode(body, type=cls, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            status, kind = (500, "JsonSyntaxException") if compat else (400, "BadRequestException")
            message = f"The body is not a JSON object of parameters: {first_line(error)}"
            raise RequestError(message, status=status, kind=kind) from None

    def check(self) -> None:
        """Raise RequestError (400) for a missing or wrong parameter."""
        if (self.runtime or "") not in _RUNTIMES:
            raise bad_request(f"Invalid RuntimeType value: {self.runtime}")
        if self.model_name and not _NAME.fullmatch(self.model_name):
            raise bad_request("Parameter model_name allows only letters, digits, '_', '.' and '-'.")
        if (self.initial_workers or 0) > _MAX_WORKERS:
            raise bad_request(f"Parameter initial_workers allows at most {_MAX_WORKERS}.")
        if self.url is None:
            raise bad_request("Parameter url is required.")

    def tuning(self, default_workers: int) -> ModelTuning:
        """Return the settings for the model; integers out of range count as missing."""
        workers = default_workers if self.initial_workers is None else max(0, self.initial_workers)
        lowest = {"batch_size": 1, "max_batch_delay": 0, "response_timeout": 1, "startup_timeout": 1}
        given = {name: getattr(self, name) for name in lowest}
        valid = {name: each for name, each in given.items() if each is not None and lowest[name] <= each <= _MAX_INT}
        return ModelTuning(min_workers=workers, max_workers=workers, **valid)


def describe_model(model: ServedModel) -> dict[str, Any]:  # Any: JSON
    """Return the description of a model version."""
    settings, prepared, config = model.settings, model.prepared, model.prepared.config
    uses_gpu = prepared.load.gpu_id is not None
    has_sequences = config.get("sequenceBatching") is True
    given = {key: config.get(key) for key in _SEQUENCES}
    sequences = {key: value if type(value) is int and value else _SEQUENCES[key] for key, value in given.items()}
    return {
        "modelName": model.name,
        "modelVersion": model.version,
        "modelUrl": model.url,
        "runtime": prepared.archive.manifest.runtime,
        "minWorkers": settings.min_workers,
        "maxWorkers": settings.max_workers,
        "batchSize": settings.batch_size,
        "maxBatchDelay": settings.max_batch_delay,
        "responseTimeout": settings.response_timeout,
        "startupTimeout": settings.startup_timeout,
        "maxRetryTimeoutInSec": settings.retry_seconds,
        "clientTimeoutInMills": settings.client_timeout,
        "parallelType": "",  # marpack runs a model in one process
        "parallelLevel": 0,
        "deviceType": "gpu" if uses_gpu else "cpu",
        **{key: config.get(key) is True for key in _SWITCHES},
        "stateful": has_sequences,
        **(sequences if has_sequences else dict.fromkeys(_SEQUENCES, 0)),
        "loadedAtStartup": model.loaded_at_start,
        "workers": [
            {
                "id": str(worker.number),
                "startTime": worker.started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "status": "READY" if worker.state is WorkerState.READY else "UNLOADING",
                "memoryUsage": worker.memory,
                "pid": _UNKNOWN_PID if worker.pid is None else worker.pid,
                "gpu": uses_gpu,
                "gpuUsage": "N/A",
            }
            for worker in model.workers
        ],
        "jobQueueStatus": {
            "remainingCapacity": model.queue.capacity - len(model.queue),
            "pendingRequests": len(model.queue),
        },
    }


_MODEL, _VERSION = "/models/{model_name}", "/models/{model_name}/{model_version}"
_SET_BY_US = {"describe", "content-length"}  # headers


class ModelApi(Struct, frozen=True, kw_only=True):
    """How requests register models."""

    store: ModelStore
    loader: ModelLoader
    default_workers: int = 0  # for requests without a number
    remote: RemoteStore | None = None  # None: not from addresses


class ManagementApi(Api):
    """The routes to list, describe, register, scale and unregister models."""

    def __init__(
        self, core: ServingCore, *, model_api: ModelApi | None, add: AddModel, admission: Admission, begin: Begin
    ) -> None:
        """Take the parts; `add` serves a planned model, and `begin` starts work in the background.

        Without a `model_api`, models cannot be registered or unregistered.
        """
        self.admission = admission
        self._model_api = model_api
        self._add_model = add
        self._begin_work = begin
        rows: list[tuple[str, str, Operation, type[Struct] | None]] = [
            ("GET", "/models", self.list_models, _Listing),
            *(("GET", path, self.describe, _Describing) for path in (_MODEL, _VERSION)),
            *(("PUT", path, self.scale, _Scaling) for path in (_MODEL, _VERSION)),
            ("PUT", f"{_VERSION}/set-default", self.set_default, None),
            ("GET", f"{_VERSION}/set-default", self.describe_default, None),
            ("GET", "/v1/models/{model_name}", self.v1_model, None),
        ]
        if model_api is not None:
            rows.append(("POST", "/models", self.register, Registration))
            rows += [("DELETE", path, self.unregister, None) for path in (_MODEL, _VERSION)]
        rows += [("OPTIONS", path, self.describe_routes, None) for path in (_MODEL, _VERSION)]
        routes = [Route(path, each, frozenset({method}), admission.check, query) for method, path, each, query in rows]
        if admission.tokens:
            routes.append(Route("/token", self.token, admit=admission.check_origin, query=_Renewing))
        super().__init__(core, (*routes, *self.document_routes(admission.check_origin)))

    def shared_routes(self) -> tuple[Route, ...]:
        """Return the routes for a port that also serves predictions; TorchServe lacks one of them there."""
        return tuple(route for route in self.routes if not self.core.compat or route.path != _VERSION)

    async def list_models(self, call: Call) -> Reply:
        """List the models, one page at a time."""
        asked, registry = call.parameters(_Listing), self.core.registry
        limit = asked.limit if 0 <= asked.limit <= _PAGE else _PAGE
        start = max(0, asked.next_page_token)
        names = sorted({model.name for model in registry})
        page = [{"modelName": name, "modelUrl": registry.find(name).url} for name in names[start : start + limit]]
        token = {"nextPageToken": str(start + limit)} if start + limit <= len(names) else {}
        return call.json({**token, "models": page})

    async def describe(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Describe a version, by default the default one, or all; customized=true adds the handler's metadata."""
        registry = self.core.registry
        if model_version == "all":
            return call.json([describe_model(each) for each in registry.versions(model_name).values()])
        call.model = model = registry.find(model_name, model_version)
        if not call.parameters(_Describing).customized:
            return call.json([describe_model(model)])
        sent = [pair for pair in read_headers(call.request.headers) if pair[0].lower() not in _SET_BY_US]
        headers = (("content-length", "0"), *sent, ("describe", "True"))
        call.job = job = model.submit(Request(id=call.id, parts=(), headers=headers), describes=True)
        response = await model.response(job)
        if isinstance(response, StreamedResponse):
            response = await response.whole()
        if not response.status:
            response = death_response(None)
        if response.failed:
            return Reply(response=response, request_id=call.id)
        try:
            metadata = json.loads(response.body)
        except (ValueError, RecursionError):
            metadata = None
        described = {**describe_model(model), "customizedMetadata": metadata if isinstance(metadata, dict) else {}}
        return call.json([described], status=response.status)

    async def describe_default(self, call: Call, model_name: str, model_version: str) -> Reply:  # noqa: ARG002 - any
        """Describe the default version."""
        return await self.describe(call, model_name)

    async def describe_routes(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Describe the routes of this port."""
        self.core.registry.find(model_name, model_version)
        return await self.document(call)

    async def v1_model(self, call: Call, model_name: str) -> Reply:
        """Return whether a model is ready."""
        model = self.core.registry.find(model_name)
        ready = bool(model.workers) if self.core.compat else model.state is ModelState.READY
        return call.json({"name": model_name, "ready": ready})

    async def register(self, call: Call) -> Reply:
        """Register a model of the model store."""
        asked = call.parameters(Registration)
        if bare_type(call.request.header("content-type") or "").lower() == JSON:
            asked = Registration.from_json(await call.request.body(), compat=self.core.compat)
        asked.check()
        return await self._finish(self._register(call, asked))

    async def _register(self, call: Call, asked: Registration) -> Reply:
        model = call.model = await self._unless_ending(self._add(asked))
        count = model.settings.min_workers
        registered = f'Model "{model.name}" Version: {model.version} registered with {count} initial workers'
        if not count:
            return call.json({"status": f"{registered}. Use scale workers API to add workers for the model."})

        async def start() -> Reply:
            if await self._unless_ending(model.wait_until_ready()):
                return call.json({"status": registered})
            self.core.registry.discard(model)
            await model.stop()
            raise self._start_error(model, model.version)

        if asked.synchronous is not False:
            return await start()
        self._begin(start())
        return call.json({"status": _IN_PROGRESS}, status=202)

    async def _add(self, asked: Registration) -> ServedModel:
        model_api, url = self._model_api, asked.url or ""
        assert model_api is not None  # noqa: S101 - otherwise there is no such route
        remote = model_api.remote if is_http(url) else None
        if asked.digest is not None and remote is None:
            raise bad_request("Parameter digest is only for a URL that is fetched.")

        def plan_model() -> ModelPlan:
            path = model_api.store.find(url) if remote is None else remote.fetch(url, asked.digest)
            return model_api.loader.plan(
                ResolvedSource(path=path),
                name=asked.model_name or None,
                handler=asked.handler or None,
                tuning=asked.tuning(model_api.default_workers),
            )

        try:
            plan = await run_in_loading_thread(plan_model)
        except MarpackError as error:
            log_failure(quoted(url), error)
            if isinstance(error, UsageError):
                raise bad_request(error.what) from None
            if isinstance(error, ArchiveError):
                raise RequestError(error.what, status=400, kind="InvalidModelException") from None
            raise RequestError(error.what, status=500, kind="InternalServerException") from None
        try:
            return self._add_model(replace(plan, url=url if remote is None else public_address(url)))
        except RequestError:
            plan.prepared.archive.close()
            raise

    def _start_error(self, model: ServedModel, version: str | None) -> RequestError:
        """Return the error for workers that cannot be started; `version` is the one that the client named."""
        message = f"Failed to start workers for model {model.name} version: {version or 'null'}"
        if model.failure is not None and not self.core.compat:
            message += f": {model.failure.what}"
        return RequestError(message, status=500, kind="InternalServerException")

    async def unregister(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Unregister a version, by default the default one; its file stays in the store."""
        model = self.core.registry.remove(model_name, model_version)

        async def stop() -> Reply:
            await model.stop(model.settings.leave_timeout)
            return call.json({"status": f'Model "{model.name}" unregistered'})

        return await self._finish(stop())

    async def scale(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Change the number of a version's workers."""
        asked = call.parameters(_Scaling)
        version = model_version or asked.model_version or None
        registry, least = self.core.registry, asked.min_worker
        registry.find(model_name, version)
        most = least if asked.max_worker is None else asked.max_worker
        if most < least:
            raise bad_request("max_worker cannot be less than min_worker.")
        if not 0 <= least <= _MAX_WORKERS:
            raise bad_request(f"Parameter min_worker allows only 0 to {_MAX_WORKERS}.")

        async def scale() -> Reply:
            model = registry.find(model_name, version)  # it may be another one by now
            await model.scale(least, most)
            if least and not await self._unless_ending(model.wait_until_ready()):
                raise self._start_error(model, version)
            named = f", version: {version}" if version else ""
            return call.json({"status": f"Workers scaled to {least} for model: {model.name}{named}"})

        if asked.synchronous:
            return await self._finish(scale())
        self._begin(scale())
        return call.json({"status": _IN_PROGRESS}, status=202)

    async def set_default(self, call: Call, model_name: str, model_version: str) -> Reply:
        """Make a version the default version."""
        self.core.registry.set_default(model_name, model_version)
        text = f'Default version successfully updated for model "{model_name}" to "{model_version}"'
        return call.json({"status": text})

    async def token(self, call: Call) -> Reply:
        """Put a new token into the key file; the caller needs the API key."""
        tokens, kind = self.admission.tokens, _RENEWABLE.get(call.parameters(_Renewing).type)
        if tokens is None or kind is None or not tokens.allows(TokenKind.API, call.request.header("authorization")):
            raise self.admission.token_error("Authentication")
        try:
            await asyncio.to_thread(tokens.renew, kind)
        except OutputError as error:
            raise RequestError(error.what, status=500, kind="InternalServerException") from None
        return call.reply(b"\n", JSON)

    def _begin(self, work: _Work[Reply]) -> asyncio.Task[Reply | RequestError]:
        """Start work without waiting for it."""

        async def outcome() -> Reply | RequestError:  # an error is for the client; any other exception is a bug
            try:
                return await work
            except RequestError as error:
                return error

        return self._begin_work(outcome())

    async def _finish(self, work: _Work[Reply]) -> Reply:
        """Start work, and wait for its reply as long as the client does; raise its RequestError."""
        outcome = await asyncio.shield(self._begin(work))
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    async def _unless_ending(self, work: _Work[T]) -> T:
        """Return the result of `work`; raise RequestError (503) as soon as the server has to end."""
        task, end = asyncio.create_task(work), asyncio.create_task(self.core.ending.wait())
        try:
            await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_done = task.done()
            for each in (task, end):
                each.cancel()
        if is_done:
            return task.result()
        raise RequestError("The server is shutting down", status=503, kind="ServiceUnavailableException")


class MetricsApi(Api):
    """The routes of metrics."""

    def __init__(self, core: ServingCore) -> None:
        super().__init__(core, (Route("/metrics/*", self.metrics), *self.document_routes()))

    async def metrics(self, call: Call, rest: str = "") -> Reply:  # noqa: ARG002 - any path below /metrics
        """Show all metrics, or those that `name[]` names."""
        names = [value for name, value in parse_qsl(call.query, keep_blank_values=True) if name == "name[]"]
        return call.reply(await self.core.metrics.exposition(names), CONTENT_TYPE)
