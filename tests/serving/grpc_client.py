"""A gRPC client of the services, by the names of their methods."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from msgspec import Struct

from marpack.serving.grpc_messages import KSERVE, SERVICES, message_classes, methods

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
        service: str = "",
        data: bytes | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        timeout: float = _SECONDS,
        **fields: Any,
    ) -> Started:
        """Start a call, with the fields of its request, or with `data` in place of a message."""
        name = service or next(name for name in SERVICES if method in methods(name))
        described = methods(name)[method]
        request, response = message_classes(described)
        given = request(**fields).SerializeToString() if data is None else data
        path, options = f"/{name}/{method}", {"timeout": timeout, "metadata": metadata}
        if described.client_streaming:
            call = self.channel.stream_stream(path, None, response.FromString)(iter([given]), **options)
        elif described.server_streaming:
            call = self.channel.unary_stream(path, None, response.FromString)(given, **options)
        else:
            call = self.channel.unary_unary(path, None, response.FromString).future(given, **options)
        return Started(call, described.server_streaming)

    def call(self, method: str, **given: Any) -> Any:
        return self.start(method, **given).result()

    def predict(self, text: str, model: str = "probe", **given: Any) -> bytes | Refused:
        """Send a text, and return the response's bytes."""
        answer = self.call("Predictions", model_name=model, input={"data": text.encode()}, **given)
        return answer if isinstance(answer, Refused) else answer.prediction

    def infer(self, inputs: list[dict[str, Any]], raw: Sequence[bytes] = (), service: str = KSERVE[0]) -> Any:
        tensors = {"inputs": inputs, "raw_input_contents": raw}
        return self.call("ModelInfer", service=service, model_name="probe", id="7", **tensors)


@contextmanager
def connected(address: str) -> Iterator[GrpcClient]:
    with grpc.insecure_channel(address) as channel:
        yield GrpcClient(channel)
