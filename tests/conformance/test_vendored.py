"""An archive that brings its packages along, on a real TorchServe that installs none."""

import json
import sys
from pathlib import Path

import pytest
from conformance.peer import require_peer
from conformance.server import Server
from conformance.wire import Message, exchange

import marpack

pytestmark = pytest.mark.slow  # a server takes seconds to come up, and pip asks an index

HANDLER = """
import six
from lru import LRU

KEPT = LRU(1)

def handle(data, context):
    KEPT["a"], KEPT["b"] = 1, 2
    return [{"kept": KEPT.keys(), "six": six.__file__} for _ in data or []]
"""
YAML = """
name: shop
version: 1
handler: handler.py:handle
requirements: requirements.txt
vendor: {python: "%d.%d"}
"""


def test_pure_and_native_packages_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = require_peer()
    monkeypatch.setenv("MARPACK_CACHE_DIR", str(tmp_path / "cache"))
    project = tmp_path / "project"
    project.mkdir()
    files = {"marpack.yaml": YAML % sys.version_info[:2], "handler.py": HANDLER, "requirements.txt": "lru-dict\nsix\n"}
    for name, text in files.items():
        (project / name).write_text(text)
    built = marpack.build(project, vendor=True)
    with Server(peer, tmp_path / "server") as server:
        assert server.register(Path(built.path), "shop").status == 200
        answer = exchange(server.inference, Message("POST", "/predictions/shop", body=b"{}"), seconds=30)
        assert "pip" not in server.log
    said = json.loads(answer.body)
    assert said["kept"] == ["b"]
    assert Path(said["six"]).is_relative_to(tmp_path / "server")
