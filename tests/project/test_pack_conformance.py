"""Every form that marpack writes, unpacked and loaded by a real TorchServe."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.peer import require_peer
from conformance.server import Server
from conformance.wire import Message, exchange

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.project.plan import Format, Plan, PlannedMember, Role, pack

pytestmark = pytest.mark.peer

LISTS_ITS_FOLDER = b"""
import os

def handle(data, context):
    if data is None:
        return None
    root = context.system_properties["model_dir"]
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    return [{os.path.relpath(path, root): os.path.getsize(path) for path in paths if "__pycache__" not in path}]
"""
MEMBERS = (
    PlannedMember("w.pt", bytes(3_000_000), Role.WEIGHTS),
    PlannedMember("handler.py", LISTS_ITS_FOLDER),
    PlannedMember("assets/é/vocab.txt", b"abc"),
    PlannedMember("a/folder/below/a/folder/" + "x" * 120 + ".txt", b"12"),
    PlannedMember("empty", b""),
    PlannedMember("MAR-INF/samples/seven.png", b"1", Role.META),
)
OUTPUT = {Format.TGZ: "digits.tar.gz", Format.NO_ARCHIVE: "digits"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    peer = require_peer()
    with Server(peer, tmp_path_factory.mktemp("server") / "home") as server:
        yield server


# SageMaker reads its own format, not TorchServe.
OTHERS = [pytest.param(form, marks=pytest.mark.slow) for form in (Format.ZIP_STORE, Format.TGZ, Format.NO_ARCHIVE)]


@pytest.mark.parametrize("form", [Format.DEFAULT, *OTHERS])
def test_the_server_unpacks_and_loads_every_form(server: Server, tmp_path: Path, form: Format) -> None:
    manifest = Manifest(model=ManifestModel(name="digits", version="1.0", handler="handler.py", serialized_file="w.pt"))
    output = tmp_path / OUTPUT.get(form, f"digits-{form}.mar")
    built = pack(Plan(manifest=manifest, members=MEMBERS, output=output, format=form))
    assert server.register(built.path, "digits").status == 200
    answer = exchange(server.inference, Message("POST", "/predictions/digits", body=b"x"))
    assert server.unregister("digits").status == 200
    found = json.loads(answer.body)
    assert {member.name: found.pop(member.name) for member in MEMBERS} == {
        member.name: len(member.source) for member in MEMBERS
    }
    assert sorted(found) == ["MAR-INF/MANIFEST.json", "MAR-INF/marpack.json"]
