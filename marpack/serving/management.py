"""The management and metrics ports: models are listed, described, registered from the store, scaled and taken off."""

import asyncio
import json
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl

from marpack.errors import OutputError
from marpack.serving.access import Admission, TokenKind
from marpack.serving.api import (
    JSON,
    Api,
    Call,
    Operation,
    Route,
    ServingCore,
    bad_request,
    json_reply,
    status_reply,
)
from marpack.serving.http import Reply
from marpack.serving.jobs import StreamedAnswer
from marpack.serving.metric_families import CONTENT_TYPE
from marpack.serving.models import ModelState, ServedModel
from marpack.serving.openapi import server_document
from marpack.serving.registering import (
    MOST_WORKERS,
    UNDER_WAY,
    DetachedWork,
    OnEnd,
    Registrar,
    finish_before_end,
    not_started,
    parameters,
    whole,
)
from marpack.serving.workers import ServedWorker, WorkerState
from marpack.torchserve.http import Request, RequestError, Response, error_response, phrase_of, read_headers

# Switches of the model config, told as they stand.
_SWITCHES = ("continuousBatching", "useJobTicket", "useVenv")
_SEQUENCES = {"sequenceMaxIdleMSec": 0, "sequenceTimeoutMSec": 0, "maxNumSequence": 1, "maxSequenceJobQueueSize": 1}
_UNKNOWN_PID = -1


def description(model: ServedModel) -> dict[str, Any]:  # Any: JSON
    """Return what is known of a model version."""
    settings, prepared = model.settings, model.prepared
    uses_gpu = prepared.load.gpu_id is not None
    return {
        "modelName": model.name,
        "modelVersion": model.version,
        "modelUrl": url_of(model),
        "runtime": prepared.archive.manifest.runtime,
        "minWorkers": settings.min_workers,
        "maxWorkers": settings.max_workers,
        "batchSize": settings.batch_size,
        "maxBatchDelay": settings.max_batch_delay,
        "responseTimeout": settings.response_timeout,
        "startupTimeout": settings.startup_timeout,
        "maxRetryTimeoutInSec": settings.retry_seconds,
        "clientTimeoutInMills": settings.client_timeout,
        "parallelType": "",  # a model is in one process here
        "parallelLevel": 0,
        "deviceType": "gpu" if uses_gpu else "cpu",
        **_configured(model),
        "loadedAtStartup": model.loaded_at_start,
        "workers": [_worker(worker, uses_gpu=uses_gpu) for worker in model.workers],
        "jobQueueStatus": {
            "remainingCapacity": model.queue.capacity - len(model.queue),
            "pendingRequests": len(model.queue),
        },
    }


def url_of(model: ServedModel) -> str:
    """Return what a model was registered by: its file's name in the store, never its place on the machine."""
    return model.prepared.resolved.path.name


def _configured(model: ServedModel) -> dict[str, Any]:  # Any: JSON
    config = model.prepared.config
    switches = {key: config.get(key) is True for key in _SWITCHES}
    has_sequences = config.get("sequenceBatching") is True
    sequences = {
        key: (_whole(config.get(key)) or default) if has_sequences else 0 for key, default in _SEQUENCES.items()
    }
    return {**switches, "stateful": has_sequences, **sequences}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _worker(worker: ServedWorker, *, uses_gpu: bool) -> dict[str, Any]:  # Any: JSON
    pid = worker.pid
    return {
        "id": str(worker.number),
        "startTime": _instant(worker.started),
        "status": "READY" if worker.state is WorkerState.READY else "UNLOADING",
        "memoryUsage": worker.memory,
        "pid": _UNKNOWN_PID if pid is None else pid,
        "gpu": uses_gpu,
        "gpuUsage": "N/A",
    }


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_ALL = "all"
_MODEL, _VERSION = "/models/{model}", "/models/{model}/{version}"
_PAGE = 100  # models on one, at most
_RENEWABLE: dict[str, Literal[TokenKind.MANAGEMENT, TokenKind.INFERENCE]] = {
    "management": TokenKind.MANAGEMENT,
    "inference": TokenKind.INFERENCE,
}
_SET_BY_US = {"describe", "content-length"}  # headers


class ManagementApi(Api):
    """Answers whoever runs the server."""

    def __init__(self, core: ServingCore, *, registrar: Registrar | None, admission: Admission, on_end: OnEnd) -> None:
        """Answer for a core.

        Args:
            core: The models, and what to tell.
            registrar: Registers models; None: none are registered or taken off.
            admission: Whom to answer.
            on_end: Is told of each task that goes on for a client; an error in one is a fault of ours.
        """
        self.admission = admission
        self._registrar = registrar
        self._work = DetachedWork(on_end)
        super().__init__(core, self._routes())

    def _routes(self) -> tuple[Route, ...]:
        get, put, post, delete, options = (
            frozenset({method}) for method in ("GET", "PUT", "POST", "DELETE", "OPTIONS")
        )
        rows: list[tuple[str, Operation, frozenset[str]]] = [
            ("/models", self.list_models, get),
            *((path, self.describe, get) for path in (_MODEL, _VERSION)),
            *((path, self.scale, put) for path in (_MODEL, _VERSION)),
            *((path, self.model_document, options) for path in (_MODEL, _VERSION)),
            (f"{_VERSION}/set-default", self.set_default, put),
            (f"{_VERSION}/set-default", self.describe_default, get),
            ("/v1/models/{model}", self.v1_model, get),
        ]
        if self._registrar is not None:
            rows += [("/models", self.register, post)]
            rows += [(path, self.unregister, delete) for path in (_MODEL, _VERSION)]
        only_own = self.admission.check_origin
        return (
            *(Route(path, operation, methods, self.admission.check) for path, operation, methods in rows),
            *((Route("/token", self.token, admit=only_own),) if self.admission.tokens is not None else ()),
            Route("/api-description", self.document, admit=only_own),
            Route("/", self.document, options, only_own),
        )

    def shared_routes(self) -> tuple[Route, ...]:
        """Return the routes as they stand beside those of inference; the original has one path of both for that."""
        return tuple(route for route in self.routes if not self.core.compat or route.path != _VERSION)

    # --- looking

    async def list_models(self, call: Call) -> Reply:
        """List the models, a page at a time."""
        asked = parameters(call.query)
        limit, start = whole(asked.get("limit"), _PAGE), max(0, whole(asked.get("next_page_token"), 0))
        limit = limit if 0 <= limit <= _PAGE else _PAGE
        registry = self.core.registry
        names = registry.names
        page = [{"modelName": name, "modelUrl": url_of(registry.find(name))} for name in names[start : start + limit]]
        token = {"nextPageToken": str(start + limit)} if start + limit <= len(names) else {}
        return json_reply(call, {**token, "models": page})

    async def describe(self, call: Call, model: str, version: str | None = None) -> Reply:
        """Describe a version, the default one or all; with `customized=true` the handler has its say, too."""
        registry = self.core.registry
        if version == _ALL:
            return json_reply(call, [description(each) for each in registry.versions(model).values()])
        call.model = found = registry.find(model, version)
        if parameters(call.query).get("customized", "").lower() == "true":
            return await self._customized(call, found)
        return json_reply(call, [description(found)])

    async def describe_default(self, call: Call, model: str, version: str) -> Reply:  # noqa: ARG002 - whichever it is
        """Describe the default version."""
        return await self.describe(call, model)

    async def _customized(self, call: Call, model: ServedModel) -> Reply:
        sent = [pair for pair in read_headers(call.request.headers) if pair[0].lower() not in _SET_BY_US]
        headers = (("content-length", "0"), *sent, ("describe", "True"))
        job = model.describe(Request(id=call.id, parts=(), headers=headers))
        answer = await job.answer
        call.queue_ms, call.handler_ms = job.queue_ms, job.handler_ms
        if isinstance(answer, StreamedAnswer):
            answer = await answer.whole()
        if answer.failed or not answer.status:
            response = answer if answer.status else error_response(500, "Worker died.")
            return Reply(response=response, request_id=call.id)
        described = {**description(model), "customizedMetadata": _metadata(answer.body)}
        return json_reply(call, [described], status=answer.status)

    async def v1_model(self, call: Call, model: str) -> Reply:
        """Say whether a model is ready."""
        found = self.core.registry.find(model)
        ready = bool(found.workers) if self.core.compat else found.state is ModelState.READY
        return json_reply(call, {"name": model, "ready": ready})

    async def model_document(self, call: Call, model: str, version: str | None = None) -> Reply:
        """Describe the routes of a model."""
        self.core.registry.find(model, version)
        return json_reply(call, server_document(management=True))

    async def document(self, call: Call) -> Reply:
        """Describe the port."""
        return json_reply(call, server_document(management=True))

    # --- changing

    async def register(self, call: Call) -> Reply:
        """Register a model of the store."""
        assert self._registrar is not None  # noqa: S101 - else there is no such route
        return await self._registrar.register(call, self._work)

    async def unregister(self, call: Call, model: str, version: str | None = None) -> Reply:
        """Take a version off, the default one where none is named; its file stays in the store."""
        found = self.core.registry.remove(model, version)
        return await self._work.finish(self._unregistered(call, found))

    async def _unregistered(self, call: Call, model: ServedModel) -> Reply:
        await model.stop(model.settings.leave_timeout)
        return status_reply(call, f'Model "{model.name}" unregistered')

    async def scale(self, call: Call, model: str, version: str | None = None) -> Reply:
        """Change how many workers a version has."""
        asked = parameters(call.query)
        version = version or asked.get("model_version") or None
        found = self.core.registry.find(model, version)
        least = whole(asked.get("min_worker"), 1)
        most = whole(asked.get("max_worker"), least)
        _expect_counts(least, most)
        work = self._scaled(call, found, least, most, version)
        if asked.get("synchronous", "").lower() == "true":
            return await self._work.finish(finish_before_end(self.core.ending, work))
        self._work.begin(work)
        return status_reply(call, UNDER_WAY, status=202)

    async def _scaled(self, call: Call, model: ServedModel, least: int, most: int, version: str | None) -> Reply:
        await model.scale(least, most)
        if least and not await model.settled():
            raise not_started(model, version, compat=self.core.compat)
        named = f", version: {version}" if version else ""
        return status_reply(call, f"Workers scaled to {least} for model: {model.name}{named}")

    async def set_default(self, call: Call, model: str, version: str) -> Reply:
        """Have a version answer where none is named."""
        self.core.registry.set_default(model, version)
        return status_reply(call, f'Default version successfully updated for model "{model}" to "{version}"')

    async def token(self, call: Call) -> Reply:
        """Put a new token into the key file, for who has the key to do so."""
        tokens, kind = self.admission.tokens, _RENEWABLE.get(parameters(call.query).get("type", ""))
        if tokens is None or kind is None or not tokens.allows(TokenKind.API, call.request.header("authorization")):
            raise self.admission.refused("Authentication")
        try:
            await asyncio.to_thread(tokens.renew, kind)
        except OutputError as error:
            raise RequestError(error.what, status=500, kind="InternalServerException") from None
        response = Response(status=200, phrase=phrase_of(200), body=b"\n", content_type=JSON)
        return Reply(response=response, request_id=call.id)


def _expect_counts(least: int, most: int) -> None:
    if most < least:
        raise bad_request("max_worker cannot be less than min_worker.")
    if not 0 <= least <= MOST_WORKERS:
        raise bad_request(f"min_worker is a number from 0 to {MOST_WORKERS}.")


def _metadata(body: bytes) -> dict[str, Any]:  # Any: JSON
    """Return the object that a handler describes itself by; an empty one for any other answer."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class MetricsApi(Api):
    """Answers whoever collects metrics."""

    def __init__(self, core: ServingCore) -> None:
        """Answer for a core."""
        own = (Route("/api-description", self.document), Route("/", self.document, frozenset({"OPTIONS"})))
        super().__init__(core, (Route("/metrics/*", self.metrics), *own))

    async def metrics(self, call: Call, rest: str = "") -> Reply:  # noqa: ARG002 - whatever follows
        """Show all metrics, or those that `name[]` names."""
        names = [value for name, value in parse_qsl(call.query, keep_blank_values=True) if name == "name[]"]
        body = self.core.metrics.exposition(names)
        response = Response(status=200, phrase=phrase_of(200), body=body, content_type=CONTENT_TYPE)
        return Reply(response=response, request_id=call.id)

    async def document(self, call: Call) -> Reply:
        """Describe the server."""
        return json_reply(call, server_document(management=False))
