"""gRPC scenes: each call of TorchServe's inference services, its successes and its failures."""

from typing import Any

from conformance import scenes
from conformance.exchanges import Scene
from conformance.grpc_calls import Rpc

SERVE = "org.pytorch.serve.grpc.inference.InferenceAPIsService"
OPEN = "org.pytorch.serve.grpc.openinference.GRPCInferenceService"
KSERVE = "inference.GRPCInferenceService"
SHOW = scenes.SHOW.replace("row.items()", "sorted(row.items())")  # gRPC gives no order to inputs
TENSORS = """
import json
import time


def handle(data, context):
    return None if data is None else [answer(row["body"]) for row in data]


def answer(request):
    if request["id"].startswith("do "):
        exec(request["id"][3:])
    given = request.get("inputs", [])
    seen = {"name": "seen", "datatype": "BYTES", "shape": [1], "data": [json.dumps(request, sort_keys=True)]}
    outputs = [tensor for tensor in given if "data" in tensor and tensor["datatype"] != "BYTES"]
    return {"id": request["id"], "model_name": "tensors", "model_version": "1.0", "outputs": [*outputs, seen]}
"""
_LIMIT = 2000  # bytes of a request, and of a response
BIG = """
def handle(data, context):
    return None if data is None else [bytes(int(row["data"])) for row in data]
"""
# Its first call ends the worker, and no further one loads.
ONCE = """
import os
from pathlib import Path

flag = Path(os.environ["TEMP"], "used")
assert not flag.exists()


def handle(data, context):
    if data is not None:
        flag.touch()
        os._exit(1)
"""
_SEND = "from ts.handler_utils.utils import send_intermediate_predict_response as s; "
_PIECES = _SEND + "[s([p], context.request_ids, 'more', 200, context) for p in ('a', 'bc')]"
_RAISE = "from ts.utils.util import PredictionException; raise PredictionException({!r}, {})"
_SLEEP = "time.sleep(0.7)"


def _predict(name: str, model: str = "show", *, method: str = "Predictions", version: str = "", **more: Any) -> Rpc:
    """Return a prediction; `given` are its inputs, by default one with the key data."""
    given = more.pop("given", {"data": b"words"})
    request = {"model_name": model, "model_version": version, "input": given}
    return Rpc(name=name, method=f"{SERVE}/{method}", requests=(request,), **more)


def _does(name: str, source: str, *, method: str = "Predictions", **more: Any) -> Rpc:
    return _predict(name, method=method, given={"body": f"do {source}".encode()}, **more)


def _sequence(name: str, *requests: dict[str, Any]) -> Rpc:
    return Rpc(name=name, method=f"{SERVE}/StreamPredictions2", requests=requests)


def _open(name: str, method: str, /, **request: Any) -> Rpc:
    return Rpc(name=name, method=f"{OPEN}/{method}", requests=(request,))


def _infer(name: str, *tensors: dict[str, Any], model: str = "tensors", **request: Any) -> Rpc:
    return _open(name, "ModelInfer", model_name=model, inputs=tensors, **request)


def _tensor(datatype: str, shape: list[int], **contents: Any) -> dict[str, Any]:
    return {"name": datatype.lower(), "datatype": datatype, "shape": shape, "contents": contents}


_EVERY_TYPE = (
    _tensor("INT8", [2], int_contents=[-128, 127]),
    _tensor("INT16", [1], int_contents=[-32768]),
    _tensor("INT32", [2, 1], int_contents=[1, -2]),
    _tensor("INT64", [1], int64_contents=[-(1 << 63)]),
    _tensor("UINT8", [2], uint_contents=[0, 255]),
    _tensor("UINT16", [1], uint_contents=[65535]),
    _tensor("UINT32", [1], uint_contents=[7]),
    _tensor("UINT64", [1], uint64_contents=[7]),
    _tensor("FP32", [3], fp32_contents=[0.5, -2.0, 0.1]),
    _tensor("FP64", [2], fp64_contents=[0.1, 1e300]),
    _tensor("BOOL", [2], bool_contents=[True, False]),
    _tensor("BYTES", [2], bytes_contents=[b"words", b"\x00\xff"]),
)
_STREAMED = "StreamPredictions"
_PREDICTIONS = (
    Rpc(name="ping", method=f"{SERVE}/Ping"),
    _predict("data"),
    _predict("body", given={"body": b"words"}),
    _predict("json in body", given={"body": b'{"a": 1}'}),
    _predict("inputs", given={"body": b"\x00\xff", "data": b"1", "b": b"", "\xfc": b"x"}),
    _predict("no input", given={}),
    _predict("metadata", metadata=(("protocol", "gRPC"), ("session_id", "12345"), ("x-mine", "1"))),
    _predict("version", version="2.0"),
    _predict("unknown version", version="9.9"),
    _predict("unknown model", "absent"),
    _predict("unknown model and version", "absent", version="9.9"),
    _predict("no model", ""),
    _does("status 404", "context.set_response_status(404, 'Mine', i)"),
    _does("type", "context.set_response_content_type(i, 'image/png')"),
    _does("header", "context.set_response_header(i, 'X-Mine', 'a')"),
    _does("request id", _RAISE.format("{}", 400).replace("'{}'", "context.request_ids[i]")),
    _does("failure", "1 / 0"),
    _does("death", "import os; os._exit(1)", settled=True),
    _does("after death", "1", settled=True),
    *(_does(f"raises {code}", _RAISE.format("mine", code)) for code in (302, 400, 401, 403, 404, 408, 409, 413, 416)),
    *(_does(f"raises {code}", _RAISE.format("mine", code)) for code in (429, 499, 500, 501, 503, 504, 507, 513, 600)),
    _does("out of memory", "raise MemoryError"),
    _does("deadline", _SLEEP, timeout=0.2),
    _does("after deadline", "1"),
    _does("stream", _PIECES, method=_STREAMED),
    _does("stream that fails", "1 / 0", method=_STREAMED),
    _does("stream that fails later", f"{_PIECES}; 1 / 0", method=_STREAMED),
    _does("stream that raises 404", _RAISE.format("mine", 404), method=_STREAMED),
    _does("stream deadline", f"{_PIECES}; {_SLEEP}", method=_STREAMED, timeout=0.4),
    _predict("stream, unknown model", "absent", method=_STREAMED),
    _predict("stream, no model", "", method=_STREAMED),
)
_SEQUENCES = (
    _sequence("sequence", {"model_name": "show", "sequence_id": "s", "input": {"data": b"1"}}),
    _sequence("sequence without id", {"model_name": "show"}),
    _sequence("no sequence"),
)
_OPEN = (
    _open("live", "ServerLive"),
    _open("ready", "ServerReady"),
    _open("server metadata", "ServerMetadata"),
    _open("model ready", "ModelReady", name="tensors"),
    _open("model ready, version", "ModelReady", name="show", version="2.0"),
    _open("model ready, unknown", "ModelReady", name="absent"),
    _open("model ready, unknown version", "ModelReady", name="show", version="9.9"),
    _open("model ready, no name", "ModelReady"),
    _open("model metadata", "ModelMetadata", name="show"),
    _open("model metadata, version", "ModelMetadata", name="show", version="2.0"),
    _open("model metadata, unknown", "ModelMetadata", name="absent"),
    _open("model metadata, unknown version", "ModelMetadata", name="show", version="9.9"),
    _open("model metadata, no name", "ModelMetadata"),
    _infer("infer", _tensor("FP32", [2], fp32_contents=[1, 2]), id="mine"),
    _infer("infer, no id", _tensor("INT64", [1], int64_contents=[3])),
    _infer("infer, no inputs", id="mine"),
    *(_infer(f"infer {tensor['datatype']}", tensor) for tensor in _EVERY_TYPE),
    _infer("infer all types", *_EVERY_TYPE),
    _infer("infer FP16", _tensor("FP16", [1])),
    _infer("infer raw", {"name": "x", "datatype": "INT32", "shape": [1]}, raw_input_contents=[b"\x01\0\0\0"]),
    _infer("infer with a shape that differs", _tensor("INT32", [3], int_contents=[1])),
    _infer(
        "infer with parameters",
        _tensor("INT32", [1], int_contents=[1]) | {"parameters": {"p": {"int64_param": 1}}},
        parameters={"q": {"string_param": "a"}},
        outputs=[{"name": "int32"}],
    ),
    _infer("infer, version", _tensor("BOOL", [1], bool_contents=[True]), model_version="1.0"),
    _infer("infer, unknown version", model_version="9.9"),
    _infer("infer, unknown model", model="absent"),
    _infer("infer, no model", model=""),
    _infer("infer failure", id="do 1 / 0"),
    _infer("infer raises 404", id="do " + _RAISE.format("mine", 404)),
    Rpc(name="kserve live", method=f"{KSERVE}/ServerLive"),
    Rpc(name="kserve metadata", method=f"{KSERVE}/ServerMetadata"),
    Rpc(name="kserve infer", method=f"{KSERVE}/ModelInfer", requests=({"model_name": "tensors", "id": "mine"},)),
)
_BOUNDS = (
    _predict("at the limit", given={"data": b"z" * (_LIMIT - 100)}),
    _predict("above the limit", given={"data": b"z" * _LIMIT}),
    _open("live", "ServerLive"),
    _open("server metadata", "ServerMetadata"),
    _infer("infer"),
    _does("full queue", "1", behind=_does("", _SLEEP), behind_count=2),
    _does("full queue, version", "1", version="1.0", behind=_does("", _SLEEP), behind_count=2),
    _does("full queue, stream", "1", method=_STREAMED, behind=_does("", _SLEEP), behind_count=2),
    _does("room", "1", behind=_does("", _SLEEP), behind_count=1),
    _does("cancelled in the queue", "1", timeout=0.3, behind=_does("", _SLEEP), behind_count=1),
    _does("too slow", "time.sleep(9)"),
    _does("after that", "1"),
    *(_predict(f"response of {size}", "big", given={"data": b"%d" % size}) for size in (_LIMIT - 100, _LIMIT + 1)),
)
_STUCK = (
    _predict("stream of one", method=_STREAMED),
    _does("after stream of one", "1"),
    _does("stream of one call", _PIECES),
    _predict("last call", "once"),
    Rpc(name="ping", method=f"{SERVE}/Ping"),
    _open("live", "ServerLive"),
    _open("ready", "ServerReady"),
    _open("model ready", "ModelReady", name="once"),
)
_KEY = (("authorization", "Bearer INFERENCE"),)
_TOKENS = (
    _predict("key", metadata=_KEY),
    _predict("no key"),
    _predict("wrong key", metadata=(("authorization", "Bearer wrong"),)),
    _predict("management key", metadata=(("authorization", "Bearer MANAGEMENT"),)),
    _predict("key without Bearer", metadata=(("authorization", "INFERENCE"),)),
    _predict("key in another place", metadata=(("token", "Bearer INFERENCE"),)),
    _predict("stream without key", method=_STREAMED),
    Rpc(name="ping without key", method=f"{SERVE}/Ping"),
    Rpc(name="ping", method=f"{SERVE}/Ping", metadata=_KEY),
    _open("live without key", "ServerLive"),
    Rpc(name="ready", method=f"{OPEN}/ServerReady", metadata=_KEY),
    _infer("infer without key"),
    Rpc(name="unknown method without key", method=f"{KSERVE}/ServerLive"),
)
_ONE = '"minWorkers": 1, "maxWorkers": 1, "batchSize": 1, "responseTimeout": 1'
# Scene and call: the name of the ServerDifference that makes our response another.
GRPC_DIFFERENCES = {
    "server: raises 413": "GRPC_413",
    "server: sequence": "GRPC_SEQUENCES",
    "server: sequence without id": "GRPC_SEQUENCES",
    "server: no sequence": "GRPC_SEQUENCES",
    "server: infer FP16": "GRPC_TENSORS",
    "server: infer raw": "GRPC_TENSORS",
    "server: kserve live": "GRPC_KSERVE",
    "server: kserve infer": "GRPC_KSERVE",
    "bounds: above the limit": "GRPC_TOO_LARGE",
    "stuck: stream of one": "GRPC_STREAMS",
    "stuck: stream of one call": "GRPC_STREAMS",
    "tokens: unknown method without key": "GRPC_KSERVE",
}

GRPC_SCENES = (
    Scene(
        name="server",
        models={"show 1.0": SHOW, "show 2.0": SHOW, "tensors 1.0": TENSORS},
        settings={"ts_open_inference_protocol": "true"},
        exchanges=(*_PREDICTIONS, *_SEQUENCES, *_OPEN),
    ),
    Scene(
        name="bounds",
        models={"show 1.0": SHOW, "big 1.0": BIG},
        settings={
            "max_request_size": str(_LIMIT),
            "max_response_size": str(_LIMIT),
            "job_queue_size": "1",
            "models": f'{{"show": {{"1.0": {{{_ONE}}}}}}}',
        },
        exchanges=_BOUNDS,
    ),
    Scene(
        name="stuck",
        models={"show 1.0": SHOW, "once 1.0": ONCE},
        fragile="once",
        settings={"ts_open_inference_protocol": "true"},
        exchanges=_STUCK,
    ),
    Scene(
        name="tokens",
        models={"show 1.0": SHOW},
        settings={"disable_token_authorization": "false", "ts_open_inference_protocol": "true"},
        exchanges=_TOKENS,
    ),
)
