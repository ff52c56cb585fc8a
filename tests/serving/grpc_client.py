"""A gRPC client of the services, by the names of their methods."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from msgspec import Struct

from marpack.serving.grpc_messages import KSERVE, SERVICES, STREAMS, message_class

_SECONDS = 20.0  # the longest wait


class Refused(Struct, frozen=True):
    """The end of a call that failed."""

    code: str
    details: str


class Started(Struct):
    """A call."""

    call: Any  # grpc's
    streams: bool

    def result(self) -> Any:
        """Return the response, all responses of a stream, or Refused."""
        try:
            return list(self.call) if self.streams else self.call.result()
        except grpc.RpcError as error:
            return Refused(error.code().name, error.details())


class GrpcClient:
    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def start(
        self,
        method: str,
        *,
        package: str = "",
        data: bytes | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        timeout: float = _SECONDS,
        **fields: Any,
    ) -> Started:
        """Start a call, with the fields of its request, or with `data` in place of a message."""
        services = [name for name, methods in SERVICES.items() if method in methods and name.startswith(package)]
        package = services[0].rpartition(".")[0]
        request, response = (message_class(name, package) for name in SERVICES[services[0]][method])
        given = request(**fields).SerializeToString() if data is None else data
        path, options = f"/{services[0]}/{method}", {"timeout": timeout, "metadata": metadata}
        if method == "StreamPredictions2":
            call = self.channel.stream_stream(path, None, response.FromString)(iter([given]), **options)
        elif method in STREAMS:
            call = self.channel.unary_stream(path, None, response.FromString)(given, **options)
        else:
            call = self.channel.unary_unary(path, None, response.FromString).future(given, **options)
        return Started(call, method in STREAMS)

    def call(self, method: str, **given: Any) -> Any:
        return self.start(method, **given).result()

    def predict(self, text: str, model: str = "probe", **given: Any) -> bytes | Refused:
        """Send a text, and return the response's bytes."""
        answer = self.call("Predictions", model_name=model, input={"data": text.encode()}, **given)
        return answer if isinstance(answer, Refused) else answer.prediction

    def infer(self, inputs: list[dict[str, Any]], raw: Sequence[bytes] = (), package: str = KSERVE[0]) -> Any:
        tensors = {"inputs": inputs, "raw_input_contents": raw}
        return self.call("ModelInfer", package=package, model_name="probe", id="7", **tensors)


@contextmanager
def connected(address: str) -> Iterator[GrpcClient]:
    with grpc.insecure_channel(address) as channel:
        yield GrpcClient(channel)
