"""A real server on the loopback interface, in a thread of its own, and requests to it."""

import asyncio
import http.client
import json
import socket
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.commands import wait_until
from serving.logs import Recorded, recording
from workers import launch

from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.serving.http import HttpSettings
from marpack.serving.loading import ModelLoader, ModelStore, RemoteStore
from marpack.serving.management import ModelApi
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ModelState
from marpack.serving.server import Server, ServerOptions
from marpack.serving.settings import Address, ModelSettings

ANYWHERE = Address("127.0.0.1", 0)
LOADER = ModelLoader(load=Load(model_dir=""), settings=ModelSettings(leave_timeout=1), spawn=lambda _: launch)
_SECONDS = 60.0  # the longest wait

# A handler whose response comes in three pieces.
STREAM = """
from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is not None:
        for piece in ("a", "bc"):
            send_intermediate_predict_response([piece], context.request_ids, "more", 200, context)
        return ["d"]
"""

Answer = tuple[int, Mapping[str, str], bytes]


def free_address(host: str = "127.0.0.1") -> Address:
    """Return an address without a listener."""
    with socket.create_server((host, 0)) as sock:
        return Address(host, sock.getsockname()[1])


def pack(
    folder: Path,
    file: str,
    handler: str,
    *,
    config: str | None = None,
    files: Mapping[str, str | bytes] | None = None,
    **model: str,
) -> Path:
    """Write an archive with the file's name, a model config and further files."""
    known = {"modelName": file.partition(".")[0], "modelVersion": "1.0", "handler": "handler.py", **model}
    members = {"handler.py": handler, **(files or {})}
    if config is not None:
        known["configFile"] = "config.yaml"
        members["config.yaml"] = config
    members["MAR-INF/MANIFEST.json"] = json.dumps({"runtime": "python", "model": known})
    with zipfile.ZipFile(folder / file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / file


class Served:
    """A running server."""

    def __init__(self, server: Server, log: Recorded, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.log = log
        self._loop = loop

    def end(self) -> None:
        """End the server, which first finishes its requests."""
        self._loop.call_soon_threadsafe(self.server.end)

    def __getattr__(self, what: str) -> str:
        """Return `host:port` of inference, management or metrics; that of predictions where they share it."""
        if what not in {"inference", "management", "metrics"}:
            raise AttributeError(what)
        addresses = self.log.addresses
        return addresses.get(what, addresses["inference"]).removeprefix("http://")

    @property
    def grpc(self) -> str:
        """`host:port` of gRPC."""
        return self.log.addresses["gRPC"]

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        at: str | None = None,
    ) -> Answer:
        """Send one request to predictions, or to `at`; return status, headers (names in lower case) and body."""
        connection = http.client.HTTPConnection(at or self.inference, timeout=_SECONDS)
        try:
            connection.request(method, path, body=body or None, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def manage(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        """Send one request to the management API; return its status and its JSON. `_` in a header's name is `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        status, _, content = self.request(method, path, body, named, at=self.management)
        return status, json.loads(content) if content.strip() else None


@contextmanager
def served(
    *archives: Path,
    loader: ModelLoader = LOADER,
    loaded: bool = True,
    model_store: Path | None = None,
    store_roots: tuple[Path, ...] = (),
    remote: RemoteStore | None = None,
    default_workers: int = 0,
    **options: Any,
) -> Iterator[Served]:
    """Serve archives on all ports, or as the options say, until the block ends; with `loaded`, once they answer."""
    log, box, done = Recorded(), list[Server](), threading.Event()
    http = HttpSettings(max_request_size=65_536, max_connections=100, drain=2.0)
    places = {"inference": ANYWHERE, "management": Address("127.0.0.2", 0), "metrics": Address("127.0.0.3", 0)}
    given = {"http": http, **places} | options
    if model_store is not None:
        store = ModelStore(model_store, store_roots)
        given["model_api"] = ModelApi(store=store, loader=loader, default_workers=default_workers, remote=remote)
    plans = [loader.plan(ResolvedSource(path=path)) for path in archives]
    loops: list[asyncio.AbstractEventLoop] = []
    errors: list[BaseException] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        log.owner = threading.get_ident()
        box.append(Server(ServerOptions(**given), ServerMetrics(hostname="here")))
        with recording(log):
            await box[0].serve(plans)

    def live() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - raised in the test
            errors.append(error)
        done.set()

    thread = threading.Thread(target=live, name="server")
    thread.start()
    try:
        expected = len({given[name] for name in ("inference", "management", "metrics")} - {None})
        wait_until(lambda: done.is_set() or len(log.addresses) + len(log.notes) >= expected)
        if loaded and not done.is_set():
            registry = box[0].registry
            wait_until(lambda: registry.is_complete or done.is_set())
            for model in list(registry):
                wait_until(lambda model=model: model.state is not ModelState.LOADING or done.is_set())
        yield Served(box[0], log, loops[0])
    finally:
        if loops and not done.is_set() and not box[0].core.ending.is_set():
            loops[0].call_soon_threadsafe(box[0].end)
        thread.join(_SECONDS)
        assert not thread.is_alive()
        if errors:  # the cause of the test's own error
            raise errors[0]
