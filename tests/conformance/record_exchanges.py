"""Record what the real server answers to the scenes: `MARPACK_PEER=… python tests/conformance/record_exchanges.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.exchanges import store
from conformance.peer import find_peer
from conformance.scenes import SCENES
from conformance.server import Server
from conformance.staging import SceneServers


def record() -> None:
    """Play every scene and keep the answers."""
    peer = find_peer()
    if isinstance(peer, str):
        sys.exit(peer)
    recorded = {}
    with tempfile.TemporaryDirectory(prefix="scenes-") as folder:
        servers = SceneServers(Path(folder), Server, peer)
        for scene in SCENES:
            recorded[scene.name] = {one.name: servers.have(scene, one) for one in scene.exchanges}
            sys.stdout.write(f"{scene.name}: {len(scene.exchanges)} exchanges\n")
        servers.stop()
    store(recorded)


if __name__ == "__main__":
    record()
