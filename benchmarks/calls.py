"""The cost of gRPC, for `python -m benchmarks.serve --part grpc`: a bare echo, and a client.

    python -m benchmarks.calls echo GRPC_PORT HTTP_PORT
    python -m benchmarks.calls load GRPC_PORT SECONDS

echo: a grpc.aio server, and marpack's HTTP front without models; both return the body of a request. load: predictions
as fast as responses come; prints their number.
"""

import asyncio
import os
import statistics
import sys
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks.servers import CONNECTIONS, HOST, Body, Server, ports
from benchmarks.timing import MARPACK, ROOT, run, show, write_no_op
from marpack.serving import http
from marpack.serving.grpc_messages import PREDICTIONS, message_classes, methods
from marpack.serving.settings import Address
from marpack.torchserve.http import Response

_REQUEST, _RESPONSE = message_classes(methods(PREDICTIONS)["Predictions"])
_SELF = [sys.executable, "-m", "benchmarks.calls"]


def compare(folder: Path, options: Namespace) -> bool:
    """Compare predictions over gRPC with the sum of a bare call and of a prediction over HTTP without its front."""
    body, (call_port, port, metrics, echo_port, bare_port) = Body(folder / "kilobyte", "text/plain"), ports(5)
    ours_command = [
        *MARPACK,
        "serve",
        write_no_op(folder / "noop"),
        "--port",
        str(port),
        "--metrics-port",
        str(metrics),
    ]
    ours_command += ["--grpc-port", str(call_port)]
    echo_command, environment = [*_SELF, "echo", str(echo_port), str(bare_port)], os.environ | {"PYTHONPATH": str(ROOT)}

    def call(server: Server, port: int) -> float:
        before = server.cpu()
        count = int(run([*_SELF, "load", str(port), str(options.seconds)]))
        return (server.cpu() - before) / count * 1e6

    def microseconds() -> dict[str, float]:
        fronts = {name: each.load("noop", body, options.seconds).cpu_each for name, each in servers.items()}
        bare = call(servers["echo"], echo_port) + fronts["ours"] - fronts["echo"]
        return {"ours": call(servers["ours"], call_port), "bare": bare}

    with (
        Server(ours_command, folder, port, environment) as ours,
        Server(echo_command, folder, bare_port, environment) as echo,
    ):
        servers = {"ours": ours, "echo": echo}
        for server in servers.values():
            server.wait_until_answers("noop", body)
        rounds = [microseconds() for _ in range(options.repeat + 1)][1:]
    texts = [f"{statistics.median(each[side] for each in rounds):,.0f} us" for side in ("ours", "bare")]
    ratio = statistics.median(each["ours"] / each["bare"] for each in rounds)
    return show("CPU a gRPC call / bare + HTTP but its front", *texts, ratio, most=1.3)


async def echo(grpc_port: int, http_port: int) -> int:
    """Serve until the process ends."""

    async def answer_call(request: Any, _: Any) -> Any:
        return _RESPONSE(prediction=request.input["data"])

    async def answer_request(request: http.HttpRequest) -> http.Reply:
        return http.Reply(response=Response(status=200, body=await request.body()), request_id="an-id")

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(answer_call, _REQUEST.FromString, _RESPONSE.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(PREDICTIONS, {"Predictions": method}),))
    server.add_insecure_port(f"{HOST}:{grpc_port}")
    await server.start()
    front = http.HttpServer(http.HttpSettings(max_request_size=1 << 20, max_connections=100))
    await front.listen(Address(HOST, http_port), answer_request)
    return int(await server.wait_for_termination())


async def load(grpc_port: int, seconds: float) -> int:
    """Print the number of predictions."""
    request, end = _REQUEST(model_name="noop", input={"data": b"x" * 1024}), time.perf_counter() + seconds
    async with grpc.aio.insecure_channel(f"{HOST}:{grpc_port}") as channel:
        call = channel.unary_unary(f"/{PREDICTIONS}/Predictions", _REQUEST.SerializeToString, _RESPONSE.FromString)

        async def send() -> int:
            count = 0
            while time.perf_counter() < end:
                await call(request)
                count += 1
            return count

        print(sum(await asyncio.gather(*(send() for _ in range(CONNECTIONS)))))
    return 0


if __name__ == "__main__":
    http.run(partial({"echo": echo, "load": load}[sys.argv[1]], *map(int, sys.argv[2:])))
