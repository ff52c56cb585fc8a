"""When a server says that it is ready: a yes must not come before there is a model that answers."""

import asyncio
from pathlib import Path

from serving.served import ANYWHERE, LOADER, Recorded, pack

from marpack.project.source import ResolvedSource
from marpack.serving.http import FrontSettings
from marpack.serving.metrics import ServerMetrics
from marpack.serving.server import Server, ServerOptions
from marpack.serving.settings import Address

_HANDLER = "def handle(data, context):\n    return data and [1 for _ in data]\n"


class _Asking(Recorded):
    """Looks, as each port begins to listen, whether the server would call itself ready."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[bool] = []

    def listening(self, what: str, address: Address) -> None:
        super().listening(what, address)
        self.ready.append(self.server.registry.is_ready)


async def _settled(server: Server) -> bool:
    while not server.registry.is_complete:
        await asyncio.sleep(0.001)
    before = server.registry.is_ready
    (model,) = server.registry
    await model.settled()
    server.end()
    return not before and server.registry.is_ready


def test_no_port_calls_the_server_ready_before_its_models_are_there(tmp_path: Path):
    async def main() -> tuple[list[bool], bool]:
        listener = _Asking()
        options = ServerOptions(
            front=FrontSettings(max_request_size=65_536, max_connections=10, drain=2.0),
            loader=LOADER,
            inference=ANYWHERE,
            management=ANYWHERE,
            metrics=None,
        )
        listener.server = server = Server(options, listener, ServerMetrics(hostname="here"))
        plans = [LOADER.plan(ResolvedSource(path=pack(tmp_path, "one.mar", _HANDLER)))]
        _, settled = await asyncio.gather(server.serve(plans), _settled(server))
        return listener.ready, settled

    ready, settled = asyncio.run(main())
    assert ready == [False] * len(ready)
    assert ready
    assert settled
