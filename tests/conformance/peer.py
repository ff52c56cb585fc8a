"""The real TorchServe of this machine: in the folder that MARPACK_PEER names, or where `make peer` installs it."""

import os
import shutil
from pathlib import Path

import pytest

MADE = Path(__file__).parents[2] / ".venvs" / "peer" / "bin"


def find_peer() -> Path | str:
    """Return the peer's folder of programs, or the reason why there is none."""
    programs = Path(os.environ.get("MARPACK_PEER") or MADE).absolute()
    if not programs.joinpath("torchserve").is_file():
        return f"there is no torchserve in {programs} (make peer)"
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
