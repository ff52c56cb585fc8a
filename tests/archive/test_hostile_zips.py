"""Zips made to deceive or to harm, byte by byte; each is refused with one sentence, before anything is written."""

import json
import stat
import struct
import zlib
from dataclasses import dataclass, replace

import pytest
from msgspec.structs import replace as replaced

from marpack.archive.cache import Cache
from marpack.archive.protocol import Limits
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, ExitCode

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}}).encode()
LOCAL, CENTRAL, DESCRIPTOR = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s3I")
END, END64, LOCATOR64 = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
FULL = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class M:
    """One member; what is None is told truly."""

    name: str | bytes
    data: bytes = b"x = 1\n"
    method: int = 0
    flags: int = 0x800
    mode: int | None = None
    extra: bytes = b""  # in both headers
    crc: int | None = None  # in both headers, as the others
    size: int | None = None
    compressed: int | None = None
    body: bytes | None = None  # the bytes as they lie there
    local: dict = None  # of the local header only: name, flags, method, crc, size, compressed, extra, magic
    central: dict = None  # of the directory only: the same, and offset, disk
    before: bytes = b""  # bytes that belong to nobody
    after: bytes = b""  # a data descriptor

    def head(self, other):
        raw = self.name.encode() if isinstance(self.name, str) else self.name
        body = self.packed()
        told = {
            "name": raw, "flags": self.flags, "method": self.method, "extra": self.extra,
            "crc": zlib.crc32(self.data) if self.crc is None else self.crc,
            "size": len(self.data) if self.size is None else self.size,
            "compressed": len(body) if self.compressed is None else self.compressed,
        }  # fmt: skip
        return {**told, **(other or {})}

    def kind(self):
        folder = self.name[-1:] in ("/", b"/")
        return self.mode or (stat.S_IFDIR | 0o755 if folder else stat.S_IFREG | 0o644)

    def packed(self):
        if self.body is not None:
            return self.body
        return zlib.compress(self.data, 9, -15) if self.method == 8 else self.data


GOOD = (M(name="h.py"), M(name="MAR-INF/MANIFEST.json", data=MANIFEST))


def zip_of(*members, first=b"", between=b"", comment=b"", last=b"", **end):
    """Return a zip of members, with other bytes before, before the end record, in the comment, and behind."""
    out, directory = bytearray(first), bytearray()
    for m in members:
        h = m.head(m.local)
        out += m.before
        offset = len(out)
        out += LOCAL.pack(
            h.get("magic", b"PK\3\4"), 20, h["flags"], h["method"], 0, 33, h["crc"], h["compressed"], h["size"],
            len(h["name"]), len(h["extra"]),
        ) + h["name"] + h["extra"] + m.packed() + m.after  # fmt: skip
        h = m.head(m.central)
        directory += CENTRAL.pack(
            h.get("magic", b"PK\1\2"), 0x314, 20, h["flags"], h["method"], 0, 33, h["crc"], h["compressed"], h["size"],
            len(h["name"]), len(h["extra"]), 0, h.get("disk", 0), 0, m.kind() << 16, h.get("offset", offset),
        ) + h["name"] + h["extra"]  # fmt: skip
    told = {
        "entries": len(members),
        "size": len(directory),
        "offset": len(out),
        "disk": 0,
        "comment": len(comment),
        **end,
    }
    record = END.pack(
        b"PK\5\6", told["disk"], 0, told["entries"], told["entries"], told["size"], told["offset"], told["comment"]
    )
    return bytes(out + directory + between + record + comment + last)


def named(name):
    return zip_of(*GOOD, M(name=name))


def end64(*, offset=None, disks=1, full=(0xFFFF, FULL, FULL), magic=b"PK\6\6", **told):
    """Return a sound zip with zip64 end records, but for what is told otherwise."""
    plain = zip_of(*GOOD)
    place = plain.rindex(b"PK\5\6")
    _, _, _, _, entries, size, start, _ = END.unpack(plain[place:])
    told = {"length": 44, "entries": entries, "size": size, "start": start, **told}
    record = END64.pack(
        magic, told["length"], 45, 45, 0, 0, told["entries"], told["entries"], told["size"], told["start"]
    )
    locator = LOCATOR64.pack(b"PK\6\7", 0, place if offset is None else offset, disks)
    return plain[:place] + record + locator + END.pack(b"PK\5\6", 0, 0, full[0], full[0], full[1], full[2], 0)


def overlapping():
    """Two names for one body, as the bombs of David Fifield have them."""
    inner = M(name="inner", data=b"y" * 100)
    whole = zip_of(*GOOD, inner)
    at = whole.index(b"inner") - LOCAL.size
    return zip_of(*GOOD, inner, M(name="again", data=b"y" * 100, central={"offset": at}))


def quoted():
    """A member whose body is another member, headers and all."""
    inner = zip_of(M(name="inner"))
    body = inner[: inner.index(b"PK\1\2")]
    outer = zip_of(*GOOD, M(name="outer", data=body))
    at = outer.index(body)
    return zip_of(*GOOD, M(name="outer", data=body), M(name="inner", central={"offset": at}))


def zip64_extra(*values):
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)


ZEROS = bytes(70 << 20)
BOMB = M(name="bomb", data=ZEROS, method=8, crc=zlib.crc32(ZEROS), body=zlib.compress(ZEROS, 9, -15))
HALF = replace(BOMB, data=ZEROS[: 60 << 20], crc=0, body=BOMB.body[:70_000])
LINK = stat.S_IFLNK | 0o777
UNICODE_PATH = struct.pack("<2HBI", 0x7075, 5 + 4, 1, zlib.crc32(b"x.py")) + b"y.py"

DIRECTORY = zip_of(*GOOD).index(b"PK\1\2")
BROKEN = "the bytes of the member 'a.py' do not match the CRC or size recorded for them"
LATE = "bytes that belong neither to a member nor to its directory"
CUT = "the zip has no directory at its end: it is truncated, or bytes were appended"
WINDOWS = "has a backslash in its name, which is a folder separator on Windows"
INVISIBLE = "has a control or invisible character in its name"
COMMENT = "the archive's comment holds another archive's directory: tools would disagree on its members"
NO_FOLDER = "the member 'a' is a file where another member needs a folder"
EXTRA = "the extra fields of the member 'a.py' are garbled"
ZIP64 = "the zip64 field of the member 'a.py' does not fit its header"


def other(what):
    """Return the sentence on a member whose two headers differ."""
    return f"the member 'a.py' has other {what} in its local header than in the directory: tools would disagree on it"


CASES = {
    "dot-dot": (named("../x.py"), "contains '.' or '..'"),
    "dot-dot-folder": (zip_of(*GOOD, M(name="../", data=b"")), "contains '.' or '..'"),
    "absolute": (named("/etc/cron.d/x"), "has an absolute path"),
    "not-utf8": (named(b"\xff\xfe.py"), "has a name that is not UTF-8"),
    "case": (zip_of(*GOOD, M(name="H.py")), "differs from 'h.py' only in case or Unicode form"),
    "twice": (zip_of(*GOOD, M(name="h.py", data=b"evil")), "is repeated"),
    "manifest-twice": (zip_of(*GOOD, M(name="MAR-INF/MANIFEST.json", data=b"{}")), "is repeated"),
    "file-for-folder": (zip_of(*GOOD, M(name="a"), M(name="a/b")), NO_FOLDER),
    "folder-for-file": (zip_of(*GOOD, M(name="a/", data=b""), M(name="a")), NO_FOLDER),
    "folder-with-data": (named("a/"), "is a folder with 6 bytes of data"),
    "folder-by-mode": (
        zip_of(*GOOD, M(name="a", mode=stat.S_IFDIR | 0o755)),
        "is a folder by its name or by its mode, but not by both",
    ),
    "symlink": (zip_of(*GOOD, M(name="l", data=b"/etc/passwd", mode=LINK)), "is a symbolic link"),
    "fifo": (zip_of(*GOOD, M(name="f", mode=stat.S_IFIFO | 0o644)), "is a FIFO"),
    "device": (zip_of(*GOOD, M(name="d", mode=stat.S_IFBLK | 0o644)), "is a device"),
    "socket": (zip_of(*GOOD, M(name="s", mode=stat.S_IFSOCK | 0o644)), "is a socket"),
    "hard-link": (zip_of(*GOOD, M(name="l", extra=struct.pack("<2H", 0x0D, 16) + bytes(12) + b"h.py")), "is a link"),
    "hard-link-asi": (
        zip_of(*GOOD, M(name="l", extra=struct.pack("<2HIHIHH", 0x756E, 14 + 4, 0, 0o777, 4, 0, 0) + b"h.py")),
        "is a link",
    ),
    "second-name": (zip_of(*GOOD, M(name="x.py", extra=UNICODE_PATH)), "has a second name, 'y.py'"),
    "bomb-ratio": (
        zip_of(*GOOD, BOMB),
        f"the member 'bomb' expands {len(BOMB.packed())} bytes to {70 << 20}, more than 100 times",
    ),
    "bomb-many": (
        zip_of(*GOOD, *(replace(HALF, name=f"b{n}") for n in range(2))),
        f"bytes to {(120 << 20) + 6 + len(MANIFEST)}, more than 100 times",
    ),
    "bomb-lying": (
        zip_of(*GOOD, replace(BOMB, size=1000, crc=zlib.crc32(bytes(1000)))),
        "the bytes of the member 'bomb' do not match the CRC or size recorded for them",
    ),
    "overlap": (overlapping(), "overlaps 'inner'"),
    "overlap-nested": (quoted(), "overlaps 'outer'"),
    "data-first": (
        zip_of(*GOOD, first=b"#!/bin/sh\n"),
        "10 bytes between the beginning and 'h.py' belong to no member",
    ),
    "data-prepended": (b"#!/bin/sh\n" + zip_of(*GOOD), f"the zip contains 10 {LATE}"),
    "data-between": (
        zip_of(GOOD[0], replace(GOOD[1], before=b"hidden")),
        "6 bytes between 'h.py' and 'MAR-INF/MANIFEST.json' belong to no member",
    ),
    "data-before-directory": (
        zip_of(GOOD[0], replace(GOOD[1], after=b"hidden")),
        "6 bytes between 'MAR-INF/MANIFEST.json' and the zip's directory belong to no member",
    ),
    "data-after-directory": (zip_of(*GOOD, between=b"hidden"), f"the zip contains 6 {LATE}"),
    "data-last": (zip_of(*GOOD, last=b"hidden"), CUT),
    "hidden-member": (
        zip_of(*GOOD, M(name="evil.py"), entries=2),
        "the zip's directory has more than",
    ),
    "fewer-members": (zip_of(*GOOD, entries=3), "the zip's directory is shorter than its number of members"),
    "comment-archive": (zip_of(*GOOD, comment=zip_of(*GOOD)), COMMENT),
    "comment-archive-padded": (zip_of(*GOOD, comment=zip_of(*GOOD) + b"pad"), COMMENT),
    "comment-lies": (zip_of(*GOOD, comment=b"abc")[:-1], CUT),
    "local-name": (zip_of(*GOOD, M(name="a.py", local={"name": b"b.py"})), other("names")),
    "local-method": (zip_of(*GOOD, M(name="a.py", local={"method": 8})), other("methods")),
    "local-flags": (zip_of(*GOOD, M(name="a.py", local={"flags": 0})), other("flags")),
    "local-crc": (zip_of(*GOOD, M(name="a.py", local={"crc": 7})), other("CRC or sizes")),
    "local-size": (zip_of(*GOOD, M(name="a.py", local={"size": 7})), other("CRC or sizes")),
    "local-magic": (
        zip_of(*GOOD, M(name="a.py", local={"magic": b"PK\3\5"})),
        f"the directory points at byte {DIRECTORY} for 'a.py', where no member begins",
    ),
    "offset-elsewhere": (
        zip_of(*GOOD, M(name="a.py", central={"offset": 1 << 30})),
        "bytes between 'MAR-INF/MANIFEST.json' and 'a.py' belong to no member",
    ),
    "stored-descriptor": (
        zip_of(
            *GOOD,
            M(
                name="a.py",
                flags=0x808,
                local={"crc": 0, "size": 0, "compressed": 0},
                after=DESCRIPTOR.pack(b"PK\7\x08", zlib.crc32(b"x = 1\n"), 6, 6),
            ),
        ),
        "is stored with its size behind it, which the server refuses",
    ),
    "descriptor-lies": (
        zip_of(
            *GOOD,
            M(
                name="a.py",
                method=8,
                flags=0x808,
                local={"crc": 0, "size": 0, "compressed": 0},
                after=DESCRIPTOR.pack(b"PK\7\x08", 1, 8, 6),
            ),
        ),
        "the sizes behind the member 'a.py' are not those in the directory",
    ),
    "encrypted": (zip_of(*GOOD, M(name="a.py", flags=0x801)), "is encrypted"),
    "encrypted-strongly": (zip_of(*GOOD, M(name="a.py", flags=0x840)), "is encrypted"),
    "encrypted-aes": (zip_of(*GOOD, M(name="a.py", method=99)), "is encrypted"),
    "patched": (zip_of(*GOOD, M(name="a.py", flags=0x820)), "has unknown flags (0x0820)"),
    "bzip2": (zip_of(*GOOD, M(name="a.py", method=12)), "is compressed with bzip2"),
    "lzma": (zip_of(*GOOD, M(name="a.py", method=14)), "is compressed with lzma"),
    "method-unknown": (zip_of(*GOOD, M(name="a.py", method=77)), "is compressed with method 77"),
    "crc": (zip_of(*GOOD, M(name="a.py", crc=7)), BROKEN),
    "crc-deflated": (zip_of(*GOOD, M(name="a.py", method=8, crc=7)), BROKEN),
    "size-too-large": (zip_of(*GOOD, M(name="a.py", method=8, size=7)), BROKEN),
    "size-too-small": (zip_of(*GOOD, M(name="a.py", method=8, size=5)), BROKEN),
    "sizes-differ": (zip_of(*GOOD, M(name="a.py", size=7)), "is stored, but its two sizes differ (6 and 7 bytes)"),
    "deflate-garbage": (zip_of(*GOOD, M(name="a.py", method=8, body=b"\xff" * 9)), BROKEN),
    "deflate-tail": (
        zip_of(*GOOD, M(name="a.py", method=8, body=zlib.compress(b"x = 1\n", 9, -15) + b"hidden")),
        BROKEN,
    ),
    "deflate-unfinished": (
        zip_of(*GOOD, M(name="a.py", method=8, body=zlib.compress(b"x = 1\n", 9, -15)[:-2])),
        BROKEN,
    ),
    "runs-into-directory": (zip_of(*GOOD, M(name="a.py", size=600, compressed=600)), "runs into the zip's directory"),
    "extra-garbled": (zip_of(*GOOD, M(name="a.py", extra=b"\1\0\xff\xff")), EXTRA),
    "extra-tail": (zip_of(*GOOD, M(name="a.py", extra=b"abc")), EXTRA),
    "extra-byte-too-many": (zip_of(*GOOD, M(name="a.py", extra=struct.pack("<2H", 9, 0) + b"a")), EXTRA),
    "zip64-twice": (zip_of(*GOOD, M(name="a.py", size=FULL, compressed=FULL, extra=zip64_extra(6, 6) * 2)), EXTRA),
    "zip64-needless": (zip_of(*GOOD, M(name="a.py", extra=zip64_extra(9, 9))), ZIP64),
    "zip64-short": (zip_of(*GOOD, M(name="a.py", size=FULL, compressed=FULL, extra=zip64_extra(6))), ZIP64),
    "zip64-empty": (zip_of(*GOOD, M(name="a.py", extra=zip64_extra())), ZIP64),
    "zip64-long": (zip_of(*GOOD, M(name="a.py", size=FULL, compressed=FULL, extra=zip64_extra(6, 6, 0))), ZIP64),
    "zip64-no-numbers": (
        zip_of(*GOOD, M(name="a.py", size=FULL, compressed=FULL, extra=struct.pack("<2H2QI", 1, 20, 6, 6, 0))),
        ZIP64,
    ),
    "zip64-size-lies": (
        zip_of(*GOOD, M(name="a.py", size=FULL, compressed=FULL, extra=zip64_extra(1 << 40, 1 << 40))),
        "the members have",
    ),
    "zip64-size-lies-a-little": (
        zip_of(*GOOD, M(name="a.py", size=FULL, compressed=FULL, extra=zip64_extra(1 << 25, 1 << 25))),
        "runs into the zip's directory",
    ),
    "zip64-end-elsewhere": (end64(offset=0), "the zip64 locator does not point at the record before it"),
    "zip64-end-negative": (end64(offset=1 << 63), "the zip64 locator does not point at the record before it"),
    "zip64-end-magic": (
        end64(magic=b"PK\6\5"),
        "the zip64 end record is invalid, or the zip is split over several files",
    ),
    "zip64-end-length": (
        end64(length=1 << 60),
        "the zip64 end record is invalid, or the zip is split over several files",
    ),
    "zip64-end-entries": (end64(entries=1 << 60), "the zip has 1152921504606846976 members"),
    "zip64-end-size": (end64(size=1 << 60), "the zip's directory has 1152921504606846976 bytes"),
    "zip64-end-offset": (end64(start=1 << 60), "the zip's end record points to a wrong place for its directory"),
    "zip64-end-disagrees": (end64(full=(3, FULL, FULL)), "the zip64 end record and the plain one disagree"),
    "split": (zip_of(*GOOD, disk=1), "the zip is split over several files"),
    "split-member": (zip_of(*GOOD, M(name="a.py", central={"disk": 1})), "is in another part of a split zip"),
    "directory-late": (
        zip_of(*GOOD, offset=DIRECTORY + 1),
        "the zip's end record points to a wrong place for its directory",
    ),
    "directory-elsewhere": (
        zip_of(*GOOD, offset=1 << 31),
        "the zip's end record points to a wrong place for its directory",
    ),
    "directory-garbled": (
        zip_of(*GOOD, M(name="a.py", central={"magic": b"PK\1\3"})),
        "the zip's directory is shorter than its number of members, or garbled",
    ),
    "empty-zip": (zip_of(), "the archive has no MAR-INF/MANIFEST.json"),
    "empty-file": (b"", "not a zip file"),
    "not-a-zip": (b"hello, world\n" * 100, "not a zip file"),
}


@pytest.mark.parametrize("case", CASES)
def test_hostile_zips_are_refused_before_anything_is_written(tmp_path, case):
    data, sentence = CASES[case]
    path = tmp_path / "bad.mar"
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught, open_archive(path, cache=Cache(tmp_path / "cache")) as archive:
        archive.materialize()
    assert sentence in caught.value.what
    assert caught.value.what.isprintable()
    assert caught.value.where.startswith(str(path))
    assert caught.value.exit_code is ExitCode.ARCHIVE
    assert list((tmp_path / "cache").rglob("*")) == []


def test_the_same_members_told_truly_are_taken(tmp_path):
    path = tmp_path / "good.mar"
    descriptor = DESCRIPTOR.pack(b"PK\7\x08", zlib.crc32(b"x = 1\n"), 8, 6)
    streamed = M(name="s.py", method=8, flags=0x808, local={"crc": 0, "size": 0, "compressed": 0}, after=descriptor)
    wide = M(name="w.py", size=FULL, compressed=FULL, extra=zip64_extra(6, 6))
    padded = M(name="p.py", extra=struct.pack("<2HB", 9, 1, 1) + bytes(11))
    members = (*GOOD, streamed, wide, padded, M(name="d/", data=b"", mode=stat.S_IFDIR))
    path.write_bytes(zip_of(*members, comment=b"a comment"))
    with open_archive(path, cache=Cache(tmp_path / "cache")) as archive:
        assert (archive.materialize() / "s.py").read_bytes() == b"x = 1\n"
        assert (archive.materialize() / "w.py").read_bytes() == b"x = 1\n"
    path.write_bytes(end64())
    with open_archive(path, cache=Cache(tmp_path / "cache")) as archive:
        assert list(archive.entries) == ["h.py", "MAR-INF/MANIFEST.json"]


@pytest.mark.parametrize("length", [1, 0xFFFF])
def test_a_comment_may_be_as_long_as_it_gets(tmp_path, length):
    path = tmp_path / "m.mar"
    path.write_bytes(zip_of(*GOOD, M(name="w.pt", data=bytes(100_000)), comment=b"c" * length))
    with open_archive(path) as archive:
        assert archive.open("w.pt").read() == bytes(100_000)


def test_needlessly_wide_sizes_behind_the_data_open_but_are_told(tmp_path):
    """The server's reader takes the wide record for a narrow one, and finds other sizes than it read."""
    path = tmp_path / "streamed.mar"
    wide = struct.pack("<4sI2Q", b"PK\7\x08", zlib.crc32(b"x = 1\n"), 8, 6)
    told = {"crc": 0, "size": FULL, "compressed": FULL, "extra": zip64_extra(0, 0)}
    path.write_bytes(zip_of(*GOOD, M(name="s.py", method=8, flags=0x808, local=told, after=wide)))
    with open_archive(path) as archive:
        assert [finding.code for finding in archive.server_findings] == ["zip64-streamed"]
        assert archive.open("s.py").read() == b"x = 1\n"


def test_an_archive_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "bad.mar"
    whole = zip_of(*GOOD, M(name="w.pt", data=bytes(range(256)) * 40))
    for tenth in range(10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        with pytest.raises(ArchiveError) as caught:
            open_archive(path)
        assert (caught.value.code == "not-an-archive") == (tenth == 0)
    path.write_bytes(whole[:-1])
    with pytest.raises(ArchiveError):
        open_archive(path)


def test_limits_can_be_raised(tmp_path):
    path = tmp_path / "big.mar"
    path.write_bytes(zip_of(*GOOD, BOMB))
    with open_archive(path, limits=Limits(ratio=2000)) as archive:
        assert archive.entries["bomb"].size == len(BOMB.data)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (Limits(members=2), "the zip has 3 members; the maximum is 2"),
        (Limits(total=70), "bytes together; the maximum is 70"),
    ],
)
def test_limits_can_be_lowered(tmp_path, limits, sentence):
    path = tmp_path / "big.mar"
    path.write_bytes(zip_of(*GOOD, M(name="x.py")))
    with pytest.raises(ArchiveError, match=sentence):
        open_archive(path, limits=limits)


def test_what_is_at_a_limit_is_taken(tmp_path):
    path = tmp_path / "m.mar"
    members = (*GOOD, M(name="x.py", data=b"x" * 200, method=8))
    packed, total = len(members[2].packed()), 6 + len(MANIFEST) + 200
    path.write_bytes(zip_of(*members))
    lowest = Limits(members=3, total=total, ratio=-(-200 // packed), allowance=0)
    with open_archive(path, limits=lowest) as archive:
        assert archive.open("x.py").read() == b"x" * 200
    for limits in (replaced(lowest, members=2), replaced(lowest, total=total - 1), replaced(lowest, ratio=2)):
        with pytest.raises(ArchiveError):
            open_archive(path, limits=limits)


@pytest.mark.parametrize(
    ("size", "compressed", "is_too_much"),
    [(10, 0, False), (11, 5, True), (12, 6, False), (13, 6, True), (13, 7, False)],
)
def test_what_expands_too_much(size, compressed, is_too_much):
    assert Limits(ratio=2, allowance=10).expands_too_much(size, compressed) is is_too_much
