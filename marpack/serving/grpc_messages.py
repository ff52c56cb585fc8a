"""The messages and services of TorchServe's and KServe's gRPC APIs, in a descriptor pool of their own."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, empty_pb2, message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

PREDICTIONS = "org.pytorch.serve.grpc.inference"
KSERVE = ("org.pytorch.serve.grpc.openinference", "inference")  # TorchServe's package; KServe's and Triton's
_EMPTY = "google.protobuf.Empty"

# The fields of each message, numbered from 1 in this order, as in the published .proto files.
_STATUS = {"Status": "int32 code, string message, repeated google.protobuf.Any details"}
_PREDICTION_MESSAGES = {
    "PredictionsRequest": "string model_name, string model_version, map bytes input, optional string sequence_id",
    "PredictionResponse": "bytes prediction, optional string sequence_id, optional google.rpc.Status status",
    "TorchServeHealthResponse": "string health",
}
_TENSOR = "string name, string datatype, repeated int64 shape"
_FILLED_TENSOR = f"{_TENSOR}, map InferParameter parameters, InferTensorContents contents"
_INFERENCE = "string model_name, string model_version, string id, map InferParameter parameters"
_KSERVE_MESSAGES = {
    **dict.fromkeys(("ServerLiveRequest", "ServerReadyRequest", "ServerMetadataRequest"), ""),
    **dict.fromkeys(("ModelReadyRequest", "ModelMetadataRequest"), "string name, string version"),
    **dict.fromkeys(("ServerReadyResponse", "ModelReadyResponse"), "bool ready"),
    "ServerLiveResponse": "bool live",
    "ServerMetadataResponse": "string name, string version, repeated string extensions",
    "ModelMetadataResponse": "string name, repeated string versions, string platform, "
    "repeated ModelMetadataResponse.TensorMetadata inputs, repeated ModelMetadataResponse.TensorMetadata outputs, "
    "map string properties",
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "ModelInferRequest": f"{_INFERENCE}, repeated ModelInferRequest.InferInputTensor inputs, "
    "repeated ModelInferRequest.InferRequestedOutputTensor outputs, repeated bytes raw_input_contents",
    "ModelInferRequest.InferInputTensor": _FILLED_TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": "string name, map InferParameter parameters",
    "ModelInferResponse": f"{_INFERENCE}, repeated ModelInferResponse.InferOutputTensor outputs, "
    "repeated bytes raw_output_contents",
    "ModelInferResponse.InferOutputTensor": _FILLED_TENSOR,
    "InferParameter": "oneof bool bool_param, oneof int64 int64_param, oneof string string_param, "
    "oneof double double_param, oneof uint64 uint64_param",
    "InferTensorContents": "repeated bool bool_contents, repeated int32 int_contents, repeated int64 int64_contents, "
    "repeated uint32 uint_contents, repeated uint64 uint64_contents, repeated float fp32_contents, "
    "repeated double fp64_contents, repeated bytes bytes_contents",
}

# The request and the response of each method. All services are for inference: models are managed over HTTP only.
_PREDICTION = ("PredictionsRequest", "PredictionResponse")
_PREDICTION_METHODS = dict.fromkeys(("Predictions", "StreamPredictions", "StreamPredictions2"), _PREDICTION)
_KSERVE_NAMES = ("ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer")
_KSERVE_METHODS = {name: (f"{name}Request", f"{name}Response") for name in _KSERVE_NAMES}
SERVICES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    f"{PREDICTIONS}.InferenceAPIsService": {"Ping": (_EMPTY, "TorchServeHealthResponse"), **_PREDICTION_METHODS},
    **{f"{package}.GRPCInferenceService": _KSERVE_METHODS for package in KSERVE},
}
STREAMS = {"StreamPredictions": ("unary", "stream"), "StreamPredictions2": ("stream", "stream")}  # other than unary


# Any stands for protobuf's types, which are not declared.
def _file(package: str, messages: Mapping[str, str], *imported: str) -> Any:
    """Return the descriptor of a package's file. A message with a dot in its name is nested."""
    file = descriptor_pb2.FileDescriptorProto(package=package, syntax="proto3", dependency=imported)
    file.name = f"{package.replace('.', '/')}/marpack.proto"
    added: dict[str, Any] = {}
    for full_name, fields in messages.items():
        outer, _, name = full_name.rpartition(".")
        siblings = added[outer].nested_type if outer else file.message_type
        added[full_name] = siblings.add(name=name)
        for field in filter(None, fields.split(", ")):
            _add_field(added[full_name], package, full_name, field.split())
    for service, methods in SERVICES.items():
        if service.rpartition(".")[0] == package:
            described = file.service.add(name=service.rpartition(".")[2])
            for name, (request, response) in methods.items():
                types = {"input_type": _absolute(request, package), "output_type": _absolute(response, package)}
                streams = [kind == "stream" for kind in STREAMS.get(name, ())] or [False, False]
                described.method.add(name=name, client_streaming=streams[0], server_streaming=streams[1], **types)
    return file


def _add_field(message: Any, package: str, path: str, words: list[str]) -> None:
    """Add a field to the descriptor of a message; the words are a label, if there is one, a type and a name."""
    *label, kind, name = words
    is_repeated = label in (["repeated"], ["map"])
    field = message.field.add(name=name, number=len(message.field) + 1, label=3 if is_repeated else 1)
    if label == ["map"]:  # a repeated message with a key and a value
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        for inner in (["string", "key"], [kind, "value"]):
            _add_field(entry, package, f"{path}.{entry.name}", inner)
        kind = f"{path}.{entry.name}"
    elif label in (["optional"], ["oneof"]):
        field.proto3_optional = label == ["optional"]
        if field.proto3_optional or not message.oneof_decl:
            message.oneof_decl.add(name=f"_{name}" if field.proto3_optional else "parameter_choice")
        field.oneof_index = len(message.oneof_decl) - 1
    scalar = f"TYPE_{kind.upper()}"
    if scalar in field.Type.keys():  # noqa: SIM118 - not a dict
        field.type = field.Type.Value(scalar)
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, _absolute(kind, package)


def _absolute(name: str, package: str) -> str:
    return f".{name}" if name.startswith("google.") else f".{package}.{name}"


def _build_pool() -> Any:
    """Return a pool with all files: other packages in this process may define the same names in the default pool."""
    pool = descriptor_pool.DescriptorPool()
    status = _file("google.rpc", _STATUS, any_pb2.DESCRIPTOR.name)
    predictions = _file(PREDICTIONS, _PREDICTION_MESSAGES, empty_pb2.DESCRIPTOR.name, status.name)
    built = (status, predictions, *(_file(package, _KSERVE_MESSAGES) for package in KSERVE))
    imported = (module.DESCRIPTOR for module in (any_pb2, empty_pb2, health_pb2, reflection_pb2))
    for content in (*(file.serialized_pb for file in imported), *(file.SerializeToString() for file in built)):
        pool.AddSerializedFile(content)
    return pool


POOL = _build_pool()


def message_class(name: str, package: str) -> Any:
    """Return the class of a message by its name in a package; google's have their full name."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(_absolute(name, package)[1:]))
