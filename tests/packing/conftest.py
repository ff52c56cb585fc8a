from collections.abc import Callable
from pathlib import Path

import pytest

from marpack.archive.manifest import Manifest, Model
from marpack.packing.plan import Format, Plan, PlannedMember, Role

MakePlan = Callable[..., Plan]
OUTPUT = {Format.TGZ: "digits.tar.gz", Format.NO_ARCHIVE: "digits"}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with a model's files: weights of some blocks, a handler, a tree."""
    folder = tmp_path / "sources"
    (folder / "assets/é").mkdir(parents=True)
    (folder / "digits.pt").write_bytes(bytes(range(256)) * 10_000)
    (folder / "handler.py").write_text("def handle(data, context):\n    return data\n")
    (folder / "assets/é/vocab.txt").write_text("a\nb\n")
    return folder


@pytest.fixture
def make_plan(tmp_path: Path, sources: Path) -> MakePlan:
    """Return a maker of plans over `sources`; keywords replace the plan's fields."""

    def make(form: Format = Format.DEFAULT, folder: Path = sources, **fields: object) -> Plan:
        members = (
            PlannedMember("handler.py", folder / "handler.py"),
            PlannedMember("MAR-INF/samples/seven.png", b"\x89PNG", Role.META),
            PlannedMember("digits.pt", folder / "digits.pt", Role.WEIGHTS),
            PlannedMember("assets/é/vocab.txt", folder / "assets/é/vocab.txt"),
            PlannedMember("index_to_name.json", b'{"0": "zero"}'),
        )
        manifest = Manifest(
            model=Model(name="digits", version="1.0", handler="handler.py", serialized_file="digits.pt")
        )
        plan: dict[str, object] = {
            "manifest": manifest,
            "members": members,
            "output": tmp_path / "out" / OUTPUT.get(form, "digits.mar"),
            "format": form,
        }
        return Plan(**{**plan, **fields})  # type: ignore[arg-type]

    return make
