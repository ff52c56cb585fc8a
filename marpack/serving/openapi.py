"""What the server answers to, as OpenAPI 3.0 documents: a port's, and a model's."""

import re
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from marpack.torchserve.http import phrase_of
from marpack.version import __version__

_JSON = "application/json"
_ANY = "*/*"
_IN_PATH = re.compile(r"{(\w+)}")


class _Parameter(Struct, frozen=True):
    description: str
    type: str = "string"
    choices: tuple[str, ...] = ()
    required: bool = False


class _Operation(Struct, frozen=True):
    """One method of one path: a row of the tables below."""

    method: str
    path: str
    name: str
    summary: str
    schema: str | None = None  # of the answer; None: anything
    statuses: tuple[int, ...] = (200,)
    query: tuple[str, ...] = ()
    body: str | None = None  # the media type that is taken
    answer: str = _JSON  # the media type that is given
    error: str = "Error"  # the schema of an answer of 400 or more, which is JSON


_PARAMETERS = {
    "model_name": _Parameter("The model's name."),
    "model_version": _Parameter("A version of the model, as its archive spells it."),
    "limit": _Parameter("How many models to list, 100 at most.", "integer"),
    "next_page_token": _Parameter("Where to go on: `nextPageToken` of the page before.", "integer"),
    "customized": _Parameter("Whether to ask the handler for what it says of itself.", "boolean"),
    "url": _Parameter("The archive's file name in the model store. Needed here or in the body."),
    "handler": _Parameter("A built-in handler, or a member of the archive, in place of the manifest's."),
    "runtime": _Parameter("The runtime in place of the manifest's."),
    "batch_size": _Parameter("How many requests are handled at once, at most.", "integer"),
    "max_batch_delay": _Parameter("For how long a batch waits to be full, in ms.", "integer"),
    "initial_workers": _Parameter("How many workers to start.", "integer"),
    "min_worker": _Parameter("How many workers there are at least.", "integer"),
    "max_worker": _Parameter("How many workers there are at most.", "integer"),
    "synchronous": _Parameter("Whether to answer only when the workers are ready.", "boolean"),
    "response_timeout": _Parameter("How long a batch may take, in s.", "integer"),
    "startup_timeout": _Parameter("How long loading may take, in s.", "integer"),
    "type": _Parameter("Which token is to be new.", choices=("management", "inference"), required=True),
}

_TEXT = {"type": "string"}
_SCHEMAS: dict[str, Any] = {  # Any: JSON
    "Object": {"type": "object"},
    "Error": {
        "type": "object",
        "required": ["code", "type", "message"],
        "properties": {"code": {"type": "integer"}, "type": _TEXT, "message": _TEXT},
    },
    "Status": {"type": "object", "required": ["status"], "properties": {"status": _TEXT}},
    "Ready": {
        "type": "object",
        "required": ["name", "ready"],
        "properties": {"name": _TEXT, "ready": {"type": "boolean"}},
    },
    "Models": {
        "type": "object",
        "required": ["models"],
        "properties": {
            "nextPageToken": _TEXT,
            "models": {
                "type": "array",
                "items": {"type": "object", "properties": {"modelName": _TEXT, "modelUrl": _TEXT}},
            },
        },
    },
    "Description": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["modelName", "modelVersion"],
            "properties": {
                "modelName": _TEXT,
                "modelVersion": _TEXT,
                "modelUrl": _TEXT,
                **{key: {"type": "integer"} for key in ("minWorkers", "maxWorkers", "batchSize", "maxBatchDelay")},
                "workers": {"type": "array", "items": {"type": "object"}},
            },
        },
    },
}


def _asks(path: str, name: str, summary: str, query: tuple[str, ...] = ()) -> _Operation:
    """Return a row that hands a body to a handler, and gives the handler's answer."""
    statuses = (200, *((400,) if query else ()), 404, 413, 500, 503, 507)
    return _Operation("post", path, name, summary, None, statuses, query, _ANY, _ANY)


_MODEL = "/models/{model_name}"
_VERSION = "/models/{model_name}/{model_version}"
_ONE = (200, 404)
_SCALED = (200, 202, 400, 404, 500)
_SCALE = ("min_worker", "max_worker", "synchronous")
_REGISTER = (
    *("url", "model_name", "handler", "runtime", "batch_size", "max_batch_delay", "initial_workers", "synchronous"),
    *("response_timeout", "startup_timeout"),
)
_EVERYWHERE = (
    _Operation("options", "/", "options", "This document."),
    _Operation("get", "/api-description", "apiDescription", "This document."),
    _Operation("get", "/v1/models/{model_name}", "v1Ready", "Whether a model is ready.", "Ready", _ONE),
)
_INFERENCE = (
    _Operation("get", "/ping", "ping", "Whether the server is healthy.", "Status", (200, 500), error="Status"),
    _asks("/predictions/{model_name}", "predictions", "Ask the default version of a model."),
    _asks("/predictions/{model_name}/{model_version}", "versionPredictions", "Ask one version of a model."),
    _asks("/explanations/{model_name}", "explanations", "Have the default version explain its answer."),
    _asks("/explanations/{model_name}/{model_version}", "versionExplanations", "Have one version explain its answer."),
    _asks("/invocations", "invocations", "Ask a model; the only one if none is named.", ("model_name",)),
    _asks("/models/{model_name}/invoke", "invoke", "Ask a model."),
    _asks("/v1/models/{model_name}:predict", "v1Predict", "Ask a model."),
    _asks("/v1/models/{model_name}:explain", "v1Explain", "Have a model explain its answer."),
    _Operation("get", "/v2", "v2Server", "What this server is.", "Object"),
    _Operation("get", "/v2/health/live", "v2Live", "Whether the server lives.", "Object"),
    _Operation("get", "/v2/health/ready", "v2Health", "Whether the server is ready.", "Object"),
    _Operation("get", "/v2/models/{model_name}", "v2Model", "What a model takes and gives.", "Object", _ONE),
    _Operation("get", "/v2/models/{model_name}/ready", "v2Ready", "Whether a model is ready.", "Ready", _ONE),
    _asks("/v2/models/{model_name}/infer", "v2Infer", "Ask a model."),
    _asks("/v2/models/{model_name}/explain", "v2Explain", "Have a model explain its answer."),
)
_MANAGEMENT = (
    _Operation("get", "/models", "listModels", "List the models.", "Models", (200,), ("limit", "next_page_token")),
    _Operation(
        *("post", "/models", "registerModel", "Load a model from the model store.", "Status"),
        *((200, 202, 400, 404, 405, 409, 500), _REGISTER, _JSON),
    ),
    _Operation("get", _MODEL, "describeModel", "Describe it.", "Description", (200, 404, 503), ("customized",)),
    _Operation("get", _VERSION, "describeVersion", "Describe it.", "Description", (200, 404, 503), ("customized",)),
    _Operation("put", _MODEL, "scaleModel", "Change how many workers it has.", "Status", _SCALED, _SCALE),
    _Operation("put", _VERSION, "scaleVersion", "Change how many workers it has.", "Status", _SCALED, _SCALE),
    _Operation("delete", _MODEL, "unregisterModel", "Unload its default version.", "Status", (200, 403, 404, 405)),
    _Operation("delete", _VERSION, "unregisterVersion", "Unload it.", "Status", (200, 403, 404, 405)),
    _Operation("put", f"{_VERSION}/set-default", "setDefault", "Make it the default version.", "Status", _ONE),
    _Operation("get", "/token", "token", "Put a new token into the key file.", None, (200, 400), ("type",), None, _ANY),
)


def server_document(*, management: bool) -> dict[str, Any]:  # Any: JSON
    """Return the document of the management port, or of the inference port: `OPTIONS /` and `/api-description`."""
    return _document("marpack serve", (*_EVERYWHERE, *(_MANAGEMENT if management else _INFERENCE)))


def model_document(model: str) -> dict[str, Any]:  # Any: JSON
    """Return the document of what the inference port answers to for one model: `OPTIONS /predictions/M`."""
    name = quote(model, safe="", errors="replace")
    rows = (row for row in (*_EVERYWHERE, *_INFERENCE) if "{model_name}" in row.path)
    return _document(model, tuple(replace(row, path=row.path.replace("{model_name}", name)) for row in rows))


def _document(title: str, rows: tuple[_Operation, ...]) -> dict[str, Any]:  # Any: JSON
    paths: dict[str, Any] = {}  # Any: JSON
    for row in rows:
        paths.setdefault(row.path, {})[row.method] = _operation(row)
    return {
        "openapi": "3.0.3",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],  # a token is needed only where the server was started with --token
    }


def _operation(row: _Operation) -> dict[str, Any]:  # Any: JSON
    in_path = [_parameter(name, "path", required=True) for name in _IN_PATH.findall(row.path)]
    in_query = [_parameter(name, "query", required=_PARAMETERS[name].required) for name in row.query]
    fields = {
        "operationId": row.name,
        "summary": row.summary,
        "parameters": in_path + in_query,
        "responses": {str(status): _response(row, status) for status in row.statuses},
    }
    return fields | ({"requestBody": {"content": {row.body: {"schema": {}}}}} if row.body else {})


def _parameter(name: str, where: str, *, required: bool) -> dict[str, Any]:  # Any: JSON
    parameter = _PARAMETERS[name]
    schema = {"type": parameter.type} | ({"enum": list(parameter.choices)} if parameter.choices else {})
    return {"name": name, "in": where, "description": parameter.description, "required": required, "schema": schema}


def _response(row: _Operation, status: int) -> dict[str, Any]:  # Any: JSON
    media, schema = (row.answer, row.schema) if status < 400 else (_JSON, row.error)
    content = {media: {"schema": {"$ref": f"#/components/schemas/{schema}"} if schema else {}}}
    return {"description": phrase_of(status), "content": content}
