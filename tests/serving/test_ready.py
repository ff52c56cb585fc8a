"""When a server says that it is ready: a yes must not come before there is a model that answers."""

import asyncio
import logging
from pathlib import Path

from serving.logs import Recorded, recording
from serving.served import ANYWHERE, LOADER, pack

from marpack.project.source import ResolvedSource
from marpack.serving.http import HttpSettings
from marpack.serving.metrics import ServerMetrics
from marpack.serving.server import Listening, Server, ServerOptions

_HANDLER = "def handle(data, context):\n    return data and [1 for _ in data]\n"


class _Asking(Recorded):
    """Reads, as each port begins to listen, whether the server would call itself ready."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[bool] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Listening):
            self.ready.append(self.server.registry.is_ready)


async def _settled(server: Server) -> bool:
    while not server.registry.is_complete:
        await asyncio.sleep(0.001)
    before = server.registry.is_ready
    (model,) = server.registry
    await model.wait_until_ready()
    server.end()
    return not before and server.registry.is_ready


def test_no_port_calls_the_server_ready_before_its_models_are_there(tmp_path: Path):
    async def main() -> tuple[list[bool], bool]:
        log = _Asking()
        options = ServerOptions(
            http=HttpSettings(max_request_size=65_536, max_connections=10, drain=2.0),
            loader=LOADER,
            inference=ANYWHERE,
            management=ANYWHERE,
            metrics=None,
        )
        log.server = server = Server(options, ServerMetrics(hostname="here"))
        plans = [LOADER.plan(ResolvedSource(path=pack(tmp_path, "one.mar", _HANDLER)))]
        with recording(log):
            _, settled = await asyncio.gather(server.serve(plans), _settled(server))
        return log.ready, settled

    ready, settled = asyncio.run(main())
    assert ready == [False] * len(ready)
    assert ready
    assert settled
