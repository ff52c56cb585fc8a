import hashlib
import os
import shutil
import struct
import subprocess
import tarfile
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.archive.bytesource import LocalFile
from marpack.archive.copying import BLOCK, Checksums, Copier, Source, Write
from marpack.archive.protocol import Limits
from marpack.archive.writers import ALIGNMENT, FolderWriter, TarWriter, ZipWriter
from marpack.archive.zip_format import read_directory

NAMES = st.lists(
    st.text("abcé漢/._- ", min_size=1, max_size=8).filter(lambda name: name.strip("/. ") == name),
    unique=True,
    max_size=6,
)


class Seen(NamedTuple):
    name: bytes
    flags: int
    method: int
    time: int
    date: int
    crc: int
    compressed: int
    size: int


def write(path: Path, members: list[tuple[str, bytes, bool]]) -> Path:
    with path.open("wb") as file, Copier() as copier:
        writer = ZipWriter(file, copier)
        for name, content, aligned in members:
            writer.add(name, BytesIO(content), len(content), aligned=aligned)
        writer.finish()
    return path


def stream(data: bytes) -> list[tuple[Seen, int, bytes]]:
    """Read an archive as the server does, by its local headers alone: what each says, its offset, its data."""
    found, at = [], 0
    while data[at : at + 4] == b"PK\3\4":
        needed, flags, method, time, date, crc, packed, size, name, extra = struct.unpack_from("<5H3I2H", data, at + 4)
        start = at + 30 + name + extra
        assert needed in (20, 45)
        seen = Seen(data[at + 30 : at + 30 + name], flags, method, time, date, crc, packed, size)
        found.append((seen, at, data[start : start + size]))
        at = start + packed
    assert data[at : at + 4] in (b"PK\1\2", b"PK\5\6")
    return found


def directory(data: bytes) -> list[tuple[Seen, int]]:
    """Read the central directory: what each record says, and the offset it points to."""
    count, size, at, comment = struct.unpack_from("<HIIH", data, len(data) - 12)
    assert data[-22:-18] == b"PK\5\6"
    assert (at + size, comment) == (len(data) - 22, 0)
    found = []
    for _ in range(count):
        assert data[at : at + 4] == b"PK\1\2"
        made, needed, *told, name, extra, note, disk, internal, external, offset = struct.unpack_from(
            "<6H3I5H2I", data, at + 4
        )
        assert (made, needed, note, disk, internal, external >> 16) == (3 << 8 | 20, 20, 0, 0, 0, 0o100644)
        found.append((Seen(data[at + 46 : at + 46 + name], *told), offset))
        at += 46 + name + extra
    return found


@given(names=NAMES, data=st.data())
def test_whatever_is_written_is_read_back_by_directory_and_by_stream(tmp_path_factory, names, data) -> None:
    members = [(name, data.draw(st.binary(max_size=5000)), data.draw(st.booleans())) for name in names]
    path = write(tmp_path_factory.mktemp("zip") / "x.zip", members)
    archive = path.read_bytes()
    with zipfile.ZipFile(path) as zipped:
        assert zipped.testzip() is None
        assert [(info.filename, zipped.read(info)) for info in zipped.infolist()] == [each[:2] for each in members]
    streamed = stream(archive)
    assert [(seen, offset) for seen, offset, _ in streamed] == directory(archive)
    assert [(seen.name.decode(), content) for seen, _, content in streamed] == [each[:2] for each in members]
    assert write(path, members).read_bytes() == archive


def test_aligned_members_begin_on_a_page_and_others_waste_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "x.zip", [("a.pt", b"A" * 5000, True), ("é.pt", b"B" * 10, True), ("c.py", b"C", False)])
    archive = path.read_bytes()
    assert [archive.index(each) % ALIGNMENT for each in (b"A" * 5000, b"B" * 10)] == [0, 0]
    assert archive.index(b"CPK\1\2") - archive.index(b"c.py") == 4


@pytest.mark.parametrize("shift", [0, 1, 4050, 4056, 4057, 4058, 4059, 4060, 4061, 4062, 4063, 4064, 4095])
def test_alignment_holds_wherever_the_header_falls(tmp_path: Path, shift: int) -> None:
    first = bytes(shift)
    path = write(tmp_path / "x.zip", [("s", first, False), ("w.pt", b"WEIGHTS", True)])
    archive = path.read_bytes()
    assert archive.index(b"WEIGHTS") % ALIGNMENT == 0
    assert [seen.name for seen, _, _ in stream(archive)] == [b"s", b"w.pt"]


def test_nothing_of_this_moment_or_machine_is_in_the_headers(tmp_path: Path) -> None:
    path = write(tmp_path / "x.zip", [("a", b"a", False), ("é", b"b", False)])
    with zipfile.ZipFile(path) as zipped:
        plain, accented = zipped.infolist()
    assert plain.date_time == accented.date_time == (1980, 1, 1, 0, 0, 0)
    assert (plain.flag_bits, accented.flag_bits) == (0, 0x800)
    assert plain.compress_type == accented.compress_type == zipfile.ZIP_STORED


class Unread(Copier):
    """Takes a source's word for its size."""

    def copy(self, source: Source, size: int, write: Write, **_: object) -> Checksums:
        return Checksums(zlib.crc32(b""), "")


FULL = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("sizes", "version", "is_wide"),
    [
        ((FULL - 32,), 20, False),  # its header takes 31 bytes: the directory is at the last plain place
        ((FULL - 31,), 20, True),
        ((FULL - 1,), 20, True),
        ((FULL,), 45, True),
        ((FULL - 32, 5), 20, True),
        ((FULL - 31, 5), 45, True),
        ((FULL + 9, FULL + 9), 45, True),
    ],
)
def test_what_a_plain_zip_cannot_tell_is_told_in_zip64(
    tmp_path: Path, sizes: tuple[int, ...], version: int, is_wide: bool
) -> None:
    """Both readers, Python's and ours, find every size and place, whichever of them is told in which field."""
    path = tmp_path / "x.zip"
    with path.open("wb") as file, Unread() as copier:
        writer = ZipWriter(file, copier)
        for number, size in enumerate(sizes):
            writer.add(str(number), BytesIO(), size)
        writer.finish()
    with zipfile.ZipFile(path) as zipped:
        assert [(info.filename, info.file_size) for info in zipped.infolist()] == told(sizes)
    source = LocalFile(path)
    found = read_directory(source, Limits())
    source.close()
    assert [(member.name, member.size) for member in found.members] == told(sizes)
    assert zipped.infolist()[-1].extract_version == version
    assert (b"PK\6\6" in end_of(path)) == is_wide


def told(sizes: tuple[int, ...]) -> list[tuple[str, int]]:
    return [(str(number), size) for number, size in enumerate(sizes)]


def end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(200, path.stat().st_size), os.SEEK_END)
        return file.read()


@pytest.mark.slow
def test_more_members_than_a_plain_zip_can_count(tmp_path: Path) -> None:
    count = 0xFFFF + 5
    path = write(tmp_path / "x.zip", [(f"{number}", b"", False) for number in range(count)])
    with zipfile.ZipFile(path) as zipped:
        assert len(zipped.namelist()) == count
    assert b"PK\6\6" in path.read_bytes()[-200:]


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a member of over 4 GiB, one beyond it, and hardly anything on the disk."""
    folder = tmp_path_factory.mktemp("huge")
    weights, path = folder / "w.pt", folder / "huge.zip"
    with weights.open("wb") as file:
        file.truncate((4 << 30) + 10)
        file.seek(-4, os.SEEK_END)
        file.write(b"last")
    with path.open("wb") as file, Copier() as copier, weights.open("rb", buffering=0) as source:
        writer = ZipWriter(file, copier)
        writer.add("w.pt", source, weights.stat().st_size, aligned=True)
        writer.add("after.txt", BytesIO(b"after"), 5)
        writer.finish()
    return path


@pytest.mark.slow
def test_a_member_over_4_gib_is_zip64_and_stays_sparse(huge: Path) -> None:
    assert huge.stat().st_blocks * 512 < 16 << 20
    with zipfile.ZipFile(huge) as zipped:
        weights, after = zipped.infolist()
        assert (weights.file_size, after.header_offset > 4 << 30) == ((4 << 30) + 10, True)
        assert zipped.read("after.txt") == b"after"
    with huge.open("rb") as file:
        head = file.read(ALIGNMENT)
        assert struct.unpack_from("<HII", head, 4)[0] == 45
        assert struct.unpack_from("<2H2Q", head, 34) == (1, 16, (4 << 30) + 10, (4 << 30) + 10)
        file.seek(ALIGNMENT + (4 << 30) + 6)
        assert file.read(4) == b"last"
        assert file.read(4) == b"PK\3\4"


JAVA = """
import java.io.*; import java.util.zip.*;
public class Members {
    public static void main(String[] args) throws Exception {
        byte[] buffer = new byte[1 << 20];
        try (ZipInputStream in = new ZipInputStream(new BufferedInputStream(new FileInputStream(args[0]), 1 << 20))) {
            for (ZipEntry entry; (entry = in.getNextEntry()) != null; ) {
                long size = 0;
                for (int n; (n = in.read(buffer)) > 0; ) size += n;
                System.out.println(entry.getName() + " " + size);
            }
        }
    }
}
"""


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("java"), reason="needs Java 11 or newer")
def test_the_servers_way_of_reading_sees_every_member(tmp_path: Path, huge: Path) -> None:
    source = tmp_path / "Members.java"
    source.write_text(JAVA)
    small = write(tmp_path / "x.mar", [("a.pt", b"A" * 9000, True), ("ü/é.txt", b"B", False), ("empty", b"", False)])
    done = [
        subprocess.run(
            ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", source, path],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            timeout=120,
        ).stdout
        for path in (small, huge)
    ]
    assert done == ["a.pt 9000\nü/é.txt 1\nempty 0\n", f"w.pt {(4 << 30) + 10}\nafter.txt 5\n"]


# --- the other two forms ----------------------------------------------------------------------------------------------

LONG = "deep/" * 30 + "é.txt"


@pytest.mark.parametrize("count", [0, 1, 18, 19, 20, 60])
def test_a_tar_holds_what_was_written_and_nothing_of_this_moment(tmp_path: Path, count: int) -> None:
    contents = {"h.py": b"x = 1\n", "empty": b"", LONG: b"long", "w.bin": bytes(512) * count}
    written = []
    for name in ("a.tar.gz", "b.tar.gz"):
        with (tmp_path / name).open("wb") as file, Copier() as copier:
            writer = TarWriter(file, copier, root="model/")
            members = [writer.add(member, BytesIO(data), len(data)) for member, data in contents.items()]
            writer.finish()
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    plain = zlib.decompress(written[0], 31)
    assert len(plain) % 10_240 == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        found = {info.name: archive.extractfile(info).read() for info in archive}
        assert {(info.mode, info.mtime, info.uid, info.uname) for info in archive} == {(0o644, 315532800, 0, "")}
    assert found == {f"model/{name}": data for name, data in contents.items()}
    assert plain[archive.offset :] == bytes(len(plain) - archive.offset)
    sums = [(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()]
    assert [(member.name, member.size, member.sha256) for member in members] == sums


@pytest.mark.parametrize("data", [b"", b"x", bytes(BLOCK), b"x" + bytes(3 * BLOCK), bytes(2 * BLOCK) + b"x"])
def test_a_folder_holds_files_with_holes_where_there_is_nothing(tmp_path: Path, data: bytes) -> None:
    with Copier() as copier:
        writer = FolderWriter(tmp_path, copier)
        member = writer.add("a/b/w.bin", BytesIO(data), len(data))
        writer.finish()
        with pytest.raises(FileExistsError):
            writer.add("a/b/w.bin", BytesIO(), 0)
    assert (tmp_path / "a" / "b" / "w.bin").read_bytes() == data
    assert (member.name, member.size, member.sha256) == ("a/b/w.bin", len(data), hashlib.sha256(data).hexdigest())
