"""The stage: the one server that is up at a time, under the settings that a probe needs."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.likeness import differing
from conformance.playing import play
from conformance.probe import Probe
from conformance.recording import Recording, load
from conformance.server import Server

# Most of a probe's time is its worker's start, which keeps one core busy.
AT_ONCE = 2
# On a busy machine a batch may come apart, or a start take too long: what differs from its recording is asked again.
ATTEMPTS = 3


class Stage:
    """Plays probes; those of one server setting together, then the server makes way for the next."""

    def __init__(self, programs: Path, folder: Path, programme: Iterable[Probe]) -> None:
        self._programs = programs
        self._folder = folder
        self._programme = {probe.name: probe for probe in programme}
        self._played: dict[str, Recording | Exception] = {}

    def recording(self, probe: Probe) -> Recording:
        """Return what the server answers to a probe; raises what went wrong when it was played."""
        if probe.name not in self._played:
            self._play_all_like(probe)
        played = self._played[probe.name]
        if isinstance(played, Exception):
            raise played
        return played

    def _play_all_like(self, probe: Probe) -> None:
        settings = settings_of(probe)
        group = [one for one in self._programme.values() if settings_of(one) == settings]
        with Server(self._programs, self._folder / f"server-for-{probe.name}", settings=settings) as server:
            # The order within a batch is that of arrival: nothing else may be going on then.
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda one: self._play(one, server), (one for one in group if one.batch_size == 1)))
            for one in group:
                if one.batch_size > 1:
                    self._play(one, server)

    def _play(self, probe: Probe, server: Server) -> None:
        for attempt in range(ATTEMPTS):
            folder = self._folder / probe.name / str(attempt)
            folder.mkdir(parents=True)
            try:
                self._played[probe.name] = played = play(probe, server, folder)
            except Exception as error:  # noqa: BLE001 - it belongs to the tests of this probe, not to the others
                self._played[probe.name] = error
            else:
                if _as_recorded(probe, played):
                    return


def _as_recorded(probe: Probe, played: Recording) -> bool:
    kept = load(probe)
    if kept is None or kept.question != played.question:
        return True  # there is nothing to compare with
    return played.registered == kept.registered and not differing(played, kept, numeric=probe.numeric)


def settings_of(probe: Probe) -> dict[str, str]:
    """Return the server settings that a probe needs."""
    return dict(probe.settings) | ({"service_envelope": probe.envelope} if probe.envelope else {})
