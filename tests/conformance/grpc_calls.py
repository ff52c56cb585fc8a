"""gRPC calls: clients made from the published proto files, and the outcome of a call as JSON."""

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc_tools
from conformance.server import Server
from conformance.wire import Headers
from google.protobuf import descriptor_pb2, message_factory, text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from grpc_tools import protoc

DATA = Path(__file__).parents[1] / "data" / "grpc"
RECORDED = DATA / "calls.json"
SECONDS = 60.0
FILES = {
    "org.pytorch.serve.grpc.inference": "torchserve/inference.proto",
    "org.pytorch.serve.grpc.openinference": "torchserve/open_inference_grpc.proto",
    "inference": "kserve/open_inference_grpc.proto",
}  # package: its published file
_GAP = 0.1  # seconds from one call of a queue to the next
_LIBRARY = re.compile("Deadline Exceeded|Stream removed|Method ")  # starts of messages that differ between libraries
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class Rpc:
    """A call, and the requests to send."""

    name: str  # unique in its scene
    method: str  # package.Service/Method
    requests: tuple[Mapping[str, Any], ...] = ({},)
    metadata: Headers = ()  # INFERENCE and MANAGEMENT in a value: the key
    timeout: float = SECONDS
    behind: "Rpc | None" = None  # sent before this on a channel of its own
    behind_count: int = 0
    settled: bool = False  # it ends the worker, for which TorchServe takes seconds


class Stub:
    """One method on a channel, with the published messages."""

    def __init__(self, channel: grpc.Channel, method: str) -> None:
        package, _, rest = method.rpartition(".")
        service, _, name = rest.partition("/")
        described = published(package).FindServiceByName(f"{package}.{service}").FindMethodByName(name)
        kinds = [message_factory.GetMessageClass(kind) for kind in (described.input_type, described.output_type)]
        self.request, response = kinds
        self.sends_many, self.receives_many = described.client_streaming, described.server_streaming
        sides = ["stream" if streams else "unary" for streams in (self.sends_many, self.receives_many)]
        open_call = getattr(channel, "_".join(sides))
        encode = partial(self.request.SerializeToString, deterministic=True)  # the handler sees the order of inputs
        self._call = open_call(f"/{method}", encode, response.FromString)

    def start(self, requests: Iterable[Mapping[str, Any]], **options: Any) -> Any:
        """Send requests and return the running call."""
        messages = iter([self.request(**fields) for fields in requests])
        call = self._call if self.receives_many else self._call.future
        return call(messages if self.sends_many else next(messages), **options)

    def responses(self, call: Any) -> list[Message]:
        """Wait for a call's end and return the responses until then."""
        received: list[Message] = []
        with suppress(grpc.RpcError):
            if not self.receives_many:
                return [call.result()]
            received.extend(call)  # keeps those before an error
        return received


@cache
def published(package: str) -> DescriptorPool:
    """Return the descriptors of a published file in a pool of their own: others may know the same names."""
    file, pool = DATA / FILES[package], DescriptorPool()
    with TemporaryDirectory() as folder:
        out = Path(folder, "descriptors")
        includes = (file.parent, DATA, Path(grpc_tools.__file__).with_name("_proto"))
        options = [f"-I{include}" for include in includes] + ["--include_imports", f"--descriptor_set_out={out}"]
        assert protoc.main(["protoc", *options, str(file)]) == 0
        for described in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
            pool.Add(described)
    return pool


def have(rpc: Rpc, server: Server) -> dict[str, Any]:
    """Make a call and return its outcome: code, message, responses and the server's metadata."""
    others = []
    for _ in range(rpc.behind_count):
        others.append(threading.Thread(target=have, args=(rpc.behind, server), daemon=True))
        others[-1].start()
        time.sleep(_GAP)
    with grpc.insecure_channel(server.grpc, options=[("grpc.max_receive_message_length", -1)]) as channel:
        stub = Stub(channel, rpc.method)
        call = stub.start(
            rpc.requests, metadata=_with_keys(rpc.metadata, server), timeout=rpc.timeout, wait_for_ready=True
        )
        responses = [text_format.MessageToString(each, as_one_line=True) for each in stub.responses(call)]
        code = call.code().name
        message = "" if _LIBRARY.match(call.details()) else call.details()
        outcome = {"code": code, "message": message, "responses": responses}
        headers = [[name, str(value)] for name, value in (*call.initial_metadata(), *call.trailing_metadata())]
    for thread in others:
        thread.join()
    return json.loads(_UUID.sub("UUID", json.dumps(outcome | ({"metadata": headers} if headers else {}))))


def _with_keys(metadata: Headers, server: Server) -> Headers:
    for kind in ("inference", "management") if server.requires_tokens else ():
        metadata = tuple((name, value.replace(kind.upper(), server.key(kind))) for name, value in metadata)
    return metadata


def load() -> dict[str, dict[str, Any]]:
    """Return the recorded outcomes: scene → call → outcome."""
    return json.loads(RECORDED.read_text())


def store(recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the recorded outcomes, one a line."""
    scenes = []
    for scene, outcomes in recorded.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(outcome)}" for name, outcome in outcomes.items())
        scenes.append(f" {json.dumps(scene)}: {{\n{lines}\n }}")
    RECORDED.write_text("{\n" + ",\n".join(scenes) + "\n}\n")
