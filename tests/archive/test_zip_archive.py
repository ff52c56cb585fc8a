import fcntl
import json
import os
import struct
import zipfile

import pytest
from refusals import has_facts

from marpack.archive.cache import Cache
from marpack.archive.protocol import ArchiveForm, Method
from marpack.archive.reader import open_archive
from marpack.errors import DamagedArchiveError, NotAnArchiveError

MANIFEST = {"runtime": "python", "model": {"modelName": "digits", "handler": "handler.py", "serializedFile": "w.pt"}}
FILES = {
    "w.pt": os.urandom(5_000_000),
    "handler.py": b"def handle(data, context): return data\n",
    "data/Größe.txt": b"eins\nzwei\n",
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
        assert archive.form is ArchiveForm.MAR
        assert archive.server_findings == ()
        assert archive.manifest.model.name == "digits"
        assert list(archive.entries) == list(FILES)
        folder = archive.materialize()
        for name, data in FILES.items():
            with archive.open(name) as file:
                assert file.read() == data
            assert (folder / name).read_bytes() == data
            assert archive.entries[name].size == len(data)
            assert (archive.entries[name].method is Method.STORED) == (method == zipfile.ZIP_STORED)


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
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)


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


def test_a_root_folder_and_another_suffix_are_reported(tmp_path, cache):
    path = make_zip(tmp_path / "a.zip", {f"top/{name}": data for name, data in FILES.items()} | {"top/logs/": b""})
    with open_archive(path, cache=cache) as archive:
        assert list(archive.entries) == list(FILES)
        assert [finding.code for finding in archive.server_findings] == ["mar-root-folder", "archive-suffix"]
        folder = archive.materialize()
        assert (folder / "handler.py").read_bytes() == FILES["handler.py"]
        assert (folder / "logs").is_dir()


LARGE = {**FILES, "w.pt": os.urandom(9_000_000)}


def spoiled(path, place):
    """Invert a byte of the large member."""
    with open_archive(make_zip(path, LARGE)) as archive:
        offset = archive.entries["w.pt"].data_offset
    with path.open("r+b") as file:
        file.seek(offset + place)
        byte = file.read(1)[0]
        file.seek(offset + place)
        file.write(bytes([byte ^ 0xFF]))
    return path


def test_wrong_bytes_of_a_large_member_are_found_by_the_time_all_was_read(tmp_path):
    with open_archive(spoiled(tmp_path / "a.mar", 8_000_000)) as archive, archive.open("w.pt") as file:
        assert file.read(7_000_000) == LARGE["w.pt"][:7_000_000]
        with pytest.raises(DamagedArchiveError, check=has_facts("'w.pt'", "CRC")):
            file.read()


def test_jumping_about_does_not_spoil_the_check(tmp_path):
    with open_archive(spoiled(tmp_path / "a.mar", 100)) as archive, archive.open("w.pt") as file:
        file.seek(5_000_000)
        assert file.read(10) == LARGE["w.pt"][5_000_000:5_000_010]
        file.seek(0)
        file.read(6_000_000)
        file.seek(2_000_000)
        with pytest.raises(DamagedArchiveError):
            file.read()
    path = make_zip(tmp_path / "b.mar", LARGE)
    with open_archive(path) as archive, archive.open("w.pt") as file:
        file.read(3_000_000)
        file.seek(1_000_000)
        assert file.read() == LARGE["w.pt"][1_000_000:]


def test_a_file_cut_while_it_is_open_is_found(tmp_path, cache):
    path = make_zip(tmp_path / "a.mar", LARGE)
    with open_archive(path, cache=cache) as archive:
        os.truncate(path, 5_000_000)
        with archive.open("w.pt") as file, pytest.raises(DamagedArchiveError, check=has_facts(5000000)):
            file.read()
        with pytest.raises(DamagedArchiveError):
            archive.materialize()


def test_a_name_too_long_for_any_file_system(tmp_path):
    with pytest.raises(NotAnArchiveError, match="File name too long"):
        open_archive(tmp_path / ("x" * 300))


def test_aligned_weights_are_cloned_where_the_file_system_can(tmp_path, cache):
    if not _can_clone(tmp_path):
        pytest.skip("the temporary folder's file system cannot clone (btrfs and XFS can)")
    path = tmp_path / "a.mar"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo("w.pt")
        gap = -(30 + len("w.pt") + 4) % 4096
        member.extra = struct.pack("<2H", 0xD935, gap) + bytes(gap)
        archive.writestr(member, LARGE["w.pt"])
        archive.writestr("handler.py", FILES["handler.py"])
        archive.writestr("MAR-INF/MANIFEST.json", FILES["MAR-INF/MANIFEST.json"])
    with open_archive(path, cache=cache) as archive:
        weights = archive.materialize() / "w.pt"
        assert weights.read_bytes() == LARGE["w.pt"]
        assert _shares_blocks(weights)


def _can_clone(folder):
    (folder / "one").write_bytes(bytes(4096))
    with (folder / "one").open("rb") as one, (folder / "two").open("wb") as two:
        try:
            fcntl.ioctl(two, 0x40049409, one.fileno())  # FICLONE
        except OSError:
            return False
    return True


def _shares_blocks(path):
    """Ask the file system (FS_IOC_FIEMAP) whether the file's first extent is shared with another file."""
    answer = bytearray(struct.pack("=QQIIII", 0, 1 << 62, 1, 0, 1, 0) + bytes(56))
    with path.open("rb") as file:
        fcntl.ioctl(file, 0xC020660B, answer)
    return bool(struct.unpack_from("=I", answer, 32 + 40)[0] & 0x2000)
