"""The inference port: predictions on all of TorchServe's routes, health, and KServe's protocols."""

import asyncio
import logging
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import replace

from marpack.serving.access import Admission
from marpack.serving.api import (
    Api,
    Call,
    Exchange,
    Route,
    ServingCore,
    about,
    bad_request,
    check_escapes,
    not_found,
    openapi_document,
)
from marpack.serving.http import Reply
from marpack.serving.jobs import StreamedResponse
from marpack.serving.models import ModelState, ServedModel
from marpack.torchserve.context import SERVER_VERSION
from marpack.torchserve.forms import last_wins, receive
from marpack.torchserve.http import Part, Request, death_response, is_no_answer

_LOG = logging.getLogger(__name__)
_BINARY_TENSORS = "Inference-Header-Content-Length"  # with it, Triton's client sends tensors behind the JSON


class _ModelName(Struct, frozen=True):
    model_name: str | None = None


class InferenceApi(Api):
    """The routes of predictions, health and KServe's protocols."""

    def __init__(self, core: ServingCore, admission: Admission, further: tuple[Route, ...] = ()) -> None:
        """Take the core, the rules for callers, and `further` routes that come first."""
        in_path = partial(self.predict, rest="", explain=False), "Send a request to a model."
        explained = partial(self.predict, rest="", explain=True), "Send a request to a model for an explanation."
        text = "Send a request of KServe's protocol to a model"
        kserve = partial(self.predict, explain=False), f"{text}."
        kserve_explained = partial(self.predict, explain=True), f"{text} for an explanation."
        invoke = (
            partial(self.predict, has_query=True),
            "Send a request to a model, with the query's parameters as parts.",
        )
        predictions = (
            ("/predictions/{model_name}", in_path),
            ("/predictions/{model_name}/{model_version}", in_path),
            ("/predictions/{model_name}/{model_version}/*", in_path),
            ("/explanations/{model_name}", explained),
            ("/explanations/{model_name}/{model_version}", explained),
            ("/explanations/{model_name}/{model_version}/*", explained),
            ("/models/{model_name}/invoke", invoke),
            ("/v1/models/{model_name}:predict", kserve),
            ("/v1/models/{model_name}:explain", kserve_explained),
            ("/v2/models/{model_name}/infer", kserve),
            ("/v2/models/{model_name}/explain", kserve_explained),
        )
        versioned = "/v2/models/{model_name}/versions/{model_version}"
        models = (  # not on TorchServe
            Route("/", partial(about, core), frozenset({"GET"}), summary="Return the server and its models."),
            Route("/v1/models", self.v1_models),
            Route("/v1/models/{model_name}", self.model_ready),
            Route("/v2/models/{model_name}", self.v2_model),
            Route("/v2/models/{model_name}/ready", self.model_ready),
            Route(versioned, self.v2_model),
            Route(f"{versioned}/ready", self.model_ready),
            Route(f"{versioned}/infer", kserve[0], takes_body=True, summary=kserve[1]),
        )
        guarded = (
            *(Route(path, operation, takes_body=True, summary=text) for path, (operation, text) in predictions),
            Route("/invocations", self.invocations, query=_ModelName, takes_body=True),
            Route("/v2", self.v2_server),
            *(() if core.compat else models),
            Route("/v2/{a}/{b}/{c}/{d}/*", self.v2_versions, is_documented=False),
            Route("/{model_name}/predict", invoke[0], is_documented=False),
            Route("/{model_name}/{model_version}/predict", invoke[0], is_documented=False),
        )
        super().__init__(
            core,
            (
                *further,
                Route("/ping/*", self.ping),
                Route("/v2/health/live", self.v2_live),
                Route("/v2/health/ready", self.v2_ready),
                *self.document_routes(),
                *(replace(route, admit=admission.check) for route in guarded),
            ),
        )

    async def predict(
        self,
        call: Call,
        model_name: str,
        model_version: str | None = None,
        *,
        rest: str | None = None,
        explain: bool | None = None,
        has_query: bool = False,
    ) -> Reply:
        """Send a request to a model.

        Its handler gets headers for `rest` and `explain` unless they are None; with `has_query`, the query as parts.
        """
        call.model = self.core.registry.find(model_name, model_version)
        if call.request.method == "OPTIONS":
            return call.json(openapi_document(self.routes, model=model_name))
        query = _query_parts(call) if has_query else ()
        request = await self._request(call, query, rest, explain)
        model = self.core.registry.find(model_name, model_version)  # it may be another one than before the body
        reply = await submit(call, model, model_version, request)
        if reply.response.failed and call.request.header(_BINARY_TENSORS) is not None:
            hint = "set binary_data=False in tritonclient"
            _LOG.warning(
                "%s: %s announces binary tensors, which handlers cannot read; %s", call.id, _BINARY_TENSORS, hint
            )
        return reply

    async def invocations(self, call: Call) -> Reply:
        """Send a request, as SageMaker does, to the model that a parameter names, or to the only one."""
        query, registry = _query_parts(call), self.core.registry
        request = await self._request(call, query)
        named = next((part.value for part in (*query, *request.parts) if part.name == "model_name"), None)
        model = registry.only_model() if named is None else registry.find(named.decode("utf-8", "replace"))
        if model is None:
            raise bad_request("Parameter model_name is required.")
        if call.request.method == "OPTIONS":
            return call.json(openapi_document(self.routes, model=model.name))
        return await submit(call, model, None, request)

    async def _request(
        self, call: Call, query: tuple[Part, ...], rest: str | None = None, explain: bool | None = None
    ) -> Request:
        """Return the request for the handler; raise RequestError."""
        body = await call.request.body()
        headers = call.request.headers
        if call.request.header("content-length") is None:  # as on TorchServe once it has the body
            kept = (pair for pair in headers if pair[0].lower() != "transfer-encoding")
            headers = (*kept, ("content-length", str(len(body))))
        limit = call.request.max_size
        request = receive(headers, body, request_id=call.id, url_path=rest, explain=explain, limit=limit)
        return replace(request, parts=last_wins((*query, *request.parts))) if query else request

    async def ping(self, call: Call, rest: str = "") -> Reply:  # noqa: ARG002 - any path below /ping
        """Return whether every model has loaded and has a ready worker."""
        healthy = self.core.is_healthy
        return call.json({"status": "Healthy" if healthy else "Unhealthy"}, status=200 if healthy else 500)

    async def v1_models(self, call: Call) -> Reply:
        """List the models' names."""
        return call.json({"models": sorted({model.name for model in self.core.registry})})

    async def v2_server(self, call: Call) -> Reply:
        """Return the server's name and version."""
        self._expect_open_inference()
        extensions = ["kserve", "kubeflow"]
        name = "Torchserve" if self.core.compat else "marpack"
        known = {"name": name, "version": SERVER_VERSION, "extenstion": extensions}  # TorchServe's spelling
        return call.json(known if self.core.compat else {**known, "extensions": []})

    async def v2_live(self, call: Call) -> Reply:
        """Return that the server runs."""
        self._expect_open_inference()
        return call.json({"live": True})

    async def v2_ready(self, call: Call) -> Reply:
        """Return whether every model is ready."""
        self._expect_open_inference()
        ready = self.core.compat or self.core.registry.is_ready
        return call.json({"ready": ready}, status=200 if ready else 503)

    async def v2_model(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Return a model's metadata; only its handler knows its inputs and outputs."""
        found = self.core.registry.find(model_name, model_version)
        versions = list(self.core.registry.versions(model_name))
        described: dict[str, Any] = {"name": found.name, "versions": versions}  # Any: JSON
        return call.json({**described, "platform": "pytorch_mar", "inputs": [], "outputs": []})

    async def model_ready(self, call: Call, model_name: str, model_version: str | None = None) -> Reply:
        """Return whether a model is ready."""
        ready = self.core.registry.find(model_name, model_version).state is ModelState.READY
        return call.json({"name": model_name, "ready": ready}, status=200 if ready else 503)

    async def v2_versions(self, call: Call, **given: str) -> Reply:
        """Refuse versions, as TorchServe does with the setting ts_open_inference_protocol."""
        if not self.core.open_inference or not any(piece.startswith("versions") for piece in given.values()):
            raise not_found()
        return call.json({"error": "Model versioning is not yet supported."}, status=501)

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


async def submit(exchange: Exchange, model: ServedModel, version: str | None, request: Request) -> Reply:
    """Queue a request, and wait for its response; `version` is the one that the client named. Raises RequestError."""
    exchange.model = model
    is_named = version is not None
    model.metrics.count_request(named_version=is_named)
    exchange.job = job = model.submit(request, named_version=version or "")
    if model.settings.client_timeout:
        try:
            async with asyncio.timeout(model.settings.client_timeout / 1000):
                response = await model.response(job)
        except TimeoutError:  # TorchServe lets such a client wait forever
            response = death_response(None)
    else:
        response = await model.response(job)
    if isinstance(response, StreamedResponse) or not response.failed:
        milliseconds = job.milliseconds
        model.latencies.append(milliseconds)
        model.metrics.count_response(milliseconds, job.queue_ms, job.handler_ms or 0.0, named_version=is_named)
    if isinstance(response, StreamedResponse):
        return Reply(response=response.head, stream=response, request_id=exchange.id)
    if is_no_answer(response):  # TorchServe lets such a client wait forever
        response = death_response(None)
    return Reply(response=response, request_id=exchange.id)
