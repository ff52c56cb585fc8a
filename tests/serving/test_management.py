"""The management API of a real server: TorchServe's responses, and archives of the model store only."""

import http.client
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from serving.served import LOADER, Served, free_address, pack, served, wait_until

from marpack.archive.protocol import INDEX_NAME
from marpack.serving.access import Tokens
from marpack.serving.loading import AdmissionRules
from marpack.serving.management import Registration
from marpack.serving.settings import ModelProperties, ModelSettings

ECHO = """
import json

def handle(data, context):
    if data is None:
        return None
    if context.get_request_header(0, "describe") == "True":
        headers = context.get_all_request_header(0)
        return [json.dumps({"rows": len(data), "keys": [sorted(row) for row in data], "describe": headers["describe"]})]
    return [str(len(data)) for _ in data]
"""
RAISES = "class H:\n    def initialize(self, context):\n        raise ValueError('no weights')\n    handle = print\n"
DIES = "import os\nclass H:\n    def initialize(self, context):\n        os._exit(3)\n    handle = print\n"
HANGS = "import time\nclass H:\n    def initialize(self, context):\n        time.sleep(60)\n    handle = print\n"
SLOW = "import time\ndef handle(data, context):\n    data is None or time.sleep(60)\n"
MUTE = "def handle(data, context):\n    return None if data is None else ['no JSON'] * len(data)\n"
BREAKS = "def handle(data, context):\n    return None if data is None else 1 / 0\n"
CONFIG = "minWorkers: 1\nmaxWorkers: 2\nbatchSize: 4\nmaxBatchDelay: 20\nresponseTimeout: 33\njobQueueSize: 7\n"
MOVED = {"id", "startTime", "pid", "memoryUsage"}  # differ with every run
UNAVAILABLE = 'Model "{}" has no worker to serve describe request. Please use scale workers API to add workers.'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model store."""
    folder = tmp_path_factory.mktemp("store")
    pack(folder, "probe.mar", ECHO)
    pack(folder, "probe2.mar", ECHO, modelName="probe", modelVersion="2.0")
    pack(folder, "raises.mar", RAISES)
    pack(folder, "dies.mar", DIES)
    pack(folder, "hangs.mar", HANGS, config="startupTimeout: 1\n")
    pack(folder, "mute.mar", MUTE)
    pack(folder, "slow.mar", SLOW)
    pack(folder, "breaks.mar", BREAKS)
    pack(folder, "tuned.mar", ECHO, config=CONFIG)
    pack(folder, "stateful.mar", ECHO, config="sequenceBatching: true\nsequenceMaxIdleMSec: 5000\n")
    (folder / "junk.mar").write_bytes(b"junk")
    return folder


@pytest.fixture(scope="module")
def running(store: Path) -> Iterator[Served]:
    """Return a server with one model, which tests do not change."""
    with served(store / "probe.mar", model_store=store) as server:
        yield server


@pytest.fixture
def fresh(store: Path) -> Iterator[Served]:
    """Return a new server without a model."""
    with served(model_store=store) as server:
        yield server


def error(code: int, kind: str, message: str) -> dict[str, Any]:
    return {"code": code, "type": kind, "message": message}


def bad(message: str) -> dict[str, Any]:
    return error(400, "BadRequestException", message)


def missing(message: str) -> dict[str, Any]:
    return error(404, "ModelNotFoundException", message)


def status(text: str) -> dict[str, str]:
    return {"status": text}


NOT_ALLOWED = error(405, "MethodNotAllowedException", "Requested method is not allowed, please refer to API document.")
NO_RESOURCE = error(404, "ResourceNotFoundException", "Requested resource is not found, please refer to API document.")
NO_MODEL = error(404, "ModelNotFoundException", "Model not found: nope")
NO_VERSION = error(404, "ModelVersionNotFoundException", "Model version: 9 does not exist for model: probe")
DEFAULT_9 = error(404, "ModelVersionNotFoundException", "Model version 9 does not exist for model probe")
MAX_LESS = error(400, "BadRequestException", "max_worker cannot be less than min_worker.")

CONFLICT = error(409, "ConflictStatusException", "Model version 1.0 is already registered for model probe")
NO_HANDLER = bad("the handler 'os' is neither a built-in nor in the archive")

# answers → requests
ANSWERS: list[tuple[Any, list[str]]] = [
    ({"models": [{"modelName": "probe", "modelUrl": "probe.mar"}]}, ["GET /models"]),
    (
        NO_MODEL,
        [
            *("GET /models/nope", "GET /models/nope/all", "OPTIONS /models/nope", "GET /v1/models/nope"),
            *("PUT /models/nope?min_worker=1", "PUT /models/nope/9/set-default", "DELETE /models/nope"),
        ],
    ),
    (NO_VERSION, ["GET /models/probe/9", "PUT /models/probe/9?min_worker=1", "PUT /models/probe?model_version=9"]),
    (NO_VERSION, ["DELETE /models/probe/9"]),
    (
        NO_RESOURCE,
        [
            *("GET /models/probe/1.0/other", "GET /models/probe/1.0/set-default/more", "PUT /models/probe/1.0/other"),
            *("GET /v1/models", "GET /ping", "GET /predictions/probe", "GET /metrics", "GET /token?type=management"),
            *("GET /api-description/more", "DELETE /models/probe/1.0/more"),
        ],
    ),
    (
        NOT_ALLOWED,
        [
            *("PUT /models", "PATCH /models/probe", "DELETE /models", "OPTIONS /models", "POST /models/probe"),
            *("POST /models/probe/1.0/set-default", "POST /v1/models/probe", "GET /"),
        ],
    ),
    ({"name": "probe", "ready": True}, ["GET /v1/models/probe"]),
    (MAX_LESS, ["PUT /models/probe?min_worker=2&max_worker=1", "PUT /models/probe?max_worker=0"]),
    (bad("Parameter min_worker allows only 0 to 1000."), ["PUT /models/probe?min_worker=-1"]),
    (DEFAULT_9, ["PUT /models/probe/9/set-default"]),
    (
        status('Default version successfully updated for model "probe" to "1.0"'),
        ["PUT /models/probe/1.0/set-default"],
    ),
    (status("Workers scaled to 1 for model: probe"), ["PUT /models/probe?synchronous=true"]),
    (status("Workers scaled to 1 for model: probe, version: 1.0"), ["PUT /models/probe/1.0?synchronous=TRUE"]),
    (status("Processing worker updates..."), ["PUT /models/probe?min_worker=x&synchronous=1"]),
    (bad("Parameter url is required."), ["POST /models"]),
    (missing("empty url"), ["POST /models?url="]),
    (missing("Model not found at: nope.mar"), ["POST /models?url=nope.mar"]),
    (missing("Model not found at: sub/probe.mar"), ["POST /models?url=sub%2Fprobe.mar"]),
    (bad("Invalid RuntimeType value: perl"), ["POST /models?url=probe.mar&runtime=perl"]),
    (CONFLICT, ["POST /models?url=probe.mar"]),
    (error(400, "InvalidModelException", "not a zip file"), ["POST /models?url=junk.mar"]),
    (bad("Parameter initial_workers allows at most 1000."), ["POST /models?url=probe.mar&initial_workers=1001"]),
    (NO_HANDLER, ["POST /models?url=probe.mar&model_name=x&handler=os"]),
]


@pytest.mark.parametrize(
    ("expected", "line"),
    [(expected, line) for expected, lines in ANSWERS for line in lines],
    ids=lambda each: str(each)[:60],
)
def test_answers(running: Served, expected: Any, line: str) -> None:
    code, found = running.manage(*line.split(" "))
    assert found == expected
    accepted = 202 if expected == status("Processing worker updates...") else 200
    assert code == expected.get("code", accepted)


def test_a_models_name_is_plain(running: Served) -> None:
    for name in ("a b", "a/b", "..", ".", "<script>", "ü", "a%00b", "a\nb"):
        body = json.dumps({"url": "probe.mar", "model_name": name}).encode()
        code, found = running.manage("POST", "/models", body, content_type="application/json")
        assert (code, found["type"]) == (400, "BadRequestException")
        assert "model_name" in found["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"url": 1}', b'{"url": "probe.mar", "batch_size": "x"}'])
def test_an_invalid_json_body(running: Served, body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as raised:
        msgspec.json.decode(body, type=Registration, strict=False)
    code, found = running.manage("POST", "/models", body, content_type="application/json; charset=utf-8")
    assert (code, found["type"]) == (400, "BadRequestException")
    assert str(raised.value) in found["message"]


def test_descriptions_of_sequences_and_of_handlers_without_metadata(fresh: Served) -> None:
    fresh.manage("POST", "/models?url=stateful.mar&initial_workers=0")
    _, (found,) = fresh.manage("GET", "/models/stateful")
    keys = ("stateful", "sequenceMaxIdleMSec", "sequenceTimeoutMSec", "maxNumSequence", "maxSequenceJobQueueSize")
    assert [found[key] for key in keys] == [True, 5000, 0, 1, 1]  # as a real server says
    fresh.manage("POST", "/models?url=mute.mar&initial_workers=1")
    code, (found,) = fresh.manage("GET", "/models/mute?customized=true")
    assert (code, found["customizedMetadata"]) == (200, {})
    fresh.manage("POST", "/models?url=breaks.mar&initial_workers=1")
    expected = error(503, "InternalServerException", "Prediction failed")
    assert fresh.manage("GET", "/models/breaks?customized=true") == (503, expected)


def test_descriptions_of_a_model_and_of_the_api(running: Served) -> None:
    expected = {
        "modelName": "probe", "modelVersion": "1.0", "modelUrl": "probe.mar", "runtime": "python",
        "minWorkers": 1, "maxWorkers": 1, "batchSize": 1, "maxBatchDelay": 100, "responseTimeout": 120,
        "startupTimeout": 120, "maxRetryTimeoutInSec": 300, "clientTimeoutInMills": 0, "parallelType": "",
        "parallelLevel": 0, "deviceType": "cpu", "continuousBatching": False, "useJobTicket": False, "useVenv": False,
        "stateful": False, "sequenceMaxIdleMSec": 0, "sequenceTimeoutMSec": 0, "maxNumSequence": 0,
        "maxSequenceJobQueueSize": 0, "loadedAtStartup": True,
        "workers": [{"id": "9000", "startTime": "", "status": "READY", "memoryUsage": 0, "pid": 0, "gpu": False,
                     "gpuUsage": "N/A"}],
        "jobQueueStatus": {"remainingCapacity": 100, "pendingRequests": 0},
    }  # fmt: skip
    for path in ("/models/probe", "/models/probe/1.0", "/models/probe/all", "/models/probe/1.0/set-default"):
        code, (found,) = running.manage("GET", path)
        (worker,) = found["workers"]
        assert worker["pid"] > 0
        assert worker["memoryUsage"] > 1 << 20
        assert worker["startTime"].endswith("Z")
        moved = [worker | {key: value for key, value in expected["workers"][0].items() if key in MOVED - {"id"}}]
        assert (code, json.dumps(found | {"workers": moved})) == (200, json.dumps(expected))
    code, (found,) = running.manage("GET", "/models/probe?customized=true")
    assert (code, list(found)[-1]) == (200, "customizedMetadata")
    assert found["customizedMetadata"] == {"rows": 1, "keys": [[]], "describe": "True"}
    for line in ("GET /api-description", "OPTIONS /models/probe", "OPTIONS /models/probe/1.0", "OPTIONS /"):
        code, found = running.manage(*line.split())
        assert code == 200
        assert "/models/{model_name}/{model_version}/set-default" in found["paths"]


def test_pages_of_models(fresh: Served) -> None:
    for name in "cab":
        fresh.manage("POST", f"/models?url=probe.mar&model_name={name}")

    def page(query: str) -> tuple[list[str], str | None]:
        _, found = fresh.manage("GET", f"/models?{query}")
        assert list(found)[-1] == "models"
        return [model["modelName"] for model in found["models"]], found.get("nextPageToken")

    assert page("") == (["a", "b", "c"], None)
    assert page("limit=2") == (["a", "b"], "2")
    assert page("limit=2&next_page_token=2") == (["c"], None)
    assert page("limit=1&next_page_token=2") == (["c"], "3")
    assert page("limit=0") == ([], "0")
    for query in ("limit=-1", "limit=101", "limit=x&next_page_token=y", "next_page_token=-1"):
        assert page(query) == (["a", "b", "c"], None)
    assert page("next_page_token=9") == ([], None)


@pytest.mark.slow  # registers a hundred
def test_a_page_has_a_hundred_models_at_most(fresh: Served) -> None:
    for number in range(102):
        assert fresh.manage("POST", f"/models?url=probe.mar&model_name=m{number}")[0] == 200
    for query in ("", "limit=101", "limit=100"):
        _, found = fresh.manage("GET", f"/models?{query}")
        assert (len(found["models"]), found["nextPageToken"]) == (100, "100")


def test_the_life_of_a_model(fresh: Served, store: Path) -> None:
    registered = 'Model "probe" Version: {} registered with {} initial workers'
    hint = ". Use scale workers API to add workers for the model."
    assert fresh.manage("POST", "/models?url=probe.mar&initial_workers=1") == (200, status(registered.format("1.0", 1)))
    assert fresh.manage("POST", "/models?url=probe2.mar") == (200, status(registered.format("2.0", 0) + hint))
    assert fresh.request("POST", "/predictions/probe", b"x")[::2] == (200, b"1")
    assert fresh.request("POST", "/predictions/probe/2.0", b"x")[0] == 503
    code, found = fresh.manage("GET", "/models/probe/2.0?customized=true")
    assert (code, found["message"]) == (503, UNAVAILABLE.format("probe"))
    assert fresh.manage("PUT", "/models/probe/2.0?min_worker=2&synchronous=true")[0] == 200
    assert fresh.request("POST", "/predictions/probe/2.0", b"x")[0] == 200
    code, found = fresh.manage("GET", "/models/probe/all")
    versions = [(each["modelVersion"], len(each["workers"]), each["loadedAtStartup"]) for each in found]
    assert versions == [("1.0", 1, False), ("2.0", 2, False)]
    forbidden = error(403, "InvalidModelVersionException", "Cannot remove default version for model probe")
    assert fresh.manage("DELETE", "/models/probe") == (403, forbidden)
    assert fresh.manage("PUT", "/models/probe/2.0/set-default")[0] == 200
    assert fresh.manage("DELETE", "/models/probe/1.0") == (200, status('Model "probe" unregistered'))
    assert fresh.manage("PUT", "/models/probe?min_worker=1&max_worker=1&synchronous=true")[0] == 200
    assert len(fresh.manage("GET", "/models/probe")[1][0]["workers"]) == 1
    assert fresh.manage("PUT", "/models/probe?min_worker=0&synchronous=true")[0] == 200
    assert fresh.request("POST", "/predictions/probe", b"x")[0] == 503
    assert fresh.manage("DELETE", "/models/probe") == (200, status('Model "probe" unregistered'))
    assert fresh.request("POST", "/predictions/probe", b"x")[0] == 404
    assert fresh.manage("GET", "/models") == (200, {"models": []})
    assert (store / "probe2.mar").exists()


def test_a_registered_version_does_not_become_the_default_before_it_is_loaded(store: Path) -> None:
    models = {"probe": {"2.0": ModelProperties(default_version=True)}}
    with served(store / "probe.mar", model_store=store, loader=replace(LOADER, models=models)) as server:
        assert server.manage("POST", "/models?url=probe2.mar")[0] == 200
        assert server.manage("GET", "/models/probe")[1][0]["modelVersion"] == "1.0"


REGISTERED = {
    "url=probe.mar&batch_size=3&max_batch_delay=7&response_timeout=9": (0, 0, 3, 7, 9),
    "url=probe.mar&batch_size=x&max_batch_delay=-1&response_timeout=0": (0, 0, 1, 100, 120),
    "url=tuned.mar&batch_size=2&max_batch_delay=7&response_timeout=9": (1, 2, 2, 7, 33),
    "url=tuned.mar&initial_workers=5": (1, 2, 4, 20, 33),
    "url=probe.mar&model_name=&handler=&url=nope.mar": (0, 0, 1, 100, 120),
}


@pytest.mark.parametrize("form", ["query", "json"])
def test_the_settings_of_a_registration(fresh: Served, form: str) -> None:
    for query, expected in REGISTERED.items():
        if form == "query":
            code, found = fresh.manage("POST", f"/models?{query}")
        else:
            pairs = [pair.split("=") for pair in query.split("&")]
            given = {name: value for name, value in reversed(pairs) if value not in {"", "x"}} | {"unknown": 1}
            code, found = fresh.manage("POST", "/models", json.dumps(given).encode(), content_type="application/json")
        assert code == 200, found
        name = found["status"].split('"')[1]
        (described,) = fresh.manage("GET", f"/models/{name}")[1]
        keys = ("minWorkers", "maxWorkers", "batchSize", "maxBatchDelay", "responseTimeout")
        assert tuple(described[key] for key in keys) == expected
        assert fresh.manage("DELETE", f"/models/{name}")[0] == 200


def test_a_model_that_does_not_start_is_gone(fresh: Served) -> None:
    reasons = {
        "raises": "the handler failed in initialize: ValueError: no weights",
        "dies": "the worker ended with exit code 3 while loading the model",
    }
    for name, reason in reasons.items():
        code, found = fresh.manage("POST", f"/models?url={name}.mar&initial_workers=1")
        message = f"Failed to start workers for model {name} version: 1.0: {reason}"
        assert (code, found) == (500, error(500, "InternalServerException", message))
        assert fresh.manage("GET", "/models") == (200, {"models": []})
        assert fresh.request("GET", "/ping")[0] == 200


@pytest.mark.slow  # a start takes whole seconds of time
def test_a_model_that_hangs_is_gone_when_its_time_is_up(fresh: Served) -> None:
    assert fresh.manage("POST", "/models?url=hangs.mar&initial_workers=1&synchronous=false")[0] == 202
    assert fresh.manage("GET", "/models/hangs")[1][0]["workers"][0]["status"] == "UNLOADING"
    assert fresh.manage("GET", "/v1/models/hangs")[1] == {"name": "hangs", "ready": False}
    assert fresh.manage("POST", "/models?url=probe2.mar&model_name=hangs&initial_workers=1")[0] == 200
    wait_until(lambda: fresh.manage("GET", "/models/hangs/1.0")[0] == 404)
    assert fresh.log.failures[0].startswith("hangs 1.0: ")
    assert fresh.request("POST", "/predictions/hangs", b"x")[0] == 200, "another version is the default one now"


def test_registered_without_waiting(fresh: Served) -> None:
    connection = http.client.HTTPConnection(fresh.management)  # a client that leaves does not stop what it began
    connection.request("POST", "/models?url=tuned.mar&initial_workers=1")
    connection.close()
    accepted = (202, status("Processing worker updates..."))
    assert fresh.manage("POST", "/models?url=probe.mar&initial_workers=1&synchronous=false") == accepted
    assert fresh.request("POST", "/predictions/probe", b"x")[::2] == (200, b"1")
    wait_until(lambda: fresh.request("POST", "/predictions/tuned", b"x")[0] == 200)
    assert fresh.manage("POST", "/models?url=raises.mar&initial_workers=1&synchronous=false") == accepted
    wait_until(lambda: fresh.manage("GET", "/models/raises")[0] == 404)
    assert fresh.manage("PUT", "/models/probe?min_worker=2") == accepted
    wait_until(lambda: len(fresh.manage("GET", "/models/probe")[1][0]["workers"]) == 2)


@pytest.mark.slow  # a worker is tried again for whole seconds
def test_workers_that_were_given_up_are_started_anew(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    handler = f"import os\nif os.path.exists({str(fault)!r}):\n    raise ValueError\n{ECHO}"
    path = pack(tmp_path, "m.mar", handler, config="maxRetryTimeoutInSec: 1\n")
    with served(path, loaded=False) as server:
        wait_until(lambda: server.request("POST", "/predictions/m", b"x")[0] == 503)
        fault.unlink()
        assert server.manage("PUT", "/models/m?min_worker=1&synchronous=true")[0] == 200
        assert server.request("POST", "/predictions/m", b"x")[0] == 200


def test_a_description_shares_no_batch(fresh: Served) -> None:
    assert fresh.manage("POST", "/models?url=probe.mar&initial_workers=1&batch_size=4&max_batch_delay=200")[0] == 200
    waiting = [http.client.HTTPConnection(fresh.inference) for _ in range(3)]
    for connection in waiting:
        connection.request("POST", "/predictions/probe", b"wait")
    assert fresh.manage("GET", "/models/probe?customized=true")[1][0]["customizedMetadata"]["rows"] == 1
    assert {connection.getresponse().read() for connection in waiting} == {b"3"}
    for connection in waiting:
        connection.close()


@pytest.mark.parametrize("change", [("PUT", "/models/slow?min_worker=0"), ("DELETE", "/models/slow")])
def test_waiting_requests_get_a_response_when_the_last_worker_ends(store: Path, change: tuple[str, str]) -> None:
    with served(model_store=store, loader=replace(LOADER, settings=ModelSettings(leave_timeout=0))) as server:
        assert server.manage("POST", "/models?url=slow.mar&initial_workers=1")[0] == 200
        asked = [(server.management, "/models/slow?customized=true")] * 2
        asked += [(server.inference, "/predictions/slow")] * 2
        waiting = [http.client.HTTPConnection(place) for place, _ in asked]
        for connection, (_, path) in zip(waiting, asked, strict=True):
            connection.request("GET", path)
        model = server.server.registry.find("slow")
        wait_until(lambda: any(worker.in_flight for worker in model.workers) and len(model.queue) == 2)
        server.manage(*change)
        assert [connection.getresponse().status for connection in waiting] == [503] * 4
        for connection in waiting:
            connection.close()


def test_an_archive_that_is_not_served_is_closed(running: Served) -> None:
    def opened() -> int:
        links = [Path(os.path.realpath(link)).name for link in Path("/proc/self/fd").iterdir()]
        return links.count("probe.mar")

    before = opened()
    assert before == 1, "the one that is served"
    for _ in range(3):
        assert running.manage("POST", "/models?url=probe.mar")[0] == 409
    assert opened() == before


def test_no_model_is_registered_without_the_model_api_or_against_the_rules(store: Path) -> None:
    with served(store / "probe.mar") as server:
        for line in ("POST /models?url=probe2.mar", "DELETE /models/probe", "DELETE /models/a/1"):
            assert server.manage(*line.split()) == (405, NOT_ALLOWED)
        assert server.manage("PUT", "/models/probe?min_worker=1&synchronous=true")[0] == 200
        assert server.manage("PUT", "/models/probe/1.0/set-default")[0] == 200
    loader = replace(LOADER, rules=AdmissionRules(digests=frozenset({"sha256:x"})))
    with served(model_store=store, loader=loader) as server:
        code, found = server.manage("POST", "/models?url=probe.mar")
        assert (code, found["type"]) == (400, "InvalidModelException")
        assert INDEX_NAME in found["message"]
        assert str(store) not in found["message"]
        assert server.manage("GET", "/models") == (200, {"models": []})


def test_the_responses_of_the_compatibility_mode(store: Path) -> None:
    with served(model_store=store, compat=True) as server:
        code, found = server.manage("POST", "/models", b"{", content_type="application/json")
        assert (code, found["type"]) == (500, "JsonSyntaxException")
        code, found = server.manage("POST", "/models?url=raises.mar&initial_workers=1")
        assert found["message"] == "Failed to start workers for model raises version: 1.0"
        assert server.manage("GET", "/models/raises")[0] == 404
        assert server.manage("POST", "/models?url=raises.mar")[0] == 200
        code, found = server.manage("PUT", "/models/raises?min_worker=1&synchronous=true")
        assert (code, found["message"]) == (500, "Failed to start workers for model raises version: null")
        assert server.manage("POST", "/models?url=..%2Fprobe.mar")[0] == 404
        assert server.manage("POST", "/models?url=hangs.mar&initial_workers=1&synchronous=false")[0] == 202
        assert server.manage("GET", "/v1/models/hangs")[1] == {"name": "hangs", "ready": True}


@pytest.mark.parametrize("compat", [False, True])
def test_one_address_for_all(store: Path, compat: bool) -> None:
    everything = dict.fromkeys(("inference", "management", "metrics"), free_address())
    with served(store / "probe.mar", model_store=store, compat=compat, default_workers=2, **everything) as server:
        registered = 'Model "m" Version: 1.0 registered with 2 initial workers'
        assert server.manage("POST", "/models?url=probe.mar&model_name=m") == (200, status(registered))
        assert list(server.log.addresses) == ["inference"]
        assert server.request("POST", "/predictions/probe", b"x")[0] == 200
        assert server.request("POST", "/models/probe/invoke", b"x")[0] == 200
        assert server.manage("GET", "/models")[0] == 200
        assert server.manage("GET", "/models/probe/1.0")[0] == (404 if compat else 200)
        assert server.manage("PUT", "/models/probe/1.0/set-default")[0] == 200
        assert b"Requests2XX" in server.request("GET", "/metrics")[2]


def test_folders_of_a_multi_model_endpoint(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "ml" / "models"
    with zipfile.ZipFile(store / "probe.mar") as archive:
        archive.extractall(root / "id7" / "model")
    everything = dict.fromkeys(("inference", "management"), free_address())
    options = {"model_store": Path("/"), "store_roots": (root,), "default_workers": 1, **everything}
    with served(**options) as server:
        url = str(root / "id7" / "model")
        body = json.dumps({"model_name": "id7", "url": url}).encode()
        code, _ = server.manage("POST", "/models", body, Content_Type="application/json")
        assert code == 200
        assert server.manage("POST", "/models", body, Content_Type="application/json")[0] == 409
        assert server.manage("GET", "/models") == (200, {"models": [{"modelName": "id7", "modelUrl": url}]})
        assert server.manage("GET", "/models/id7")[1][0]["modelUrl"] == url
        assert server.request("POST", "/models/id7/invoke", b"x")[::2] == (200, b"1")
        assert server.manage("DELETE", "/models/id7")[0] == 200
        assert server.request("POST", "/models/id7/invoke", b"x")[0] == 404
        assert (root / "id7" / "model" / "handler.py").is_file()
        outside = json.dumps({"model_name": "x", "url": str(store / "probe.mar")}).encode()
        assert server.manage("POST", "/models", outside, Content_Type="application/json")[0] == 404


@pytest.mark.parametrize("shares", [False, True])
def test_another_sites_page_is_refused(store: Path, shares: bool) -> None:
    where = dict.fromkeys(("inference", "management"), free_address()) if shares else {}
    strangers = [{"Host": "evil.example"}, {"Host": "localhost.evil.example:8081"}, {"Origin": "http://evil.example"}]
    strangers += [{"origin": "http://127.0.0.1", "Origin": "http://evil.example"}, {"Origin": "null"}]
    with served(model_store=store, **where) as server:
        for line in ("GET /models", "POST /models?url=probe.mar", "PUT /models/a/1/set-default"):
            for headers in strangers:
                code, found = server.manage(*line.split(), **headers)
                assert (code, found["type"]) == (403, "ForbiddenException")
        assert server.manage("GET", "/models", Origin=f"http://{server.management}") == (200, {"models": []})


@pytest.mark.parametrize("compat", [False, True])
def test_tokens(store: Path, tmp_path: Path, compat: bool) -> None:
    file = tmp_path / "key_file.json"
    tokens = Tokens(file)
    with served(model_store=store, tokens=tokens, compat=compat) as server:

        def keys() -> dict[str, str]:
            return {kind: f"Bearer {entry['key']}" for kind, entry in json.loads(file.read_text()).items()}

        refused = 400 if compat else 401
        words = "Token {} failed. Token either incorrect, expired, or not provided correctly"
        code, headers, body = server.request("GET", "/models", at=server.management)
        assert code == refused
        assert json.loads(body) == error(refused, "InvalidKeyException", words.format("Authorization"))
        assert headers.get("www-authenticate") == (None if compat else "Bearer")
        assert server.manage("GET", "/models", Authorization=keys()["inference"])[0] == (400 if compat else 403)
        assert server.manage("POST", "/models?url=probe.mar")[0] == refused
        assert server.manage("GET", "/models", Authorization=keys()["management"])[0] == 200
        assert server.manage("OPTIONS", "/")[0] == 200
        assert server.manage("GET", "/api-description")[0] == 200
        old = keys()
        for path, key in [("/token?type=management", "management"), ("/token?type=other", "API"), ("/token", "API")]:
            code, found = server.manage("GET", path, Authorization=old[key])
            assert (code, found["message"]) == (refused, words.format("Authentication"))
        assert server.manage("GET", "/token?type=management", Authorization=old["API"], Origin="null")[0] == 403
        assert server.manage("GET", "/token?type=management", Authorization=old["API"]) == (200, None)
        assert server.manage("GET", "/models", Authorization=old["management"])[0] == refused
        assert server.manage("GET", "/models", Authorization=keys()["management"])[0] == 200
