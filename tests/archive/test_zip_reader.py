import json
import os
import zipfile

import pytest

from marpack.archive.cache import Cache
from marpack.archive.protocol import Form, Method
from marpack.archive.reader import open_archive

MANIFEST = {"runtime": "python", "model": {"modelName": "digits", "handler": "handler.py", "serializedFile": "w.pt"}}
FILES = {
    "w.pt": os.urandom(5_000_000),
    "handler.py": b"def handle(data, context): return data\n",
    "data/Größe.txt": "eins\nzwei\n".encode(),
    "empty": b"",
    "MAR-INF/MANIFEST.json": json.dumps(MANIFEST).encode(),
}


def make_zip(path, files=FILES, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_went_in_comes_out(tmp_path, cache, method):
    with open_archive(make_zip(tmp_path / "digits.mar", method=method), cache=cache) as archive:
        assert archive.form is Form.MAR
        assert archive.oddities == ()
        assert archive.manifest.model.name == "digits"
        assert list(archive.entries) == list(FILES)
        folder = archive.materialize()
        for name, data in FILES.items():
            with archive.open(name) as file:
                assert file.read() == data
            assert (folder / name).read_bytes() == data
            assert archive.entries[name].size == len(data)
            assert (archive.entries[name].method is Method.STORED) == (method == zipfile.ZIP_STORED)


def test_a_stored_member_can_be_read_by_range(tmp_path, cache):
    path = make_zip(tmp_path / "digits.mar")
    with open_archive(path, cache=cache) as archive:
        offset = archive.entries["w.pt"].data_offset
    assert path.read_bytes()[offset : offset + 100] == FILES["w.pt"][:100]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_seekable(tmp_path, cache, method):
    data = FILES["w.pt"]
    with (
        open_archive(make_zip(tmp_path / "a.mar", method=method), cache=cache) as archive,
        archive.open("w.pt") as file,
    ):
        assert file.seek(-100, os.SEEK_END) == len(data) - 100
        assert file.read() == data[-100:]
        assert file.read() == b""
        file.seek(10)
        assert file.read(5) == data[10:15]
        file.seek(5, os.SEEK_CUR)
        assert file.tell() == 20
        assert file.read(3) == data[20:23]
        file.seek(len(data) + 5)
        assert file.read() == b""
        file.seek(0)
        assert file.read() == data


def test_a_name_that_is_not_there_is_a_key_error(tmp_path, cache):
    with open_archive(make_zip(tmp_path / "a.mar"), cache=cache) as archive, pytest.raises(KeyError):
        archive.open("nothing")


def test_the_second_time_extracts_nothing(tmp_path, cache):
    path = make_zip(tmp_path / "a.mar")
    with open_archive(path, cache=cache) as archive:
        first = archive.materialize()
        assert archive.materialize() == first
    with open_archive(path, cache=cache) as archive:
        assert archive.materialize() == first


def test_folders_without_files_are_made(tmp_path, cache):
    path = tmp_path / "a.mar"
    make_zip(path, {**FILES, "logs/": b"", "a/b/": b""})
    with open_archive(path, cache=cache) as archive:
        assert "logs/" not in archive.entries
        folder = archive.materialize()
    assert (folder / "logs").is_dir()
    assert (folder / "a" / "b").is_dir()


def test_a_root_folder_opens_but_is_told(tmp_path, cache):
    path = make_zip(tmp_path / "a.mar", {f"top/{name}": data for name, data in FILES.items()} | {"top/logs/": b""})
    with open_archive(path, cache=cache) as archive:
        assert list(archive.entries) == list(FILES)
        assert [finding.code for finding in archive.oddities] == ["mar-root-folder"]
        folder = archive.materialize()
        assert (folder / "handler.py").read_bytes() == FILES["handler.py"]
        assert (folder / "logs").is_dir()


def test_a_zip_by_another_name_opens_but_is_told(tmp_path, cache):
    with open_archive(make_zip(tmp_path / "a.zip"), cache=cache) as archive:
        assert [finding.code for finding in archive.oddities] == ["archive-suffix"]
