"""The inference port: predictions by every route that the server knows, health, and KServe's protocols."""

import asyncio
from collections.abc import Awaitable
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import replace

from marpack.serving.access import Admission
from marpack.serving.api import (
    Api,
    Call,
    Route,
    ServingCore,
    bad_request,
    check_escapes,
    json_reply,
    method_not_allowed,
    not_found,
)
from marpack.serving.http import Reply
from marpack.serving.jobs import Job, StreamedAnswer
from marpack.serving.models import ModelState, ServedModel
from marpack.serving.openapi import model_document, server_document
from marpack.torchserve.forms import last_wins, receive
from marpack.torchserve.http import Part, Request, Response, error_response, is_no_answer

_NAME, _VERSION = "model_name", "0.12.0"


class _Given(Struct, frozen=True):
    """What a route makes of a request, beside its body."""

    url_path: str | None = ""  # None: its handler is told nothing of it
    explain: bool | None = False  # None as above
    query: tuple[Part, ...] = ()  # parameters that are the handler's, too


class InferenceApi(Api):
    """Answers predictions."""

    def __init__(self, core: ServingCore, admission: Admission, further: tuple[Route, ...] = ()) -> None:
        """Answer for a core whomever an admission lets; `further` routes come first."""
        options = frozenset({"OPTIONS"})
        asking = (*self._predictions(), *(() if core.compat else self._kserve_routes()), *self._legacy())
        super().__init__(
            core,
            (
                *further,
                Route("/ping/*", self.ping),
                Route("/v2/health/live", self.v2_live),
                Route("/v2/health/ready", self.v2_ready),
                Route("/api-description", self.document),
                Route("/", self.document, options),
                Route("/", self.refuse_method),
                *(replace(route, admit=admission.check) for route in asking),
            ),
        )

    def _predictions(self) -> tuple[Route, ...]:
        return (
            Route("/predictions/{model}", self.predict),
            Route("/predictions/{model}/{version}", self.predict),
            Route("/predictions/{model}/{version}/*", self.predict),
            Route("/explanations/{model}", self.explain),
            Route("/explanations/{model}/{version}", self.explain),
            Route("/explanations/{model}/{version}/*", self.explain),
            Route("/invocations", self.invocations),
            Route("/models/{model}/invoke", self.invoke),
            Route("/v1/models/{model}:predict", self.predict_kserve),
            Route("/v1/models/{model}:explain", self.explain_kserve),
            Route("/v2/models/{model}/infer", self.predict_kserve),
            Route("/v2/models/{model}/explain", self.explain_kserve),
            Route("/v2", self.v2_server),
        )

    def _legacy(self) -> tuple[Route, ...]:
        return (
            Route("/v2/{a}/{b}/{c}/{d}/*", self.v2_versions),
            Route("/{model}/predict", self.invoke),
            Route("/{model}/{version}/predict", self.invoke),
        )

    def _kserve_routes(self) -> tuple[Route, ...]:
        """Return what KServe's clients ask for, and the original does not have."""
        return (
            Route("/v1/models", self.v1_models),
            Route("/v1/models/{model}", self.v1_model),
            Route("/v2/models/{model}", self.v2_model),
            Route("/v2/models/{model}/ready", self.v2_model_ready),
            Route("/v2/models/{model}/versions/{version}", self.v2_model),
            Route("/v2/models/{model}/versions/{version}/ready", self.v2_model_ready),
            Route("/v2/models/{model}/versions/{version}/infer", self.predict_kserve),
        )

    # --- predictions

    def predict(self, call: Call, model: str, version: str | None = None, rest: str = "") -> Awaitable[Reply]:
        """Answer `/predictions/M[/V][/rest]`."""
        return self._answer(call, model, version, _Given(url_path=rest))

    def explain(self, call: Call, model: str, version: str | None = None, rest: str = "") -> Awaitable[Reply]:
        """Answer `/explanations/M[/V][/rest]`."""
        return self._answer(call, model, version, _Given(url_path=rest, explain=True))

    def predict_kserve(self, call: Call, model: str, version: str | None = None) -> Awaitable[Reply]:
        """Answer KServe's predictions."""
        return self._answer(call, model, version, _Given(url_path=None))

    def explain_kserve(self, call: Call, model: str) -> Awaitable[Reply]:
        """Answer KServe's explanations."""
        return self._answer(call, model, None, _Given(url_path=None, explain=True))

    def invoke(self, call: Call, model: str, version: str | None = None) -> Awaitable[Reply]:
        """Answer `/models/M/invoke` and the legacy `/M[/V]/predict`: the query's parameters are the handler's, too."""
        return self._answer(call, model, version, _Given(url_path=None, explain=None, query=_query_parts(call)))

    async def invocations(self, call: Call) -> Reply:
        """Answer `/invocations`, as SageMaker sends it: the model is a parameter, or the only one there is."""
        given = _Given(url_path=None, explain=None, query=_query_parts(call))
        request = await self._request(call, given)
        named = next((part.value for part in (*given.query, *request.parts) if part.name == _NAME), None)
        registry = self.core.registry
        model = registry.only_model() if named is None else registry.find(named.decode("utf-8", "replace"))
        if model is None:
            raise bad_request("Parameter model_name is required.")
        if call.request.method == "OPTIONS":
            return json_reply(call, model_document(model.name))
        return await self._submit(call, model, None, request)

    async def _answer(self, call: Call, name: str, version: str | None, given: _Given) -> Reply:
        call.model = model = self.core.registry.find(name, version)
        if call.request.method == "OPTIONS":
            return json_reply(call, model_document(name))
        return await self._submit(call, model, version, await self._request(call, given))

    async def _request(self, call: Call, given: _Given) -> Request:
        """Return the request as the handler gets it; raises RequestError."""
        body = await call.request.body()
        headers = call.request.headers
        if call.request.header("content-length") is None:
            headers = _with_length(headers, len(body))
        request = receive(
            headers,
            body,
            request_id=call.id,
            url_path=given.url_path,
            explain=given.explain,
            limit=self.core.max_request_size,
        )
        return replace(request, parts=last_wins((*given.query, *request.parts))) if given.query else request

    async def _submit(self, call: Call, model: ServedModel, version: str | None, request: Request) -> Reply:
        call.model = model
        named = version is not None
        model.metrics.requested(named)
        job = model.submit(request, named=version or "")
        answer = await (self._in_time(job, model) if model.settings.client_timeout else model.answer(job))
        call.queue_ms, call.handler_ms = job.queue_ms, job.handler_ms
        if isinstance(answer, StreamedAnswer):
            self._count(model, job, named=named)
            return Reply(response=answer.head, stream=answer, request_id=call.id)
        if not answer.failed:
            self._count(model, job, named=named)
        return Reply(response=self._told(answer), request_id=call.id)

    async def _in_time(self, job: Job, model: ServedModel) -> Response | StreamedAnswer:
        try:
            async with asyncio.timeout(model.settings.client_timeout / 1000):
                return await model.answer(job)
        except TimeoutError:  # the server lets such a client wait for ever
            return error_response(500, "Worker died.")

    def _told(self, response: Response) -> Response:
        """Return an answer for one that the server never gives."""
        return error_response(500, "Worker died.") if is_no_answer(response) else response

    def _count(self, model: ServedModel, job: Job, *, named: bool) -> None:
        queue_ms = job.queue_ms
        total_ms = job.milliseconds
        model.latencies.append(total_ms)
        model.metrics.answered(named, total_ms * 1000, queue_ms * 1000)
        model.metrics.queued(queue_ms)
        model.metrics.worker_thread(max(0.0, total_ms - queue_ms - (job.handler_ms or 0.0)))

    # --- health and documents

    async def ping(self, call: Call, rest: str = "") -> Reply:  # noqa: ARG002 - whatever follows
        """Say whether the server is healthy: every model has loaded and has a living worker."""
        registry = self.core.registry
        healthy = registry.is_alive_as_on_server if self.core.compat else registry.is_ready
        return json_reply(call, {"status": "Healthy" if healthy else "Unhealthy"}, status=200 if healthy else 500)

    async def document(self, call: Call) -> Reply:
        """Describe the port."""
        return json_reply(call, server_document(management=False))

    async def refuse_method(self, call: Call) -> Reply:  # noqa: ARG002 - as every operation
        """Refuse whatever else is sent to `/`."""
        raise method_not_allowed()

    # --- KServe

    async def v1_models(self, call: Call) -> Reply:
        """List the models' names."""
        return json_reply(call, {"models": self.core.registry.names})

    async def v1_model(self, call: Call, model: str) -> Reply:
        """Say whether a model is ready."""
        ready = self.core.registry.find(model).state is ModelState.READY
        return json_reply(call, {"name": model, "ready": ready}, status=200 if ready else 503)

    async def v2_server(self, call: Call) -> Reply:
        """Name the server."""
        self._expect_open_inference()
        name = "Torchserve" if self.core.compat else "marpack"
        known = {"name": name, "version": _VERSION, "extenstion": ["kserve", "kubeflow"]}  # spelt so by the original
        return json_reply(call, known if self.core.compat else {**known, "extensions": []})

    async def v2_live(self, call: Call) -> Reply:
        """Say that the server runs."""
        self._expect_open_inference()
        return json_reply(call, {"live": True})

    async def v2_ready(self, call: Call) -> Reply:
        """Say whether every model is ready."""
        self._expect_open_inference()
        ready = self.core.compat or self.core.registry.is_ready
        return json_reply(call, {"ready": ready}, status=200 if ready else 503)

    async def v2_model(self, call: Call, model: str, version: str | None = None) -> Reply:
        """Tell a model's metadata; what it takes and gives is known to its handler alone."""
        found = self.core.registry.find(model, version)
        versions = list(self.core.registry.versions(model))
        described: dict[str, Any] = {"name": found.name, "versions": versions}  # Any: JSON
        return json_reply(call, {**described, "platform": "pytorch_mar", "inputs": [], "outputs": []})

    async def v2_model_ready(self, call: Call, model: str, version: str | None = None) -> Reply:
        """Say whether a model is ready."""
        ready = self.core.registry.find(model, version).state is ModelState.READY
        return json_reply(call, {"name": model, "ready": ready}, status=200 if ready else 503)

    async def v2_versions(self, call: Call, **given: str) -> Reply:
        """Refuse versions, as the original does where it knows the protocol."""
        if not self.core.open_inference or not any(piece.startswith("versions") for piece in given.values()):
            raise not_found()
        return json_reply(call, {"error": "Model versioning is not yet supported."}, status=501)

    def _expect_open_inference(self) -> None:
        if self.core.compat and not self.core.open_inference:
            raise not_found()


def _query_parts(call: Call) -> tuple[Part, ...]:
    """Return a query's parameters as a handler gets them; the last of a name wins."""
    if not call.query:
        return ()
    check_escapes(call.request.target)
    query = call.query.partition("#")[0].replace(";", "&")
    return tuple(Part(name, value.encode()) for name, value in parse_qsl(query, keep_blank_values=True))


def _with_length(headers: tuple[tuple[str, str], ...], size: int) -> tuple[tuple[str, str], ...]:
    """Return a request's headers with its length, as the frontend notes it once a body has come in chunks, or not."""
    kept = tuple(pair for pair in headers if pair[0].lower() != "transfer-encoding")
    return (*kept, ("content-length", str(size)))
