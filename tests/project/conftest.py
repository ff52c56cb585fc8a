"""Folders to build from: real weights, real handlers."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.project.plan import Format, Plan, PlannedMember, Role

MakePlan = Callable[..., Plan]
OUTPUT = {Format.TGZ: "digits.tar.gz", Format.NO_ARCHIVE: "digits"}
DIGITS = Path(__file__).parents[2] / "examples" / "digits"

HANDLER = """from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def preprocess(self, data):
        return data
"""
FUNCTION = "def handle(data, context):\n    return [1 for _ in data or []]\n"

MINIMAL = "name: tiny\nversion: '1.0'\nhandler: handler.py\n"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a project folder: marpack.yaml, handler.py, and what else it is given."""

    def make(yaml: str = MINIMAL, /, **files: str | bytes) -> Path:
        return write(tmp_path / "project", {"marpack.yaml": yaml, "handler.py": HANDLER, **files})

    return make


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """Return a folder with everything that the original archiver's flags can name."""
    folder = write(
        tmp_path / "workshop",
        {
            "handler.py": HANDLER,
            "functions.py": FUNCTION + "\n\ndef other(data, context):\n    return handle(data, context)\n",
            "sub/nested_handler.py": HANDLER,
            "index_to_name.json": '{"0": "zero", "1": "one"}',
            "requirements.txt": "numpy\n",
            "conf/model-config.yaml": "minWorkers: 1\nmaxWorkers: 1\n",
            "libdigits.so": b"\x7fELF" + bytes(60),
            "extras/a.txt": "a",
            "extras/b.json": "{}",
            "extras/.hidden": "a hidden file",
            "extras/nested/deep/c.txt": "c",
            "extras/nested/.secret/d.txt": "in a hidden folder",
            "extras/.git/config": "not packed",
            "extras/__pycache__/a.pyc": b"not packed",
            "extras/__MACOSX/a.txt": "not packed",
            "more/e.txt": "e",
            "more/other/f.txt": "f",
            "part1.csv": "1",
            "part2.csv": "2",
            "part3.csv": "3",
        },
    )
    for name in ("digits.pt", "state_dict.pt", "model.py"):
        shutil.copy(DIGITS / name, folder)
    shutil.copy(folder / "state_dict.pt", folder / "weights.pth")
    shutil.copy(folder / "model.py", folder / "sub" / "net.py")
    return folder


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
            model=ManifestModel(name="digits", version="1.0", handler="handler.py", serialized_file="digits.pt")
        )
        plan: dict[str, object] = {
            "manifest": manifest,
            "members": members,
            "output": tmp_path / "out" / OUTPUT.get(form, "digits.mar"),
            "format": form,
        }
        return Plan(**{**plan, **fields})  # type: ignore[arg-type]

    return make
