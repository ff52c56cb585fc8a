"""A deployment on a real TorchServe 0.12, and what `marpack migrate` makes of it: the same responses."""

import json
from pathlib import Path

import pytest
from conformance.peer import require_peer
from conformance.server import Server
from conformance.wire import Message, exchange
from invoking import invoke
from serving.commands import serving

from marpack.serving.settings import read_properties

DEPLOYMENTS = Path(__file__).parents[1] / "data" / "deployments"
OWN = {
    "model_store",
    "load_models",
    "inference_address",
    "management_address",
    "metrics_address",
    "grpc_inference_port",
}
TEXT = ("text/plain", b"Hello, World")
JSON = ("application/json", b'{"instances": ["Hello"]}')
# Deployment → its config.properties, the names under which it serves archives, and requests.
CASES = {
    "config": ("config.properties", {}, [("/predictions/upper", TEXT), ("/predictions/swap/1.0", TEXT)]),
    "snapshot": (
        "config.properties",
        {},
        [("/predictions/text", TEXT), ("/predictions/text/2.0", TEXT), ("/predictions/text/3.0", TEXT)],
    ),
    "dockerfile": (
        "config.properties",
        {"upper.mar": "shout"},
        [("/predictions/shout", TEXT), ("/predictions/no", TEXT)],
    ),
    "kserve-v1": ("text/config/config.properties", {}, [("/v1/models/upper:predict", JSON)]),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.peer if name == "kserve-v1" else pytest.mark.slow) for name in CASES],
)
def test_the_migrated_server_gives_the_same_responses(tmp_path, name):
    config, names, requests = CASES[name]
    settings = {key: text for key, text in read_properties(DEPLOYMENTS / name / config).items() if key not in OWN}
    if name == "kserve-v1":
        settings["service_envelope"] = "kserve"  # the runtime of KServe sets it
    archives = sorted((DEPLOYMENTS / name).rglob("*.mar"))
    with Server(require_peer(), tmp_path / "server", settings=settings, models=archives) as server:
        for file, other in names.items():
            server.register(next(each for each in archives if each.name == file), other)
        theirs = [ask(server.inference, *request) for request in requests]
    words = ["migrate", str(DEPLOYMENTS / name), "-o", str(tmp_path / "new"), "--json"]
    found = json.loads(invoke(*words).stdout)
    models = sum(word.count("=./") for word in found["command"])
    with serving(*found["command"][2:], "--grpc-port", "0", cwd=tmp_path / "new", loaded=models) as ours:
        for request, expected in zip(requests, theirs, strict=True):
            path, (content_type, body) = request
            status, headers, text = ours.request(path, body, headers={"Content-Type": content_type})
            assert (status, text) == expected, headers


def ask(address: tuple[str, int], path: str, sent: tuple[str, bytes]) -> tuple[int, bytes]:
    content_type, body = sent
    found = exchange(address, Message("POST", path, (("Content-Type", content_type),), body))
    return found.status, found.body
