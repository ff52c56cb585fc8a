"""The messages and services of TorchServe's and KServe's gRPC APIs, in a descriptor pool of their own.

protoc makes `grpc_services.binpb` from the published .proto files; `tests/data/grpc/README.md` has the command.
"""

from pathlib import Path
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, empty_pb2, message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

PREDICTIONS = "org.pytorch.serve.grpc.inference.InferenceAPIsService"
# TorchServe's package; KServe's and Triton's.
KSERVE = tuple(f"{package}.GRPCInferenceService" for package in ("org.pytorch.serve.grpc.openinference", "inference"))
SERVICES = (PREDICTIONS, *KSERVE)  # all are for inference: models are managed over HTTP only


# Any stands for protobuf's types, which are not declared.
def _build_pool() -> Any:
    """Return a pool with all files: other packages in this process may define the same names in the default pool."""
    pool = descriptor_pool.DescriptorPool()
    for module in (any_pb2, empty_pb2, health_pb2, reflection_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    published = Path(__file__).with_name("grpc_services.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(published).file:
        pool.Add(file)
    return pool


POOL = _build_pool()


def methods(service: str) -> Any:
    """Return the descriptors of a service's methods, by name."""
    return POOL.FindServiceByName(service).methods_by_name


def message_classes(method: Any) -> tuple[Any, Any]:
    """Return the classes of a method's request and response."""
    return message_factory.GetMessageClass(method.input_type), message_factory.GetMessageClass(method.output_type)
