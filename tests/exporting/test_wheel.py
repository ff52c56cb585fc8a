"""marpack's wheel as exports carry it."""

import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from refusals import has_code, has_facts

import marpack
from marpack.errors import UsageError
from marpack.exporting import image
from marpack.exporting.image import wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name, data = wheel(None)
    path = tmp_path_factory.mktemp("wheel") / name
    path.write_bytes(data)
    return path


def test_it_holds_code_types_templates_and_metadata(file: Path):
    names = zipfile.ZipFile(file).namelist()
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*") if path.is_file()}
    assert {"marpack/py.typed", "marpack/__main__.py", "marpack/torchserve/server_modules.json"} <= set(names)
    assert {f"marpack/{name}" for name in templates} <= set(names)
    info = f"marpack-{marpack.__version__}.dist-info"
    assert {
        f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    } <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert len(names) == len(set(names))


def test_its_record_is_right(file: Path):
    with zipfile.ZipFile(file) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert set(rows) == set(archive.namelist())
        for name, (digest, size) in rows.items():
            data = archive.read(name)
            expected = urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (("", "") if name == record else (f"sha256={expected}", str(len(data))))


def test_the_same_files_give_the_same_bytes(file: Path):
    assert wheel(None) == (file.name, file.read_bytes())
    assert wheel(file) == (file.name, file.read_bytes())


def test_the_index_would_take_it(file: Path):
    checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", file], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_installation_or_one_of_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with monkeypatch.context() as patch:
        patch.setattr(image, "__version__", "99.0")
        with pytest.raises(UsageError, match=r"marpack 99\.0 runs, and .* is installed", check=has_facts("--wheel")):
            wheel(None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UsageError, check=has_code("not-installed", "--wheel")):
        wheel(None)
