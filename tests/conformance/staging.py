"""Staging: scenes played on a server of either kind, the real one or `marpack serve`."""

from pathlib import Path
from typing import IO, Any

from conformance.archives import pack
from conformance.exchanges import Exchange, Scene, have
from conformance.probe import Probe
from conformance.server import START_SECONDS, Server
from conformance.wire import Message, exchange
from serving.forked import ForkedServer, start


class OurServer(Server):
    """`marpack serve` as a process, with the real one's start line and config.properties; its workers are forked."""

    def _start(self, log: IO[bytes]) -> ForkedServer:
        words = ["serve", *map(str, self._command()[1:]), "--compat", "torchserve"]
        if self.requires_tokens:
            words += ["--token", "key_file.json"]
        environment = self._environment()
        return start("marpack.cli.main", words, cwd=self.folder, environment=environment, log=log, forks=True)

    def _wait(self) -> None:
        self.wait_for(self.inference, "/ping")


def archives(scene: Scene, folder: Path) -> list[Path]:
    """Write a scene's archives into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = []
    for label, source in scene.models.items():
        name, _, version = label.partition(" ")
        files = {"handler.py": source}
        model = {"modelName": name, "modelVersion": version, "handler": "handler.py:handle"}
        packed.append(pack(Probe(name=f"{name}-{version}", files=files, model=model), folder))
    return packed


class SceneServers:
    """One server at a time: started for a scene with its first exchange, it makes way for the next scene's."""

    def __init__(self, folder: Path, kind: type[Server], programs: Path = Path()) -> None:
        """Start servers of a kind in folders below one; `programs` are the real one's."""
        self._folder = folder
        self._kind = kind
        self._programs = programs
        self._running: tuple[Scene, Server] | None = None

    def have(self, scene: Scene, exchange: Exchange) -> dict[str, Any]:
        """Have an exchange with the scene's server, and return what came of it."""
        return have(exchange, self.server_of(scene).inference)

    def server_of(self, scene: Scene) -> Server:
        """Return the scene's server, which is running."""
        if self._running is not None and self._running[0] is scene:
            return self._running[1]
        self.stop()
        models = archives(scene, self._folder / scene.name / "archives")
        server = self._kind(
            self._programs, self._folder / scene.name / "server", settings=scene.settings, models=models
        )
        self._running = (scene, server.__enter__())
        _settle(scene, server)
        return server

    def stop(self) -> None:
        """End the server that runs, if one does."""
        if self._running is not None:
            self._running[1].stop()
        self._running = None


def _settle(scene: Scene, server: Server) -> None:
    """Wait until every model answers, so that none of an exchange's time is loading."""
    for label in scene.models:
        name, _, version = label.partition(" ")
        if name != scene.fragile:
            message = Message("GET", f"/predictions/{name}/{version}", server.authorization())
            answer = exchange(server.inference, message, seconds=START_SECONDS)
            assert answer.status in {200, 503}, (label, answer)  # 503: a handler that fails without a body
