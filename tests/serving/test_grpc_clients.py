"""Clients of TorchServe's, KServe's and Triton's gRPC with `marpack serve`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from conformance.grpc_calls import DATA
from conformance.grpc_scenes import TENSORS
from conformance.peer import require_peer
from grpc_tools import protoc
from msgspec.structs import replace
from serving.commands import serving
from serving.served import ANYWHERE, LOADER, STREAM, Served, pack, served

from marpack.serving.settings import GrpcSettings

pytestmark = pytest.mark.slow

_ECHO = """
def handle(data, context):
    if data is not None:
        texts = [bytes(row["data"]).decode() for row in data]
        assert "raise" not in texts
        return texts
"""
_DOUBLE = """
def handle(data, context):
    return None if data is None else [[2 * value for value in row["data"]] for row in data]
"""
# What ts_scripts/torchserve_grpc_client.py calls, with stubs as its readme makes them.
_PYTHON = """
import sys
import grpc, inference_pb2, inference_pb2_grpc

stub = inference_pb2_grpc.InferenceAPIsServiceStub(grpc.insecure_channel(sys.argv[1]))
metadata = (("protocol", "gRPC"), ("session_id", "12345"), ("authorization", "Bearer " + sys.argv[2]))


def request(model, **more):
    return inference_pb2.PredictionsRequest(model_name=model, input={"data": b"words"}, **more)


print(stub.Ping(inference_pb2.google_dot_protobuf_dot_empty__pb2.Empty(), metadata=metadata).health.split())
print(stub.Predictions(request("echo"), metadata=metadata).prediction.decode("utf-8"))
print([each.prediction.decode("utf-8") for each in stub.StreamPredictions(request("stream"), metadata=metadata)])
for call in (
    lambda: stub.Predictions(request("echo")),
    lambda: list(stub.StreamPredictions2(iter([request("echo", sequence_id="s")]), metadata=metadata)),
):
    try:
        call()
    except grpc.RpcError as error:
        print(error.code().name)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve models for TorchServe's clients."""
    folder = tmp_path_factory.mktemp("plain")
    sources = {"echo.mar": _ECHO, "stream.mar": STREAM, "tensors.mar": TENSORS}
    with served(*(pack(folder, *each) for each in sources.items()), grpc=GrpcSettings(ANYWHERE)) as server:
        yield server


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a model behind KServe's envelope."""
    loader = replace(LOADER, load=replace(LOADER.load, envelope="kservev2"))
    archive = pack(tmp_path_factory.mktemp("kserve"), "double.mar", _DOUBLE)
    with served(archive, loader=loader, grpc=GrpcSettings(ANYWHERE)) as server:
        yield server


def test_torchserves_python_client(tmp_path):
    includes = [f"-I{DATA / 'torchserve'}", f"-I{DATA}", f"-I{Path(protoc.__file__).with_name('_proto')}"]
    outputs = [f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    assert protoc.main(["protoc", *includes, *outputs, str(DATA / "torchserve" / "inference.proto")]) == 0
    archives = [str(pack(tmp_path, name, source)) for name, source in (("echo.mar", _ECHO), ("stream.mar", STREAM))]
    with serving(
        *archives, "--grpc-port", "0", "--token", "key_file.json", cwd=tmp_path, loaded=2, forks=True
    ) as server:
        key = json.loads((tmp_path / "key_file.json").read_text())["inference"]["key"]
        command = [sys.executable, "-c", _PYTHON, server.wait_for("listening", what="gRPC")["address"], key]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    lines = [
        "['{', '\"status\":', '\"Healthy\"', '}']",
        "words",
        "['a', 'bc', 'd']",
        "PERMISSION_DENIED",
        "UNIMPLEMENTED",
    ]
    assert done.stdout.splitlines() == lines, done.stderr


def test_java_with_the_stubs_of_torchserves_jar(plain, tmp_path):
    jar = next(require_peer().parent.glob("lib/python*/site-packages/ts/frontend/model-server.jar"))
    source = Path(__file__).parents[1] / "conformance" / "CallGrpc.java"
    if shutil.which("javac") is None:
        pytest.skip("there is a Java, but no compiler with it")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jar, source, *plain.log.addresses["gRPC"].split(":")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert dict(line.split("\t") for line in done.stdout.splitlines() if "\t" in line) == {
        "Ping": '{  "status": "Healthy"}',
        "Predictions": "words",
        "StreamPredictions": "a|bc|d|",
        "absent": "INTERNAL Model not found: absent",
        "failure": "UNAVAILABLE Prediction failed",
        "ServerLive": "true",
        "ModelReady": "true",
        "ModelInfer": "[0.5, -2.0]",
    }, done.stderr


def test_tritons_client(doubling):
    import tritonclient.grpc as triton

    with triton.InferenceServerClient(doubling.log.addresses["gRPC"]) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("double")
        with pytest.raises(triton.InferenceServerException, match="NOT_FOUND"):
            client.is_model_ready("absent")
        assert client.get_server_metadata().name
        assert client.get_model_metadata("double").versions == ["1.0"]
        for datatype, kind in (("INT64", np.int64), ("UINT8", np.uint8), ("FP32", np.float32), ("FP64", np.float64)):
            sent = np.array([1, 2, 3, 0], dtype=kind)
            given = triton.InferInput("x", [4], datatype)
            given.set_data_from_numpy(sent)  # raw_input_contents
            answer = client.infer("double", [given], request_id="mine")
            (output,) = answer.get_response().outputs
            assert answer.get_response().id == "mine"
            assert list(answer.as_numpy(output.name).ravel()) == [2, 4, 6, 0]
        answers = SimpleQueue()
        client.async_infer("double", [given], callback=lambda result, error: answers.put((result, error)))
        answer, error = answers.get(timeout=30)
        assert error is None
        assert list(answer.as_numpy(output.name).ravel()) == [2, 4, 6, 0]
        with pytest.raises(triton.InferenceServerException, match="not found"):
            client.infer("absent", [given])
        with pytest.raises(triton.InferenceServerException, match="UNIMPLEMENTED"):
            client.get_model_config("double")  # Triton's own
