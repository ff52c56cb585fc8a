"""The peer's place: where this machine keeps its real TorchServe, as MARPACK_PEER tells it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

HINT = "python tests/conformance/make_peer.py .venvs/peer, then MARPACK_PEER=.venvs/peer/bin"


def find_peer() -> Path | str:
    """Return the peer's folder of programs, or the reason why there is none."""
    named = os.environ.get("MARPACK_PEER")
    if not named:
        return f"MARPACK_PEER is not set ({HINT})"
    programs = Path(named).absolute()
    if not programs.joinpath("torchserve").is_file():
        return f"MARPACK_PEER={named} holds no torchserve ({HINT})"
    if shutil.which("java") is None:
        return "there is no java on PATH (TorchServe needs Java 11 or newer)"
    return programs


def peer_required() -> bool:
    """Say whether a missing peer is a failure here, as it is in CI."""
    return os.environ.get("MARPACK_REQUIRE_PEER") == "1"
