"""Record what the real server answers: `MARPACK_PEER=… python tests/conformance/record.py [PROBE…]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.peer import find_peer
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import store
from conformance.stage import Stage


def record(names: list[str]) -> None:
    """Play the named probes, or all, and keep the answers in recorded/."""
    peer = find_peer()
    if isinstance(peer, str):
        sys.exit(peer)
    recordable = [probe for probe in (*FRONTEND, *PROBES) if not probe.live_only]
    chosen = [probe for probe in recordable if not names or probe.name in names]
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        stage = Stage(peer, Path(folder), chosen)
        for probe in chosen:
            recording = stage.recording(probe)
            store(probe, recording)
            sys.stdout.write(f"{probe.name}: {recording.registered.status}, {len(recording.replies)} answers\n")


if __name__ == "__main__":
    record(sys.argv[1:])
