"""The gRPC services of a real server: methods, errors, limits, tokens, health and the end."""

import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc
from serving.commands import serving
from serving.grpc_client import GrpcClient, Refused, connected
from serving.served import ANYWHERE, Served, free_address, pack, served, wait_until

from marpack.api.session_options import ServeOptions
from marpack.cli.serve_settings import ServeSettings
from marpack.errors import MissingExtraError, UsageError
from marpack.serving import grpc_messages
from marpack.serving.access import TokenKind, Tokens
from marpack.serving.api import Answered
from marpack.serving.grpc_messages import KSERVE, POOL, PREDICTIONS, SERVICES, methods
from marpack.serving.settings import Address, GrpcSettings
from marpack.version import __version__

DATA = Path(__file__).parents[1] / "data" / "grpc"
HANDLER = """
import json, os, pathlib, time
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.utils.util import PredictionException

def wait(path):
    pathlib.Path(path + ".begun").touch()
    while not os.path.exists(path):
        time.sleep(0.005)

def handle(data, context):
    if not data:
        return None
    (row,) = data
    body = row.get("body", row.get("data", b""))
    if isinstance(body, dict):
        outputs = body.get("parameters", body["inputs"])
        return [{"id": body["id"], "model_name": "probe", "model_version": "1.0", "outputs": outputs}]
    command, _, rest = bytes(body).decode().partition(" ")
    if command == "wait":
        wait(rest)
    elif command == "note":
        pathlib.Path(rest).touch()
    elif command == "raise":
        raise ValueError(rest)
    elif command == "code":
        raise PredictionException("as asked", int(rest))
    elif command == "status":
        context.set_response_status(int(rest), "as asked")
    elif command == "large":
        return ["x" * int(rest)]
    elif command == "die":
        os._exit(3)
    elif command in {"stream", "break"}:
        for piece in rest:
            send_intermediate_predict_response([piece], context.request_ids, "ok", 200, context)
        if command == "break":
            raise ValueError("in the middle")
        return ["last"]
    elif command == "row":
        names = {name: bytes(value).decode() for name, value in row.items()}
        return [json.dumps([names, context.get_all_request_header(0)])]
    return [bytes(body)]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("grpc")
    models = (
        pack(folder, "probe.mar", HANDLER),
        pack(folder, "narrow.mar", HANDLER, config="jobQueueSize: 1\n"),
        pack(folder, "wrong.mar", "def handle(data, context):\n    return data and ['[1]']\n"),
    )
    with served(*models, grpc=GrpcSettings(ANYWHERE), log_requests=True) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[GrpcClient]:
    with connected(server.grpc) as found:
        yield found


# --- Methods


def test_a_stream_that_breaks_off_is_an_error(client: GrpcClient):
    started = client.start("StreamPredictions", model_name="probe", input={"data": b"break ab"})
    assert [next(started.call).prediction, next(started.call).prediction] == [b"a", b"b"]
    assert started.result().code == "UNAVAILABLE"
    assert client.predict("break ab").code == "UNAVAILABLE"


@pytest.mark.parametrize("service", KSERVE)
def test_kserves_methods(client: GrpcClient, service: str):
    def call(method: str, **given: str) -> Any:
        return client.call(method, service=service, **given)

    assert (call("ServerLive").live, call("ServerReady").ready) == (True, True)
    assert (call("ServerMetadata").name, call("ServerMetadata").version) == ("marpack", __version__)
    assert call("ModelReady", name="probe").ready
    assert call("ModelReady", name="probe", version="1.0").ready
    metadata = call("ModelMetadata", name="probe")
    assert (metadata.name, list(metadata.versions), metadata.platform) == ("probe", ["1.0"], "")
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "contents": {"fp32_contents": [1.5, 2]}}
    answer = client.infer([tensor], service=service)
    assert (answer.id, answer.model_name, answer.model_version) == ("7", "probe", "1.0")
    (output,) = answer.outputs
    assert (output.name, list(output.shape), list(output.contents.fp32_contents)) == ("x", [1, 2], [1.5, 2])
    assert not answer.raw_output_contents


@pytest.mark.parametrize("service", ["", KSERVE[1]])
def test_torchserves_compatibility_mode(service: str):
    options = {"grpc": GrpcSettings(ANYWHERE), "compat": True, "open_inference": bool(service)}
    with served(**options) as running, connected(running.grpc) as client:
        assert client.call("Ping").health
        answer = client.call("ServerReady", service=service or KSERVE[0])
        assert answer.code == "UNIMPLEMENTED" if not service else answer.ready
        assert client.call("ServerMetadata", service=service or KSERVE[0]).code == "UNIMPLEMENTED"


def test_calls_are_logged_and_counted_as_requests_are(server: Served, client: GrpcClient):
    before = server.server.statistics.requests
    assert client.predict("hello") == b"hello"
    wait_until(lambda: server.server.statistics.requests > before)
    events = [event for event in server.log.events if isinstance(event, Answered)]
    event = events[-1]
    target = f"/{PREDICTIONS}/Predictions"
    assert (event.method, event.target, event.remote, event.status) == ("gRPC", target, "127.0.0.1", 200)
    assert (event.model, event.version, event.queue_ms is not None) == ("probe", "1.0", True)
    _, _, body = server.request("GET", "/metrics", at=server.metrics)
    counted = [line for line in body.decode().splitlines() if line.startswith("ts_inference_requests_total{")]
    assert any('model_name="probe"' in line for line in counted)


# --- Errors

MODELS = "org.pytorch.serve.archive.model"
JOBS = "org.pytorch.serve.http.InternalServerException"
PREDICTION_ERRORS = {
    ("nowhere", "", "x"): ("INTERNAL", f"Model not found: nowhere\n{MODELS}.ModelNotFoundException"),
    ("probe", "9", "x"): (
        "INTERNAL",
        f"Model version: 9 does not exist for model: probe\n{MODELS}.ModelVersionNotFoundException",
    ),
    ("", "", "x"): ("INTERNAL", "Parameter model_name is required.\nBadRequestException.()"),
    ("probe", "", "raise x"): ("UNAVAILABLE", f"Prediction failed\n{JOBS}"),
    ("probe", "", "code 400"): ("INVALID_ARGUMENT", f"as asked\n{JOBS}"),
    ("probe", "", "code 404"): ("NOT_FOUND", f"as asked\n{JOBS}"),
    ("probe", "", "code 408"): ("FAILED_PRECONDITION", f"as asked\n{JOBS}"),
    ("probe", "", "code 429"): ("RESOURCE_EXHAUSTED", f"as asked\n{JOBS}"),
    ("probe", "", "code 507"): ("INTERNAL", f"as asked\n{JOBS}"),
    ("probe", "", "code 600"): ("UNKNOWN", f"as asked\n{JOBS}"),
    ("probe", "", "die"): ("INTERNAL", f"Worker died.\n{JOBS}"),
}


@pytest.mark.parametrize("given", PREDICTION_ERRORS, ids=str)
def test_an_error_has_torchserves_code_and_details(client: GrpcClient, given: tuple[str, str, str]):
    name, version, text = given
    answer = client.predict(text, name, model_version=version)
    assert (answer.code, answer.details) == PREDICTION_ERRORS[given]
    streamed = client.call("StreamPredictions", model_name=name, model_version=version, input={"data": text.encode()})
    assert streamed == answer


def test_bytes_that_are_not_a_message(client: GrpcClient):
    for method in ("Predictions", "StreamPredictions", "ModelInfer", "ModelReady"):
        assert client.call(method, data=b"\xff\xff\xff").code == "INVALID_ARGUMENT"


def test_unknown_methods(client: GrpcClient):
    for path in ("/inference.GRPCInferenceService/ModelStreamInfer", "/a.B/c"):
        with pytest.raises(grpc.RpcError) as error:
            client.channel.unary_unary(path)(b"", timeout=5)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_beyond_the_limit(client: GrpcClient):
    assert client.predict("x" * 65_000) == b"x" * 65_000
    assert client.predict("x" * 66_000).code == "RESOURCE_EXHAUSTED"


def test_connections_beyond_the_limit_are_closed():
    with served(grpc=GrpcSettings(ANYWHERE)) as running, ExitStack() as stack:
        host, port = running.grpc.rsplit(":", 1)
        clients = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(110)]

        def closed() -> int:
            readable, _, _ = select.select(clients, [], [], 0)
            return sum(client.recv(1, socket.MSG_PEEK) == b"" for client in readable)

        wait_until(lambda: closed() == 10)
        for client in clients:
            client.close()
        with connected(running.grpc) as client:
            wait_until(lambda: not isinstance(client.call("Ping"), Refused))


def test_a_full_queue(client: GrpcClient, tmp_path: Path):
    go = tmp_path / "go"
    running = client.start("Predictions", model_name="narrow", input={"data": f"wait {go}".encode()})
    wait_until(Path(f"{go}.begun").exists)
    waiting = client.start("Predictions", model_name="narrow", input={"data": b"second"})
    refused = []
    while not refused:  # until the second call waits
        answer = client.predict("third", "narrow", timeout=0.2)
        refused += [answer] if answer.code != "DEADLINE_EXCEEDED" else []
    go.touch()
    assert refused[0].code == "INTERNAL"
    assert refused[0].details.startswith('Model "narrow" has no worker to serve inference request.')
    assert refused[0].details.endswith("\nInternalServerException.()")
    assert (running.result().prediction[:4], waiting.result().prediction) == (b"wait", b"second")


def test_a_call_without_a_client_leaves_the_queue(server: Served, client: GrpcClient, tmp_path: Path):
    go, queue = tmp_path / "go", server.server.registry.find("probe").queue
    running = client.start("Predictions", model_name="probe", input={"data": f"wait {go}".encode()})
    wait_until(Path(f"{go}.begun").exists)
    cancelled = client.start("Predictions", model_name="probe", input={"data": f"note {tmp_path}/cancelled".encode()})
    wait_until(lambda: len(queue) == 1)
    assert cancelled.call.cancel()
    wait_until(lambda: not len(queue))
    assert client.predict(f"note {tmp_path}/late", timeout=0.1).code == "DEADLINE_EXCEEDED"
    wait_until(lambda: not len(queue))
    go.touch()
    assert running.result().prediction
    assert client.predict("next") == b"next"
    assert not (tmp_path / "cancelled").exists()
    assert not (tmp_path / "late").exists()
    wait_until(lambda: server.server.statistics.failures["the client was gone"] >= 2)


# --- Tensors

FP32 = {"name": "x", "shape": [2], "datatype": "FP32"}
BYTES = {"name": "x", "shape": [2], "datatype": "BYTES"}
TYPED = {"contents": {"fp32_contents": [1, 2]}}
WRONG_TENSORS: dict[str, tuple[list[dict[str, Any]], list[bytes]]] = {
    "unknown datatype": ([{**FP32, "datatype": "FP64X"}], []),
    "no datatype": ([{"name": "x", "shape": [2], **TYPED}], []),
    "datatype in lower case": ([{**FP32, "datatype": "fp32", **TYPED}], []),
    "elements of another datatype": ([{**FP32, "contents": {"int_contents": [1, 2]}}], []),
    "elements of two datatypes": ([{**FP32, "contents": {"int_contents": [1], "fp32_contents": [1]}}], []),
    "FP16 with contents": ([{**FP32, "datatype": "FP16", **TYPED}], []),
    "BF16 without any": ([{**FP32, "datatype": "BF16"}], []),
    "fewer raw contents than inputs": ([FP32, FP32], [b"12345678"]),
    "more raw contents than inputs": ([FP32], [b"12345678", b""]),
    "raw contents without inputs": ([], [b"12345678"]),
    "raw contents and contents": ([{**FP32, **TYPED}], [b"12345678"]),
    "raw contents too short": ([FP32], [b"1234567"]),
    "raw contents too long": ([FP32], [b"123456789"]),
    "an element too few": ([FP32], [b"1234"]),
    "no raw bytes": ([FP32], [b""]),
    "a negative size": ([{**FP32, "shape": [-1, -2]}], [b"12345678"]),
    "a huge shape": ([{**FP32, "shape": [2**62, 2**62]}], [b"12345678"]),
    "a huge rank": ([{**FP32, "shape": [2**62] * 5000}], [b"12345678"]),
    "a huge shape with a zero in it": ([{**FP32, "shape": [2**62, 0]}], [b"12345678"]),
    "no shape": ([{**FP32, "shape": []}], [b"12345678"]),
    "a raw string without its length": ([BYTES], [b"\1"]),
    "a raw string beyond the end": ([BYTES], [b"\1\0\0\0a\xff\xff\xff\xffb"]),
    "a raw string too few": ([BYTES], [b"\1\0\0\0a"]),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_wrong_tensors_are_refused(server: Served, client: GrpcClient, case: str):
    inputs, raw = WRONG_TENSORS[case]
    answer = client.infer(inputs, raw)
    assert answer.code == "INVALID_ARGUMENT"
    assert "Traceback" not in answer.details
    assert len(answer.details) < 2000
    assert client.predict("next") == b"next"


def test_a_response_that_is_not_kserves(client: GrpcClient):
    answer = client.call("ModelInfer", model_name="wrong")
    assert answer.code == "INTERNAL"
    assert "KServe" in answer.details


def test_models_of_tensors_have_predictions_errors(client: GrpcClient):
    for name, version, text in (("nowhere", "", "x"), ("probe", "9", "x"), ("", "", "x")):
        answer = client.call("ModelInfer", model_name=name, model_version=version)
        assert (answer.code, answer.details) == PREDICTION_ERRORS[name, version, text]


# --- Tokens


def test_tokens_are_read_from_metadata(tmp_path: Path):
    tokens = Tokens(tmp_path / "key_file.json")
    keys = json.loads((tmp_path / "key_file.json").read_bytes())
    right = ("authorization", f"Bearer {keys['inference']['key']}")
    management = ("authorization", f"Bearer {keys['management']['key']}")
    refused = Refused(
        "PERMISSION_DENIED",
        "Token Authorization failed. Token either incorrect, expired, or not provided correctly",
    )
    with served(grpc=GrpcSettings(ANYWHERE), tokens=tokens) as running, connected(running.grpc) as client:
        for service in SERVICES:
            for method in methods(service):
                for metadata in ((), (("authorization", "Bearer wrong"),), (management,), (right, right)):
                    assert client.call(method, service=service, metadata=metadata) == refused, (method, metadata)
        assert client.call("Ping", metadata=(right,)).health
        assert client.call("ModelReady", metadata=(right,), name="x").code == "NOT_FOUND"
        health = health_pb2_grpc.HealthStub(client.channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        tokens.renew(TokenKind.INFERENCE)
        assert client.call("Ping", metadata=(right,)) == refused


# --- Descriptors, health, reflection and the end


def test_the_descriptors_are_those_of_the_published_files(tmp_path: Path):
    """The command is in tests/data/grpc/README.md."""
    services = ("torchserve/inference", "torchserve/open_inference_grpc", "kserve/open_inference_grpc")
    include = Path(protoc.__file__).with_name("_proto")
    options = [f"-I{DATA}", f"-I{include}", f"--descriptor_set_out={tmp_path / 'made'}"]
    assert protoc.main(["protoc", *options, *(f"{name}.proto" for name in ("google/rpc/status", *services))]) == 0
    packed = Path(grpc_messages.__file__).with_name("grpc_services.binpb")
    made, kept = (FileDescriptorSet.FromString(path.read_bytes()) for path in (tmp_path / "made", packed))
    assert made == kept


def test_reflection_lists_the_services(client: GrpcClient):
    database = ProtoReflectionDescriptorDatabase(client.channel)
    assert set(database.get_services()) == {
        *SERVICES,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for name in SERVICES:
        file = database.FindFileContainingSymbol(name)
        assert file.name == POOL.FindFileContainingSymbol(name).name
    streams = {
        method.name: (method.client_streaming, method.server_streaming)
        for method in database.FindFileContainingSymbol(PREDICTIONS).service[0].method
    }
    assert streams["StreamPredictions"] == (False, True)
    assert streams["StreamPredictions2"] == (True, True)


def test_health_of_a_service(client: GrpcClient):
    health = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", *SERVICES):
        assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
    with pytest.raises(grpc.RpcError) as error:
        health.Check(health_pb2.HealthCheckRequest(service="a.B"))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    watch = health.Watch(health_pb2.HealthCheckRequest(service="a.B"))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def test_health_follows_the_models_and_the_end_waits_for_running_calls(tmp_path: Path):
    go = tmp_path / "go"
    archive = pack(tmp_path, "probe.mar", f"{HANDLER}\nwait({str(tmp_path / 'load')!r})\n")
    with served(archive, grpc=GrpcSettings(ANYWHERE), loaded=False) as running:
        wait_until(lambda: "gRPC" in running.log.addresses)
        with connected(running.grpc) as client:
            health = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
            assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
            (tmp_path / "load").touch()
            assert next(health).status == health_pb2.HealthCheckResponse.SERVING
            last = client.start("Predictions", model_name="probe", input={"data": f"wait {go}".encode()})
            wait_until(Path(f"{go}.begun").exists)
            running.end()
            assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
            go.touch()
            assert last.result().prediction == f"wait {go}".encode()


def test_the_command_serves_and_drains_in_its_own_loop(tmp_path: Path):
    pack(tmp_path, "probe.mar", HANDLER)
    go = tmp_path / "go"
    words = ("probe.mar", "--grpc-port", "0", "--no-page", "--drain", "20")
    with serving(*words, cwd=tmp_path, forks=True) as process, connected(f"127.0.0.1:{process.port('gRPC')}") as client:
        assert client.predict("die").code == "INTERNAL"
        process.wait_for("loaded", times=2)
        waiting = [client.start("Predictions", model_name="probe", input={"data": b"x"}) for _ in range(90)]
        assert {each.result().prediction for each in waiting} == {b"x"}
        last = client.start("Predictions", model_name="probe", input={"data": f"wait {go}".encode()})
        wait_until(Path(f"{go}.begun").exists)
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: isinstance(client.predict("late", timeout=1.0), Refused))
        go.touch()
        assert last.result().prediction == f"wait {go}".encode()
        assert process.process.wait(60) == 0
        assert process.other == []


# --- Settings


def _settings(tmp_path: Path, config: str, **options: Any) -> ServeSettings:
    (tmp_path / "config.properties").write_text(config)
    return ServeSettings.of(ServeOptions(ts_config=str(tmp_path / "config.properties"), **options))


LISTENS = {
    ("", None, None): None,
    ("grpc_management_port=7071\nenable_grpc_ssl=true", None, None): None,
    ("", 7171, None): GrpcSettings(Address("127.0.0.1", 7171)),
    ("", 0, "0.0.0.0"): GrpcSettings(Address("0.0.0.0", 0)),
    ("grpc_inference_port=7171", None, None): GrpcSettings(Address("127.0.0.1", 7171)),
    ("grpc_inference_address=0.0.0.0", None, None): GrpcSettings(Address("0.0.0.0", 7070)),
    ("grpc_inference_address=::1\ngrpc_inference_port=1", 7171, None): GrpcSettings(Address("::1", 7171)),
    (
        "grpc_inference_port=1\ngrpc_inference_max_connection_age_ms=9\ngrpc_inference_max_connection_age_grace_ms=8",
        None,
        None,
    ): GrpcSettings(Address("127.0.0.1", 1), 9, 8),
}


@pytest.mark.parametrize("given", LISTENS, ids=str)
def test_grpc_is_off_without_a_setting(tmp_path: Path, given: tuple[str, int | None, str | None]):
    config, port, host = given
    settings = _settings(tmp_path, config, grpc_port=port, host=host)
    assert settings.grpc == LISTENS[given]
    grpc_is_public = settings.grpc is not None and not settings.grpc.address.is_loopback
    expected = grpc_is_public + (host == "0.0.0.0")
    reachable = [note for note in settings.notes() if "can reach" in note]
    assert len(reachable) == expected
    assert not any("http" in note for note in reachable)


def test_the_environment_replaces_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TS_GRPC_INFERENCE_PORT", "7171")
    assert _settings(tmp_path, "enable_envvars_config=true").grpc == GrpcSettings(Address("127.0.0.1", 7171))
    assert _settings(tmp_path, "enable_envvars_config=false").grpc is None


WRONG_SETTINGS = {
    "grpc_inference_port=7171\nenable_grpc_ssl=true": "tls-not-supported",
    "grpc_inference_port=70000": "invalid-integer",
    "grpc_inference_port=-1": "invalid-integer",
    "grpc_inference_max_connection_age_ms=0": "invalid-integer",
}


@pytest.mark.parametrize("config", WRONG_SETTINGS)
def test_wrong_settings_prevent_the_start(tmp_path: Path, config: str):
    with pytest.raises(UsageError) as error:
        _settings(tmp_path, config)
    assert error.value.code == WRONG_SETTINGS[config]


def test_without_the_extra_the_option_is_refused_and_the_config_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "grpc_health", None)
    with pytest.raises(MissingExtraError) as error:
        ServeSettings.of(ServeOptions(grpc_port=0))
    assert "[grpc]" in (error.value.hint or "")
    settings = _settings(tmp_path, "grpc_inference_port=7171")
    assert settings.grpc is None
    assert any("[grpc]" in note for note in settings.notes())


def test_addresses_that_are_not_available():
    taken = free_address()
    with served(grpc=GrpcSettings(taken)), pytest.raises(UsageError) as error, served(grpc=GrpcSettings(taken)):
        pass
    assert error.value.code == "address-in-use"
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(UsageError) as error, served(grpc=GrpcSettings(Address(host, 0))):
            pass
        assert error.value.code == "address-not-available"


def test_nothing_is_imported_while_it_is_off():
    program = (
        "import sys, marpack.cli.serve, marpack.cli.serve_settings, marpack.serving.server\n"
        "print([name for name in sys.modules if name.partition('.')[0] in {'grpc', 'google', 'grpc_health'}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
