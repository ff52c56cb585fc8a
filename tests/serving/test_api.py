"""The table of routes: its OpenAPI documents, the ids of requests, and the statistics of responses."""

import asyncio
import gc
import json
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import pytest
from lazy import openapi_spec_validator
from serving.served import pack, served

from marpack.protocol.messages import Load
from marpack.serving.access import Admission, TokenKind
from marpack.serving.api import Call, ServerStatistics, ServingCore, openapi_document
from marpack.serving.inference import InferenceApi
from marpack.serving.loading import ModelLoader, ModelStore
from marpack.serving.management import ManagementApi, MetricsApi, ModelApi
from marpack.serving.metrics import ServerMetrics
from marpack.serving.registry import Registry

Document = dict[str, Any]

CORE = ServingCore(
    ending=asyncio.Event(),
    registry=Registry(),
    metrics=ServerMetrics(hostname="here"),
    statistics=ServerStatistics(),
)
MODEL_API = ModelApi(store=ModelStore(Path()), loader=ModelLoader(load=Load(model_dir="")))
INFERENCE_API = InferenceApi(CORE, Admission(kind=TokenKind.INFERENCE))
MANAGEMENT_API = ManagementApi(
    CORE,
    model_api=MODEL_API,
    add=lambda plan: pytest.fail("not called"),
    admission=Admission(kind=TokenKind.MANAGEMENT),
    begin=asyncio.create_task,
)
DOCUMENTS: dict[str, Document] = {
    "inference": openapi_document(INFERENCE_API.routes),
    "management": openapi_document(MANAGEMENT_API.routes),
    "metrics": openapi_document(MetricsApi(CORE).routes),
    "all": openapi_document((*INFERENCE_API.routes, *MANAGEMENT_API.shared_routes(), *MetricsApi(CORE).routes)),
    "a model": openapi_document(INFERENCE_API.routes, model="digits"),
    "a model with a bad name": openapi_document(INFERENCE_API.routes, model="a/b {model_version} ü\udcff"),
}


def operations(document: Document) -> dict[str, Document]:
    """Return the operations of a document, by method and path."""
    return {
        f"{method} {path}": operation for path, item in document["paths"].items() for method, operation in item.items()
    }


# Importing the validator takes seconds.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.peer if name == "all" else pytest.mark.slow) for name in DOCUMENTS],
)
def test_a_document_is_valid(name: str) -> None:
    document = DOCUMENTS[name]
    assert list(openapi_spec_validator.OpenAPIV30SpecValidator(document).iter_errors()) == []
    assert json.loads(json.dumps(document)) == document or "\udcff" in str(document)


INFERENCE = {
    "get": [
        *("/", "/api-description", "/ping", "/v1/models", "/v1/models/{model_name}", "/v2", "/v2/health/live"),
        *("/v2/health/ready", "/v2/models/{model_name}", "/v2/models/{model_name}/ready"),
        "/v2/models/{model_name}/versions/{model_version}",
        "/v2/models/{model_name}/versions/{model_version}/ready",
    ],
    "options": ["/"],
    "post": [
        *("/explanations/{model_name}", "/explanations/{model_name}/{model_version}", "/invocations"),
        *("/models/{model_name}/invoke", "/predictions/{model_name}", "/predictions/{model_name}/{model_version}"),
        *("/v1/models/{model_name}:explain", "/v1/models/{model_name}:predict", "/v2/models/{model_name}/explain"),
        *("/v2/models/{model_name}/infer", "/v2/models/{model_name}/versions/{model_version}/infer"),
    ],
}
NAMED, VERSIONED = "/models/{model_name}", "/models/{model_name}/{model_version}"
MANAGEMENT = {
    "delete": [NAMED, VERSIONED],
    "get": ["/api-description", "/models", NAMED, VERSIONED, f"{VERSIONED}/set-default", "/v1/models/{model_name}"],
    "options": ["/", NAMED, VERSIONED],
    "post": ["/models"],
    "put": [NAMED, VERSIONED, f"{VERSIONED}/set-default"],
}


@pytest.mark.parametrize(("name", "routes"), [("inference", INFERENCE), ("management", MANAGEMENT)])
def test_routes(name: str, routes: dict[str, list[str]]) -> None:
    assert sorted(operations(DOCUMENTS[name])) == [f"{method} {path}" for method in routes for path in routes[method]]


def test_a_models_routes_name_it() -> None:
    found = DOCUMENTS["a model"]
    ours = [line for line in operations(DOCUMENTS["inference"]) if "{model_name}" in line]
    assert list(operations(found)) == [line.replace("{model_name}", "digits") for line in ours]
    version = found["paths"]["/predictions/digits/{model_version}"]["post"]
    assert [parameter["name"] for parameter in version["parameters"]] == ["model_version"]
    paths = DOCUMENTS["a model with a bad name"]["paths"]  # it stays in its segment
    assert "/predictions/a%2Fb%20%7Bmodel_version%7D%20%C3%BC%3F" in paths


def test_bodies_and_queries() -> None:
    operation = operations(DOCUMENTS["inference"])["post /predictions/{model_name}"]
    assert operation["requestBody"] == {"content": {"*/*": {"schema": {}}}}
    assert operation["summary"] == "Send a request to a model."
    registering = operations(DOCUMENTS["management"])["post /models"]["parameters"]
    kinds = {parameter["name"]: parameter["schema"]["type"] for parameter in registering}
    assert kinds == dict.fromkeys(("url", "digest", "model_name", "handler", "runtime"), "string") | {
        **dict.fromkeys(("batch_size", "max_batch_delay", "initial_workers"), "integer"),
        **dict.fromkeys(("response_timeout", "startup_timeout"), "integer"),
        "synchronous": "boolean",
    }


def test_failures_are_counted_by_status_and_route_in_bounded_memory():
    statistics = ServerStatistics()
    for number in range(10_000):
        statistics.add(404, 1.0, f"failure {number} {'x' * 1000}", "/ping")
    for status in range(600, 1000):
        statistics.add(status, 1.0, "", "/ping")
    for status in (503, 503, 0, 200):
        statistics.add(status, 1.0, "failure 0" if status == 503 else "", "/ping")
    assert statistics.requests == 10_404
    assert sum(statistics.failures.values()) == 10_403
    assert len(statistics.failures) < 15
    assert statistics.failures["503 failure 0"] == 2  # the others do not hide it
    assert max(map(len, statistics.failures)) < 300
    known = ServerStatistics()
    for status, cause in ((500, "a"), (500, "a"), (503, ""), (0, ""), (204, "")):
        known.add(status, 1.0, cause)
    assert known.failures.items() >= {"500 a": 2, "503": 1}.items()
    assert sorted(known.failures.values()) == [1, 1, 2]


def test_no_path_and_no_method_of_clients_is_kept(tmp_path: Path):
    paths = (
        "/predictions/{}",
        "/predictions/m/{}",
        "/{}/predict",
        "/models/{}/invoke",
        "/v2/models/{}/ready",
        "/{}?{}",
    )
    methods = ("GET", "POST", "PATCH", "TRACE", "M{}")

    def rows() -> set[bytes]:
        return {
            line.rpartition(b" ")[0] for line in server.request("GET", "/metrics", at=server.metrics)[2].splitlines()
        }

    def attack(begin: int, end: int) -> None:
        for number in range(begin, end):
            path = paths[number % len(paths)].format(f"{number}-{'x' * 3900}", number)
            port = (server.inference, server.management, server.metrics)[number % 8 % 3]
            assert server.request(methods[number % len(methods)].format(number), path, at=port)[0] >= 400

    with served(pack(tmp_path, "m.mar", "def handle(data, context):\n    return data")) as server:
        attack(0, 100)
        rows()  # counts a response
        before, failures = rows(), server.server.statistics.failures
        tracemalloc.start()
        try:
            attack(100, 500)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert rows() == before
        assert len(failures) < 100
        assert sum(failures.values()) + 100 == 500  # the parser refuses every fifth method
        assert grown < 1_000_000


def test_the_id_of_a_request_is_a_random_uuid():
    given = [Call(None, "").id for _ in range(200)]
    read = [uuid.UUID(text) for text in given]
    assert [str(one) for one in read] == given
    assert {(one.version, one.variant) for one in read} == {(4, uuid.RFC_4122)}
    assert len(set(given)) == len(given)
