"""The metrics port of a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving.served import Served, free_address, pack, served

from marpack.errors import UsageError
from marpack.serving.settings import Address

HANDLER = "def handle(data, context):\n    return data and ['x'] * len(data)\n"
TELLS_WHILE_LOADING = """
def handle(data, context):
    if data is None:
        print("labels read")
        context.metrics.add_time("HandlerTime", 7.5)
    return data and ["x"] * len(data)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server that has answered once."""
    with served(pack(tmp_path_factory.mktemp("models"), "m.mar", HANDLER)) as server:
        assert server.request("POST", "/predictions/m", b"x")[0] == 200
        assert server.request("GET", "/nothing")[0] == 404
        yield server


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "/metrics/any/thing"])
def test_all_metrics(running: Served, method: str, path: str) -> None:
    code, headers, body = running.request(method, path, at=running.metrics)
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'ts_inference_requests_total{model_name="m",model_version="default",' in body


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name[]=Requests2XX", {"Requests2XX"}),
        ("name%5B%5D=Requests2XX&name[]=Requests4XX", {"Requests2XX", "Requests4XX"}),
        ("name[]=Nope", set()),
        ("name[]=", set()),
    ],
)
def test_some_metrics(running: Served, query: str, names: set[str]) -> None:
    code, _, body = running.request("GET", f"/metrics?{query}", at=running.metrics)
    found = {line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE")}
    assert (code, found) == (200, names)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 405),
        ("OPTIONS", "/", 200),
        ("GET", "/api-description", 200),
        ("GET", "/ping", 404),
        ("GET", "/models", 404),
        ("POST", "/predictions/m", 404),
        ("GET", "/metric", 404),
    ],
)
def test_other_paths(running: Served, method: str, path: str, code: int) -> None:
    assert running.request(method, path, at=running.metrics)[0] == code


def test_metrics_at_the_address_of_management() -> None:
    shared = free_address("127.0.0.2")
    with served(management=shared, metrics=shared) as server:
        assert b"Requests2XX" in server.request("GET", "/metrics", at=server.management)[2]
        assert server.request("GET", "/metrics")[0] == 404


def test_metrics_that_nobody_asked_for_may_fail() -> None:
    with served(metrics=None) as first:
        taken = Address.parse(f"http://{first.inference}", 0)
        with served(metrics=taken, metrics_may_fail=True, loaded=False) as second:
            assert second.request("GET", "/ping")[0] == 200
            (note,) = second.log.notes
            assert str(taken) in note
        with pytest.raises(UsageError) as caught, served(metrics=taken):
            pass
        assert caught.value.code == "address-in-use"


def test_what_is_not_asked_for_is_not_listened_on() -> None:
    with served(metrics=None, management=None) as server:
        assert list(server.log.addresses) == ["inference"]
        assert server.request("GET", "/metrics")[0] == 404
        assert server.request("GET", "/models")[0] == 404


def test_what_a_handler_tells_while_it_is_loaded(tmp_path: Path) -> None:
    with served(pack(tmp_path, "m.mar", TELLS_WHILE_LOADING)) as server:
        lines = server.request("GET", "/metrics", at=server.metrics)[2].decode().splitlines()
        assert [line.rpartition(" ")[2] for line in lines if line.startswith("HandlerTime{")] == ["7.5"]
        assert server.log.lines == ["labels read"]
