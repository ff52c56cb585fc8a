"""Record what the real server answers: `MARPACK_PEER=… python tests/conformance/record.py [exchanges | grpc | PROBE…]`.

Without arguments it plays all probes. `exchanges` plays the scenes instead, `grpc` those of gRPC.
"""

import sys
import tempfile
from pathlib import Path

sys.path.pop(0)  # in this folder, serving.py hides the package serving
sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance import exchanges, grpc_calls
from conformance.grpc_scenes import GRPC_SCENES
from conformance.peer import find_peer
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import store
from conformance.scenes import SCENES
from conformance.server import Server
from conformance.stage import Stage
from conformance.staging import SceneServers


def record(names: list[str], peer: Path, folder: Path) -> None:
    """Play the named probes, or all, and keep the answers in recorded/."""
    recordable = [probe for probe in (*FRONTEND, *PROBES) if not probe.live_only]
    chosen = [probe for probe in recordable if not names or probe.name in names]
    stage = Stage(peer, folder, chosen)
    for probe in chosen:
        recording = stage.recording(probe)
        store(probe, recording)
        sys.stdout.write(f"{probe.name}: {recording.registered.status}, {len(recording.replies)} answers\n")


def record_exchanges(peer: Path, folder: Path) -> None:
    """Play every scene and keep the answers."""
    servers = SceneServers(folder, Server, peer)
    exchanges.store({scene.name: {one.name: servers.have(scene, one) for one in scene.exchanges} for scene in SCENES})
    servers.stop()


def record_grpc(peer: Path, folder: Path) -> None:
    """Make every call of the gRPC scenes and keep the outcomes."""
    servers = SceneServers(folder, Server, peer)
    recorded = {}
    for scene in GRPC_SCENES:
        server = servers.server_of(scene)
        recorded[scene.name] = {rpc.name: grpc_calls.have(rpc, server) for rpc in scene.exchanges}
    servers.stop()
    grpc_calls.store(recorded)


if __name__ == "__main__":
    found = find_peer()
    if isinstance(found, str):
        sys.exit(found)
    with tempfile.TemporaryDirectory(prefix="conformance-") as place:
        if sys.argv[1:] == ["exchanges"]:
            record_exchanges(found, Path(place))
        elif sys.argv[1:] == ["grpc"]:
            record_grpc(found, Path(place))
        else:
            record(sys.argv[1:], found, Path(place))
