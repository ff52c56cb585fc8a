"""The stage: the one server that is up at a time, under the settings that a probe needs."""

from __future__ import annotations

from pathlib import Path

from conformance.playing import play
from conformance.probe import Probe
from conformance.recording import Recording
from conformance.server import Server


class Stage:
    """Plays probes, each once, and changes servers between those that need other settings."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._server: Server | None = None
        self._settings: dict[str, str] = {}
        self._played: dict[str, Recording] = {}

    def recording(self, probe: Probe) -> Recording:
        """Return what the server answers to a probe."""
        if probe.name not in self._played:
            folder = self._folder / probe.name
            folder.mkdir(parents=True)
            self._played[probe.name] = play(probe, self._up(probe), folder)
        return self._played[probe.name]

    def _up(self, probe: Probe) -> Server:
        settings = dict(probe.settings) | ({"service_envelope": probe.envelope} if probe.envelope else {})
        if self._server is None or settings != self._settings:
            self.close()
            folder = self._folder / f"server-for-{probe.name}"
            self._server = Server(self._programs, folder, settings=settings).__enter__()
            self._settings = settings
        return self._server

    def close(self) -> None:
        """Stop the server, if one is up."""
        if self._server is not None:
            self._server.stop()
            self._server = None
