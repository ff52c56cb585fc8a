"""The real TorchServe of this machine, in the folder that MARPACK_PEER names."""

import os
import shutil
from pathlib import Path

import pytest

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


def require_peer() -> Path:
    """Return the peer's folder of programs; without one, skip the test, or fail it with MARPACK_REQUIRE_PEER=1."""
    peer = find_peer()
    if isinstance(peer, str):
        is_required = os.environ.get("MARPACK_REQUIRE_PEER") == "1"
        (pytest.fail if is_required else pytest.skip)(f"no real TorchServe to compare with: {peer}")
    return peer
