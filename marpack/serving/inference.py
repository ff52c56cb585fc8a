"""The inference port: predictions on all of TorchServe's routes, health, and KServe's protocols."""

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
    not_found,
    openapi_document,
)
from marpack.serving.http import Reply
from marpack.serving.jobs import StreamedResponse
from marpack.serving.models import ModelState, ServedModel
from marpack.torchserve.forms import last_wins, receive
from marpack.torchserve.http import Part, Request, error_response, is_no_answer

_TORCHSERVE = "0.12.0"


class _ModelName(Struct, frozen=True):
    model_name: str | None = None


class _Form(Struct, frozen=True):
    """How a route presents a request to the handler, besides its body."""

    url_path: str | None = None  # None: no header for it
    explain: bool | None = None  # None: no header for it
    query: tuple[Part, ...] = ()  # parameters that are also parts


_PLAIN = _Form(explain=False)
_EXPLAIN = _Form(explain=True)


class InferenceApi(Api):
    """The routes of predictions, health and KServe's protocols."""

    def __init__(self, core: ServingCore, admission: Admission, further: tuple[Route, ...] = ()) -> None:
        """Take the core, the rules for callers, and `further` routes that come first."""
        predictions: list[tuple[str, Any]] = [  # Any: operations of different signatures
            ("/predictions/{model_name}", self.predict),
            ("/predictions/{model_name}/{model_version}", self.predict),
            ("/predictions/{model_name}/{model_version}/*", self.predict),
            ("/explanations/{model_name}", self.explain),
            ("/explanations/{model_name}/{model_version}", self.explain),
            ("/explanations/{model_name}/{model_version}/*", self.explain),
            ("/models/{model_name}/invoke", self.invoke),
            ("/v1/models/{model_name}:predict", self.predict_kserve),
            ("/v1/models/{model_name}:explain", self.explain_kserve),
            ("/v2/models/{model_name}/infer", self.predict_kserve),
            ("/v2/models/{model_name}/explain", self.explain_kserve),
        ]
        kserve = (  # not on TorchServe
            Route("/v1/models", self.v1_models),
            Route("/v1/models/{model_name}", self.model_ready),
            Route("/v2/models/{model_name}", self.v2_model),
            Route("/v2/models/{model_name}/ready", self.model_ready),
            Route("/v2/models/{model_name}/versions/{model_version}", self.v2_model),
            Route("/v2/models/{model_name}/versions/{model_version}/ready", self.model_ready),
            Route("/v2/models/{model_name}/versions/{model_version}/infer", self.predict_kserve, takes_body=True),
        )
        guarded = (
            *(Route(path, operation, takes_body=True) for path, operation in predictions),
            Route("/invocations", self.invocations, query=_ModelName, takes_body=True),
            Route("/v2", self.v2_server),
            *(() if core.compat else kserve),
            Route("/v2/{a}/{b}/{c}/{d}/*", self.v2_versions, is_documented=False),
            Route("/{model_name}/predict", self.invoke, is_documented=False),
            Route("/{model_name}/{model_version}/predict", self.invoke, is_documented=False),
        )
        super().__init__(
            core,
            (
                *further,
                Route("/ping/*", self.ping),
                Route("/v2/health/live", self.v2_live),
                Route("/v2/health/ready", self.v2_ready),
                Route("/api-description", self.document),
                Route("/", self.document, frozenset({"OPTIONS"})),
                *(replace(route, admit=admission.check) for route in guarded),
            ),
        )

    # --- Predictions

    def predict(
        self, call: Call, model_name: str, model_version: str | None = None, rest: str = ""
    ) -> Awaitable[Reply]:
        """Send a request to a model."""
        return self._answer(call, model_name, model_version, _Form(url_path=rest, explain=False))

    def explain(
        self, call: Call, model_name: str, model_version: str | None = None, rest: str = ""
    ) -> Awaitable[Reply]:
        """Send a request to a model for an explanation."""
        return self._answer(call, model_name, model_version, _Form(url_path=rest, explain=True))

    def predict_kserve(self, call: Call, model_name: str, model_version: str | None = None) -> Awaitable[Reply]:
        """Send a request of KServe's protocol to a model."""
        return self._answer(call, model_name, model_version, _PLAIN)

    def explain_kserve(self, call: Call, model_name: str) -> Awaitable[Reply]:
        """Send a request of KServe's protocol to a model for an explanation."""
        return self._answer(call, model_name, None, _EXPLAIN)

    def invoke(self, call: Call, model_name: str, model_version: str | None = None) -> Awaitable[Reply]:
        """Send a request to a model, with the query's parameters as parts."""
        return self._answer(call, model_name, model_version, _Form(query=_query_parts(call)))

    async def invocations(self, call: Call) -> Reply:
        """Send a request, as SageMaker does, to the model that a parameter names, or to the only one."""
        form = _Form(query=_query_parts(call))
        request = await self._request(call, form)
        named = next((part.value for part in (*form.query, *request.parts) if part.name == "model_name"), None)
        registry = self.core.registry
        model = registry.only_model() if named is None else registry.find(named.decode("utf-8", "replace"))
        if model is None:
            raise bad_request("Parameter model_name is required.")
        if call.request.method == "OPTIONS":
            return json_reply(call, openapi_document(self.routes, model=model.name))
        return await self._submit(call, model, None, request)

    async def _answer(self, call: Call, name: str, version: str | None, form: _Form) -> Reply:
        call.model = model = self.core.registry.find(name, version)
        if call.request.method == "OPTIONS":
            return json_reply(call, openapi_document(self.routes, model=name))
        return await self._submit(call, model, version, await self._request(call, form))

    async def _request(self, call: Call, form: _Form) -> Request:
        """Return the request for the handler; raise RequestError."""
        body = await call.request.body()
        headers = call.request.headers
        if call.request.header("content-length") is None:  # as on TorchServe once it has the body
            kept = (pair for pair in headers if pair[0].lower() != "transfer-encoding")
            headers = (*kept, ("content-length", str(len(body))))
        request = receive(
            headers,
            body,
            request_id=call.id,
            url_path=form.url_path,
            explain=form.explain,
            limit=call.request.max_size,
        )
        return replace(request, parts=last_wins((*form.query, *request.parts))) if form.query else request

    async def _submit(self, call: Call, model: ServedModel, version: str | None, request: Request) -> Reply:
        call.model = model
        is_named = version is not None
        model.metrics.count_request(named_version=is_named)
        job = model.submit(request, named_version=version or "")
        if model.settings.client_timeout:
            try:
                async with asyncio.timeout(model.settings.client_timeout / 1000):
                    response = await model.response(job)
            except TimeoutError:  # TorchServe lets such a client wait forever
                response = error_response(500, "Worker died.")
        else:
            response = await model.response(job)
        call.queue_ms, call.handler_ms = job.queue_ms, job.handler_ms
        if isinstance(response, StreamedResponse) or not response.failed:
            milliseconds = job.milliseconds
            model.latencies.append(milliseconds)
            model.metrics.count_response(milliseconds, call.queue_ms, job.handler_ms or 0.0, named_version=is_named)
        if isinstance(response, StreamedResponse):
            return Reply(response=response.head, stream=response, request_id=call.id)
        if is_no_answer(response):  # TorchServe lets such a client wait forever
            response = error_response(500, "Worker died.")
        return Reply(response=response, request_id=call.id)

    # --- Health

    async def ping(self, call: Call, rest: str = "") -> Reply:  # noqa: ARG002 - any path below /ping
        """Return whether every model has loaded and has a ready worker."""
        registry = self.core.registry
        healthy = registry.is_healthy_for_torchserve if self.core.compat else registry.is_ready
        return json_reply(call, {"status": "Healthy" if healthy else "Unhealthy"}, status=200 if healthy else 500)

    # --- KServe

    async def v1_models(self, call: Call) -> Reply:
        """List the models' names."""
        return json_reply(call, {"models": sorted({model.name for model in self.core.registry})})

    async def v2_server(self, call: Call) -> Reply:
        """Return the server's name and version."""
        self._expect_open_inference()
        extensions = ["kserve", "kubeflow"]
        name = "Torchserve" if self.core.compat else "marpack"
        known = {"name": name, "version": _TORCHSERVE, "extenstion": extensions}  # TorchServe's spelling
        return json_reply(call, known if self.core.compat else {**known, "extensions": []})

    async def v2_live(self, call: Call) -> Reply:
        """Return that the server runs."""
        self._expect_open_inference()
        return json_reply(call, {"live": True})

    async def v2_ready(self, call: Call) -> Reply:
        """Return whether every model is ready."""
        self._expect_open_inference()
        ready = self.core.compat or self.core.registry.is_ready
        return json_reply(call, {"ready": ready}, status=200 if ready else 503)

    async def v2_model(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Return a model's metadata; only its handler knows its inputs and outputs."""
        found = self.core.registry.find(model_name, model_version)
        versions = list(self.core.registry.versions(model_name))
        described: dict[str, Any] = {"name": found.name, "versions": versions}  # Any: JSON
        return json_reply(call, {**described, "platform": "pytorch_mar", "inputs": [], "outputs": []})

    async def model_ready(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Return whether a model is ready."""
        ready = self.core.registry.find(model_name, model_version).state is ModelState.READY
        return json_reply(call, {"name": model_name, "ready": ready}, status=200 if ready else 503)

    async def v2_versions(self, call: Call, **given: str) -> Reply:
        """Refuse versions, as TorchServe does with the setting ts_open_inference_protocol."""
        if not self.core.open_inference or not any(piece.startswith("versions") for piece in given.values()):
            raise not_found()
        return json_reply(call, {"error": "Model versioning is not yet supported."}, status=501)

    def _expect_open_inference(self) -> None:
        if self.core.compat and not self.core.open_inference:
            raise not_found()


def _query_parts(call: Call) -> tuple[Part, ...]:
    """Return a query's parameters as parts."""
    if not call.query:
        return ()
    check_escapes(call.request.target)
    query = call.query.partition("#")[0].replace(";", "&")
    return tuple(Part(name, value.encode()) for name, value in parse_qsl(query, keep_blank_values=True))
