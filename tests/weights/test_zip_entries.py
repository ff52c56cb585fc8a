"""Zips inside archives, as lenient as torch's reader and as careful as ours."""

import io
import zipfile

import pytest

from marpack.weights.zip_entries import NotZipError, open_entry, read_directory


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


MEMBERS = {"a/one": b"1" * 100, "a/two": b"2" * 50_000, "a/empty": b""}


def contents(data: bytes) -> dict[str, bytes]:
    file = io.BytesIO(data)
    return {entry.name: open_entry(file, entry).read() for entry in read_directory(file)}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_whole(method: int) -> None:
    assert contents(zipped(MEMBERS, method)) == MEMBERS


def test_zip64_records_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)  # everything larger is written as if it were huge
    data = zipped(MEMBERS)

    assert b"PK\x06\x06" in data
    assert contents(data) == MEMBERS


def test_folders_are_no_members() -> None:
    assert list(contents(zipped({"a/": b"", "a/b": b"x"}))) == ["a/b"]


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

    names = [entry.name for entry in read_directory(io.BytesIO(data))]

    assert names[0] == "torch"
    assert len(names) == 2


def test_deflated_members_can_be_read_anywhere() -> None:
    file = io.BytesIO(zipped({"numbers": bytes(range(256)) * 500}, zipfile.ZIP_DEFLATED))
    inner = open_entry(file, read_directory(file)[0])

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
        read_directory(io.BytesIO(data))


def test_an_unknown_method_is_named() -> None:
    file = io.BytesIO(zipped({"a": b"x" * 1000}, zipfile.ZIP_BZIP2))

    with pytest.raises(NotZipError, match="method 12"):
        open_entry(file, read_directory(file)[0])
