"""Zips inside archives, as lenient as torch's reader and as careful as ours."""

import io
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from lazy import torch
from msgspec.structs import replace

from marpack.archive import zip_format
from marpack.archive.zip_format import LargeZipError, NotZipError, open_entry, read_entries


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


MEMBERS = {"a/one": b"1" * 100, "a/two": b"2" * 50_000, "a/empty": b""}


def contents(data: bytes) -> dict[str, bytes]:
    file = io.BytesIO(data)
    return {entry.name: open_entry(file, entry).read() for entry in read_entries(file)}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_whole(method: int) -> None:
    assert contents(zipped(MEMBERS, method)) == MEMBERS


def test_zip64_records_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)  # everything larger is written as if it were huge
    data = zipped(MEMBERS)
    assert b"PK\x06\x06" in data
    assert contents(data) == MEMBERS


def test_a_zip64_record_does_not_shift_the_directory(tmp_path: Path) -> None:
    """torch always writes one; 76 bytes further on, the length of its records, a second header may begin."""
    path = tmp_path / "a_name_of_21_letters_.pt"
    torch.save({"a": 1}, path)
    with path.open("rb") as file:
        entries = read_entries(file)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.filelist[0].filename) == zipfile.sizeEndCentDir64 + zipfile.sizeEndCentDir64Locator - 46
        assert [(entry.name, entry.header) for entry in entries] == [
            (info.filename, info.header_offset) for info in archive.filelist
        ]


def test_every_name_of_a_member_is_known() -> None:
    field = struct.pack("<2HBL", 0x7075, 5 + 4, 1, 0) + b"b.pt"
    for extra, names in [(b"", {"a"}), (field, {"a", "b.pt"})]:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            info = zipfile.ZipInfo("a_zero.txt")
            info.extra = extra
            file.writestr(info, b"x")
        data = buffer.getvalue().replace(b"a_zero.txt", b"a\0zero.txt")
        assert set(contents(data)) == names
        assert zipfile.ZipFile(io.BytesIO(data)).namelist()[0] in names


def test_a_member_of_many_names_is_not_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        info = zipfile.ZipInfo("a")
        info.extra = 2 * (struct.pack("<2HBL", 0x7075, 5 + 1, 1, 0) + b"b")
        file.writestr(info, b"x")
    with pytest.raises(LargeZipError):
        read_entries(buffer)


def test_folders_are_no_members() -> None:
    assert contents(zipped({"a/": b"", "a/b": b"x", "c/": b"y"})) == {"a/b": b"x", "c/": b"y"}  # unless they hold bytes


def test_a_comment_is_no_obstacle() -> None:
    buffer = io.BytesIO(zipped(MEMBERS))
    with zipfile.ZipFile(buffer, "a") as file:
        file.comment = b"c" * 10_000
    assert contents(buffer.getvalue()) == MEMBERS


def test_bytes_before_the_zip_shift_it() -> None:
    assert contents(b"x" * 1000 + zipped(MEMBERS)) == MEMBERS


def test_a_directory_where_torch_would_look_and_another_where_python_would_are_both_read() -> None:
    first, second = zipped({"torch": b"1"}), zipped({"python": b"2"})
    offset = first.rindex(b"PK\x01\x02")
    end = bytearray(second[second.rindex(b"PK\x05\x06") :])
    size = int.from_bytes(end[12:16], "little")
    end[16:20] = (offset).to_bytes(4, "little")
    body = first[: first.rindex(b"PK\x05\x06")].ljust(200, b"\0")
    directory = second[second.rindex(b"PK\x01\x02") :][:size].replace(b"python", b"torch\0"[:6])
    data = body + directory + bytes(end)
    names = [entry.name for entry in read_entries(io.BytesIO(data))]
    assert names[0] == "torch"
    assert len(names) == 2


def test_deflated_members_can_be_read_anywhere() -> None:
    file = io.BytesIO(zipped({"numbers": bytes(range(256)) * 500}, zipfile.ZIP_DEFLATED))
    inner = open_entry(file, read_entries(file)[0])
    inner.seek(100_000)
    assert inner.read(4) == bytes(range(100_000 % 256, 100_000 % 256 + 4))
    inner.seek(3)
    assert inner.read(2) == b"\x03\x04"
    assert inner.seek(0, io.SEEK_END) == inner.tell() == 128_000
    assert inner.read(1) == b""


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x03\x04", b"PK\x05\x06", bytes(100), b"PK\x05\x06" + b"\xff" * 18],
    ids=["empty", "a beginning", "half an end", "zeros", "all ones"],
)
def test_no_zip_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(NotZipError):
        read_entries(io.BytesIO(data))


def ended(data: bytes, **changed: int) -> bytes:
    """Return a zip whose end record says something else."""
    at = data.rindex(b"PK\x05\x06")
    fields = dict(zip(("count", "length", "offset"), struct.unpack_from("<HII", data, at + 10), strict=True)) | changed
    return data[: at + 10] + struct.pack("<HII", *fields.values()) + data[at + 20 :]


def test_an_end_that_cannot_be_true_is_none() -> None:
    data = zipped(MEMBERS)
    end = data.rindex(b"PK\x05\x06")
    assert [entry.name for entry in read_entries(io.BytesIO(ended(data, count=0)))] == list(MEMBERS)
    assert read_entries(io.BytesIO(ended(data, length=end))) is not None
    with pytest.raises(NotZipError):
        read_entries(io.BytesIO(ended(data, length=end + 1)))


@pytest.mark.parametrize("offset", [0, 7, 1 << 31])
def test_python_finds_the_directory_before_its_end_record_whatever_its_offset(offset: int) -> None:
    data = zipped(MEMBERS)
    shift = offset - data.index(b"PK\1\2")
    file = io.BytesIO(ended(data, offset=offset))
    headers = {entry.name: entry.header for entry in read_entries(file)}
    assert headers.keys() == MEMBERS.keys()
    assert headers["a/one"] == -shift


def test_an_encrypted_member_is_known() -> None:
    data = bytearray(zipped({"a": b"x", "b": b"y"}))
    data[data.index(b"PK\1\2") + 8] |= 1
    assert {entry.name: entry.encrypted for entry in read_entries(io.BytesIO(data))} == {"a": True, "b": False}


def widened(
    data: bytes, *, count: int = 3, length: int | None = None, place: int = 0, magic: bytes = b"PK\6\6"
) -> bytes:
    """Return a zip with a zip64 record and its locator before the end."""
    at = data.rindex(b"PK\x05\x06")
    told, offset = struct.unpack_from("<II", data, at + 12)
    record = struct.pack(
        "<4sQ2H2I4Q", magic, 44, 45, 45, 0, 0, count, count, told if length is None else length, offset
    )
    return data[:at] + record + struct.pack("<4sIQI", b"PK\6\7", 0, at + place, 1) + data[at:]


def test_a_zip64_record_counts_before_the_end_record() -> None:
    data = ended(zipped(MEMBERS), offset=0xFFFFFFFF, length=0xFFFFFFFF)
    with pytest.raises(NotZipError):
        read_entries(io.BytesIO(data))
    data = widened(zipped(MEMBERS))
    at = data.rindex(b"PK\x05\x06")
    assert contents(ended(data, offset=0xFFFFFFFF, length=0xFFFFFFFF)) == MEMBERS
    assert data.index(b"PK\6\6") < at


@pytest.mark.parametrize(
    "wrong", [{"count": 200_001}, {"length": 1 << 20}, {"place": 1}, {"place": 1 << 20}, {"magic": b"PK\6\5"}]
)
def test_a_zip64_record_that_cannot_be_true_hides_nothing(wrong: dict[str, Any]) -> None:
    """Each reader falls back to another of the records, and so do we."""
    assert contents(widened(zipped(MEMBERS), **wrong)) == MEMBERS


def test_a_locator_may_lead_to_another_record_than_the_one_before_it() -> None:
    """Torch's reader follows the locator, Python's takes the record before it."""
    ours, theirs = zipped({"python": b"1"}), zipped({"torch.": b"2"})
    at = theirs.rindex(b"PK\5\6")
    length, offset = struct.unpack_from("<II", theirs, at + 12)
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, length, offset)
    front = theirs[:at] + record
    data = front + ours
    end = data.rindex(b"PK\5\6")
    length, offset = struct.unpack_from("<II", data, end + 12)
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, length, offset + len(front))
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    names = {entry.name for entry in read_entries(io.BytesIO(data[:end] + record + locator + data[end:]))}
    assert names == {"python", "torch."}


def test_an_end_record_without_room_is_none() -> None:
    buffer = io.BytesIO(zipped(MEMBERS))
    with zipfile.ZipFile(buffer, "a") as file:
        file.comment = b"a comment that ends in PK\5\6 and"
    assert contents(buffer.getvalue()) == MEMBERS


def test_a_directory_that_is_too_large_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_format, "ENTRY_LIMIT", 2)
    with pytest.raises(LargeZipError, match="over 2 members"):
        read_entries(io.BytesIO(zipped(MEMBERS)))
    monkeypatch.setattr(zip_format, "_DIRECTORY_LIMIT", 100)
    with pytest.raises(LargeZipError, match="bytes"):
        read_entries(io.BytesIO(zipped(MEMBERS)))


@pytest.mark.parametrize("header", [-1, 1 << 62, 3])
def test_a_member_that_is_not_where_it_should_be_is_none(header: int) -> None:
    file = io.BytesIO(zipped(MEMBERS))
    with pytest.raises(NotZipError):
        open_entry(file, replace(read_entries(file)[0], header=header))


def test_damage_within_a_deflated_member_is_its_end() -> None:
    data = bytearray(zipped({"a": random.Random(1).randbytes(50_000)}, zipfile.ZIP_DEFLATED))
    (entry,) = read_entries(io.BytesIO(data))
    whole = open_entry(io.BytesIO(data), entry).read()
    cut = replace(entry, compressed_size=20_000)
    assert whole.startswith(open_entry(io.BytesIO(data), cut).read())
    data[31:60] = b"\xff" * 29
    inner = open_entry(io.BytesIO(data), entry)
    inner.seek(40_000)
    assert inner.read(10) == b""


def test_an_unknown_method_is_named() -> None:
    file = io.BytesIO(zipped({"a": b"x" * 1000}, zipfile.ZIP_BZIP2))
    with pytest.raises(NotZipError, match="method 12"):
        open_entry(file, read_entries(file)[0])
