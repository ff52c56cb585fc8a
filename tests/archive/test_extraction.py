import errno
import io
import json
import os
import tarfile
import zipfile

import pytest
from refusals import has_code, has_facts

from marpack.archive.reader import open_archive, unpack
from marpack.errors import ArchiveError, DamagedArchiveError, ExtractionError, OutputExistsError, UsageError

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}}).encode()
FILES = {
    "w.bin": bytes(range(256)) * 100,
    "h.py": b"x = 1\n",
    "data/a.txt": b"a",
    "data/deep/b.txt": b"b",
    "MAR-INF/MANIFEST.json": MANIFEST,
}


def as_zip(path):
    with zipfile.ZipFile(path / "m.mar", "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    return path / "m.mar"


def as_tar(path):
    with tarfile.open(path / "m.tar.gz", "w:gz") as archive:
        for name, data in FILES.items():
            header = tarfile.TarInfo(f"m/{name}")
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return path / "m.tar.gz"


def as_folder(path):
    for name, data in FILES.items():
        (path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "m" / name).write_bytes(data)
    return path / "m"


FORMS = [as_zip, as_tar, as_folder]


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path):
    return tmp_path / "source"


@pytest.fixture(autouse=True)
def _source(source):
    source.mkdir()


@pytest.mark.parametrize("form", FORMS)
def test_everything_is_unpacked(source, tmp_path, form):
    with open_archive(form(source)) as archive:
        unpacked = unpack(archive, tmp_path / "out")
    assert files(tmp_path / "out") == FILES
    assert sorted(unpacked.files) == sorted(FILES)
    assert unpacked.bytes == sum(map(len, FILES.values()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


TEXTS = {"data/a.txt", "data/deep/b.txt"}
PATTERNS = {("*.py",): {"h.py"}, ("data",): TEXTS, ("data/",): TEXTS, ("*.txt", "w.bin"): {*TEXTS, "w.bin"},
            ("data/?.txt",): {"data/a.txt"}}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_only_what_matches_is_unpacked(source, tmp_path, form):
    with open_archive(form(source)) as archive:
        for number, (only, names) in enumerate(PATTERNS.items()):
            unpack(archive, tmp_path / f"out{number}", only=only)
            assert set(files(tmp_path / f"out{number}")) == names


@pytest.mark.parametrize("pattern", ["nope", "DATA", "../*", ""])
def test_a_pattern_that_matches_nothing_is_told(source, tmp_path, pattern):
    with (
        open_archive(as_zip(source)) as archive,
        pytest.raises(UsageError, check=has_code("no-matching-member", repr(pattern))),
    ):
        unpack(archive, tmp_path / "out", only=["h.py", pattern])
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_never_overwritten(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    with open_archive(as_zip(source)) as archive:
        for replace in (False, True):
            with pytest.raises(OutputExistsError):
                unpack(archive, out, replace=replace)
        with pytest.raises(OutputExistsError):
            unpack(archive, out / "mine")
    assert files(out) == {"mine": b"mine"}


def test_an_empty_folder_is_filled_and_an_unpacked_one_replaced_on_demand(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with open_archive(as_zip(source)) as archive:
        unpack(archive, out)
        (out / "more").touch()
        with pytest.raises(OutputExistsError):
            unpack(archive, out)
        unpack(archive, out, replace=True)
    assert files(out) == FILES


def test_damaged_bytes_leave_no_folder(source, tmp_path):
    path = as_zip(source)
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with open_archive(path) as archive, pytest.raises(DamagedArchiveError, check=has_facts("'w.bin'", "CRC")):
        unpack(archive, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists()


def test_a_bad_manifest_leaves_no_folder(source, tmp_path):
    with zipfile.ZipFile(source / "m.mar", "w") as archive:
        archive.writestr("h.py", "")
    with open_archive(source / "m.mar") as archive, pytest.raises(ArchiveError):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_told(source, tmp_path):
    (tmp_path / "file").touch()
    with (
        open_archive(as_zip(source)) as archive,
        pytest.raises(ExtractionError, check=has_facts(os.strerror(errno.EEXIST))),
    ):
        unpack(archive, tmp_path / "file" / "out")
