import errno
import gzip
import io
import json
import os
import random
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from refusals import has_code

from marpack.archive import bytesource
from marpack.archive.bytesource import LocalFile
from marpack.archive.cache import Cache
from marpack.archive.protocol import ArchiveForm, Limits
from marpack.archive.reader import open_archive
from marpack.cli.main import main
from marpack.errors import ArchiveError, ExitCode
from marpack.inspection.inspect import inspect

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}}).encode()
FILES = {"h.py": b"x = 1\n", "big.bin": os.urandom(1_500_000), "a/Größe.txt": b"1", "MAR-INF/MANIFEST.json": MANIFEST}
LONG = "/".join(["long-step" * 5] * 5) + "/x.txt"


def tar(members, *, root="m/", form=tarfile.PAX_FORMAT, level=1):
    """Return a .tar.gz: a dict of names and bytes, or a list of (TarInfo, bytes)."""
    out = io.BytesIO()
    items = (
        [(info(root + name, data), data) for name, data in members.items()] if isinstance(members, dict) else members
    )
    with tarfile.open(fileobj=out, mode="w:gz", format=form, compresslevel=level) as archive:
        for header, data in items:
            archive.addfile(header, io.BytesIO(data))
    return out.getvalue()


def info(name, data=b"", **fields):
    header = tarfile.TarInfo(name)
    header.size = len(data)
    for key, value in fields.items():
        setattr(header, key, value)
    return header


@pytest.fixture
def opened(tmp_path):
    def opened(data, name="m.tar.gz", **options):
        path = tmp_path / name
        path.write_bytes(data)
        return open_archive(path, cache=Cache(tmp_path / "cache"), **options)

    return opened


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_what_went_in_comes_out(opened, form):
    members = {**FILES, LONG: b"far away"} if form != tarfile.USTAR_FORMAT else {**FILES, LONG[-150:].lstrip("/"): b"2"}
    with opened(tar(members, form=form)) as archive:
        assert archive.form is ArchiveForm.TGZ
        assert archive.server_findings == ()
        assert archive.manifest.model.name == "m"
        assert list(archive.entries) == list(members)
        for name, data in members.items():
            with archive.open(name) as file:
                file.seek(-1, os.SEEK_END)
                assert file.read() == data[-1:]
                file.seek(0)
                assert file.read() == data
        folder = archive.materialize()
        assert {name: (folder / name).read_bytes() for name in members} == members


ROOTS = [
    ("m/", []),
    ("./", []),  # what `tar -C folder .` makes; the server drops the "."
    ("", ["tgz-no-root-folder"]),
    ("./m/", ["tgz-no-root-folder"]),
]


@pytest.mark.parametrize(("root", "codes"), ROOTS)
def test_with_and_without_a_root_folder(opened, root, codes):
    members = [(info(root.rstrip("/") or "a", type=tarfile.DIRTYPE), b"")]
    members += [(info(root + name, data), data) for name, data in FILES.items()]
    with opened(tar(members)) as archive:
        assert [finding.code for finding in archive.server_findings] == codes
        assert list(archive.entries) == list(FILES)
        assert (archive.materialize() / "h.py").read_bytes() == FILES["h.py"]
        assert sorted(path.name for path in archive.materialize().iterdir()) == ["MAR-INF", "a", "big.bin", "h.py"]


def test_several_roots_are_one_for_the_server(opened):
    members = [(info(f"r{n}/{name}", data), data) for n, (name, data) in enumerate(FILES.items())]
    with opened(tar(members)) as archive:
        assert list(archive.entries) == list(FILES)


def test_a_tgz_named_mar_opens_but_is_told(opened):
    with opened(tar(FILES), "m.mar") as archive:
        assert [finding.code for finding in archive.server_findings] == ["archive-suffix"]


def test_the_second_time_nothing_is_inflated(opened, tmp_path):
    data = tar(FILES, root="")
    with opened(data) as archive:
        first = archive.materialize()
        assert archive.materialize() == first
    with open_archive(tmp_path / "m.tar.gz", cache=Cache(tmp_path / "cache")) as archive:
        assert archive.manifest.model.name == "m"
        assert [finding.code for finding in archive.server_findings] == ["tgz-no-root-folder"]
        assert archive.materialize() == first
        assert "_contents" not in vars(archive)


@pytest.mark.parametrize("again", [False, True])
def test_what_whoever_runs_there_removes_is_extracted_again(opened, again):
    data = tar(FILES)
    for _ in range(1 + again):
        with opened(data) as archive:
            shutil.rmtree(archive.materialize())
            assert {file.name for file in archive.materialize().iterdir()} == {name.split("/")[0] for name in FILES}


def raw(*blocks):
    """Return a .tar.gz of blocks as they are."""
    return gzip.compress(b"".join(blocks), 1)


def header(name=b"m/x.py", size=b"00000000006\0", kind=b"0", magic=b"ustar\x0000", prefix=b"", checksum=None):
    block = name.ljust(100, b"\0") + b"0000644\0" * 3 + size.ljust(12, b"\0") + b"0" * 11 + b"\0" + b" " * 8
    block = (block + kind + bytes(100) + magic + bytes(80) + prefix).ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % (sum(block) if checksum is None else checksum) + block[156:]


def member(name=b"m/x.py", data=b"x = 1\n", **fields):
    return header(name, b"%011o\0" % len(data), **fields) + data + bytes(-len(data) % 512)


def pax(*records, kind=b"x"):
    """Return an extended header; each record of 6 to 95 bytes, so that its length has two digits."""
    text = b"".join(b"%d %s\n" % (len(record) + 4, record) for record in records)
    return member(b"pax", text, kind=kind)


END = bytes(1024)
GOOD = member(b"m/h.py") + member(b"m/MAR-INF/MANIFEST.json", MANIFEST)

CASES = {
    "dot-dot": (tar([(info("m/../../x", b"x"), b"x")]), "contains '.' or '..'"),
    "absolute": (tar([(info("/m/x", b"x"), b"x")]), "has an absolute path"),
    "pax-nul": (raw(pax(b"path=m/x.py\0.txt"), member(), END), "has a control or invisible character in its name"),
    "not-utf8": (raw(member(b"m/\xff"), END), "has a name that is not UTF-8"),
    "symlink": (tar([(info("m/l", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b"")]), "is a symbolic link"),
    "symlink-long": (
        tar([(info("m/l", type=tarfile.SYMTYPE, linkname="x" * 300), b"")], form=tarfile.GNU_FORMAT),
        "is a symbolic link",
    ),
    "hard-link": (tar([(info("m/l", type=tarfile.LNKTYPE, linkname="m/h.py"), b"")]), "is a hard link"),
    "fifo": (tar([(info("m/f", type=tarfile.FIFOTYPE), b"")]), "is a FIFO"),
    "character-device": (tar([(info("m/d", type=tarfile.CHRTYPE), b"")]), "is a device"),
    "block-device": (tar([(info("m/d", type=tarfile.BLKTYPE), b"")]), "is a device"),
    "unknown-type": (raw(member(kind=b"V"), END), "is of the unknown type b'V'"),
    "sparse-gnu": (raw(member(kind=b"S"), END), "is a sparse file"),
    "sparse-pax": (raw(pax(b"GNU.sparse.major=1"), member(), END), "is a sparse file"),
    "sparse-global": (
        raw(pax(b"GNU.sparse.size=9", kind=b"g"), GOOD, END),
        "a global header of the tar sets 'GNU.sparse.size' for all members",
    ),
    "path-global": (
        raw(pax(b"path=m/x.py", kind=b"g"), GOOD, END),
        "a global header of the tar sets 'path' for all members",
    ),
    "pax-twice": (
        raw(pax(b"path=m/x.py", b"path=m/y.py"), member(), END),
        "the extended header 'pax' gives 'path' twice",
    ),
    "pax-garbled": (
        raw(member(b"pax", b"99 path=x\n", kind=b"x"), member(), END),
        "the extended header 'pax' is garbled",
    ),
    "pax-no-length": (
        raw(member(b"pax", b"path=x\n", kind=b"x"), member(), END),
        "the extended header 'pax' is garbled",
    ),
    "pax-size": (raw(pax(b"size=-1000"), member(), END), "has no readable size"),
    "pax-size-lies": (raw(pax(b"size=999999"), member(), END), "ends in the middle of a member"),
    "pax-huge": (
        raw(header(b"pax", b"77777777777\0", kind=b"x")),
        "the extended header 'pax' has more than 65536 bytes",
    ),
    "long-name-huge": (
        raw(header(b"long", b"77777777777\0", kind=b"L")),
        "the extended header 'long' has more than 65536 bytes",
    ),
    "name-alone": (raw(GOOD, pax(b"path=m/x.py"), END), "the tar ends with a header that has no member"),
    "folder-with-data": (raw(member(b"m/d/", kind=b"5"), END), "is a folder with 6 bytes of data"),
    "size-unreadable": (raw(header(size=b"9zz"), END), "a header of the tar cannot be read"),
    "size-huge": (
        raw(header(size=b"\x80" + b"\0" * 4 + b"\xff" * 7), END),
        "the members have more than 274877906944 bytes",
    ),
    "size-lies": (raw(header(size=b"00000100000\0"), END), "ends in the middle of a member"),
    "checksum": (raw(header(checksum=7), END), "a header of the tar cannot be read"),
    "not-a-tar": (raw(b"hello" * 1000), "a header of the tar cannot be read"),
    "empty": (raw(b""), "the tar has no end: it is truncated"),
    "no-end": (raw(GOOD), "the tar has no end: it is truncated"),
    "data-after-end": (raw(GOOD, END, member()), "there are bytes after the archive's last record"),
    "data-after-gzip": (raw(GOOD, END) + b"x", "there are bytes after the end of the gzip stream"),
    "second-gzip": (raw(GOOD) + raw(END), "bytes after the end of the gzip stream"),
    "size-negative": (raw(header(size=b"\xff" * 12), END), "has no readable size"),
    "size-signed": (raw(header(size=b"-0000001000\0"), END), "has no readable size"),
    "extended-size-lies": (raw(GOOD, header(b"pax", b"00000001000\0", kind=b"x")), "ends in the middle of a member"),
    "twice": (raw(GOOD, member(b"m/h.py"), END), "is repeated"),
    "twice-by-roots": (raw(GOOD, member(b"n/h.py"), END), "is repeated"),
    "manifest-twice": (raw(GOOD, member(b"n/MAR-INF/MANIFEST.json"), END), "is repeated"),
    "case": (raw(GOOD, member(b"m/H.py"), END), "differs from 'm/h.py' only in case or Unicode form"),
    "file-for-folder": (
        raw(GOOD, member(b"m/a"), member(b"m/a/b"), END),
        "is a file where another member needs a folder",
    ),
    "file-for-root": (raw(member(b"m"), GOOD, END), "is a file where another member needs a folder"),
    "gzip-bomb": (raw(header(b"m/bomb", b"%011o\0" % (80 << 20)), bytes(80 << 20)), "more than 100 times larger"),
    "no-manifest": (raw(member(b"m/h.py"), END), "the archive has no MAR-INF/MANIFEST.json"),
}


@pytest.mark.parametrize("case", CASES)
def test_hostile_tars_are_refused_before_anything_is_written(opened, tmp_path, case):
    data, sentence = CASES[case]
    with opened(data) as archive, pytest.raises(ArchiveError) as caught:
        archive.materialize()
    assert sentence in caught.value.what
    assert caught.value.what.isprintable()
    assert caught.value.where.startswith(str(tmp_path / "m.tar.gz"))
    assert caught.value.exit_code is ExitCode.ARCHIVE
    assert not (tmp_path / "cache").exists()


def test_an_archive_cut_anywhere_is_refused(opened):
    whole = tar(FILES)
    for tenth in range(1, 10):
        with opened(whole[: len(whole) * tenth // 10]) as archive, pytest.raises(ArchiveError, match="is truncated"):
            archive.materialize()


@pytest.mark.parametrize("place", [0, 1, 2, 3, -8, -4, -1])
def test_wrong_gzip_headers_and_sums_are_found(opened, place):
    data = bytearray(tar(FILES))
    data[place] ^= 0xFF
    with pytest.raises(ArchiveError), opened(bytes(data)) as archive:
        archive.materialize()


def test_limits_can_be_lowered(opened):
    data = tar(FILES)
    with opened(data, limits=Limits(members=3)) as archive, pytest.raises(ArchiveError, match="more than 3 members"):
        archive.materialize()
    with (
        opened(data, limits=Limits(total=1_000_000)) as archive,
        pytest.raises(ArchiveError, match="more than 1000000"),
    ):
        archive.materialize()


def test_what_is_at_a_limit_is_taken(opened):
    data, total = tar(FILES), sum(map(len, FILES.values()))
    with opened(data, limits=Limits(members=4, total=total)) as archive:
        assert list(archive.entries) == list(FILES)
    with (
        opened(data, limits=Limits(total=total - 1)) as archive,
        pytest.raises(ArchiveError, check=has_code("limit-exceeded", total - 1, "--max-size")),
    ):
        archive.materialize()


def comment(size):
    """Return an extended header of so many bytes."""
    start = b"%d comment=" % size
    return member(b"pax", start.ljust(size - 1, b"x") + b"\n", kind=b"x")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (raw(comment(1 << 16), GOOD, END), None),
        (raw(comment((1 << 16) + 1), GOOD, END), "has more than 65536 bytes"),
        (raw(GOOD, END) + bytes(300_000), None),
        (raw(GOOD, END) + bytes(300_000) + b"x", "bytes after the end of the gzip stream"),
        (raw(GOOD, END) + bytes(600_000), "bytes after the end of the gzip stream"),
        (raw(GOOD, END, bytes(1 << 21)), None),
        (raw(GOOD, END, bytes(1 << 21), b"x"), "bytes after the archive's last record"),
        (raw(GOOD, pax(b"size=6", b"path=m/y.py"), member(b"m/x.py"), END), None),
        (raw(GOOD, pax(b"size=2"), header(size=b"00000000006\0"), b"ok".ljust(512, b"\0"), END), None),
        (raw(GOOD, member(b"long", b"m/" + b"y" * 120 + b"\0", kind=b"L"), member(b"m/x"), END), None),
        (raw(GOOD, member(b"long", b"m/z.py\0", kind=b"L"), END), "ends with a header that has no member"),
        (raw(GOOD, header(b"m/d/", size=b"0", kind=b"0"), END), None),
        (raw(GOOD, header(b"m/x", size=b"\x80" + bytes(10) + b"\1"), b"x".ljust(512, b"\0"), END), None),
    ],
)
def test_where_a_tar_is_still_one(opened, data, sentence):
    with opened(data) as archive:
        if sentence is None:
            assert list(archive.entries)[:2] == ["h.py", "MAR-INF/MANIFEST.json"]
            assert all(archive.open(name).read() for name in archive.entries)
        else:
            with pytest.raises(ArchiveError, match=sentence):
                archive.materialize()


def test_plain_headers_of_old_tars_are_read(opened):
    old = member(b"m/h.py", kind=b"\0", magic=bytes(8)) + member(b"MAR-INF/MANIFEST.json", MANIFEST, prefix=b"m")
    with opened(raw(pax(b"comment=abc", kind=b"g"), old, END)) as archive:
        assert list(archive.entries) == ["h.py", "MAR-INF/MANIFEST.json"]


def test_an_archive_that_is_replaced_meanwhile_stays_as_it_was_read(opened, tmp_path):
    with opened(tar(FILES)) as archive:
        assert archive.manifest.model.name == "m"
        (tmp_path / "m.tar.gz").write_bytes(tar({**FILES, "new.py": b""}))
        folder = archive.materialize()
        assert {name: (folder / name).read_bytes() for name in FILES} == FILES
        assert not (folder / "new.py").exists()


def test_an_archive_is_decompressed_once(opened, monkeypatch):
    members = {f"{number}.bin": random.Random(number).randbytes(400_000) for number in range(60)}
    data = tar({"h.py": b"", "MAR-INF/MANIFEST.json": MANIFEST, **members}, level=0)
    read = []
    read_at = LocalFile.read_at
    monkeypatch.setattr(LocalFile, "read_at", lambda file, at, count: read.append(count) or read_at(file, at, count))
    with opened(data) as archive:
        assert inspect(archive, verify=True).findings == ()
        assert all(archive.open(name).read() == content for name, content in members.items())
        archive.materialize()
    assert len(data) <= sum(read) < len(data) + 100_000  # bytes; and a few to recognize the form


def test_an_archive_that_cannot_be_read_is_not_decompressed_again(opened, monkeypatch):
    data = tar({"h.py": os.urandom(300_000), "../x": b"", "MAR-INF/MANIFEST.json": MANIFEST})
    read = []
    read_at = LocalFile.read_at
    monkeypatch.setattr(LocalFile, "read_at", lambda file, at, count: read.append(count) or read_at(file, at, count))
    with opened(data) as archive:
        for _ in range(3):
            with pytest.raises(ArchiveError):
                _ = archive.entries
    assert sum(read) < 1.5 * len(data)


def temporary_files():
    links = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return [link for link in links if "marpack-" in link or "(deleted)" in link]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_much_is_kept_in_a_file_without_a_name_until_the_archive_is_closed(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(bytesource, "_IN_MEMORY", 1 << 20)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = temporary_files()
    with opened(tar(FILES)) as archive:
        assert {name: archive.open(name).read() for name in FILES} == FILES
        with archive.open("big.bin") as one, archive.open("big.bin") as other:  # each has a place of its own
            one.seek(1000)
            assert other.read(10) == FILES["big.bin"][:10]
            assert one.read(10) == FILES["big.bin"][1000:1010]
        assert list(folder.iterdir()) == []
        assert len(temporary_files()) == len(before) + 1
        (tmp_path / "out").mkdir()
        archive.extract(tmp_path / "out")
        assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == FILES
    assert temporary_files() == before
    with opened(tar({**FILES, "../x": b""}), "wrong.tar.gz") as archive:
        with pytest.raises(ArchiveError):
            _ = archive.entries
        assert temporary_files() == before


@pytest.mark.parametrize("form", ["tar.gz", "mar"])
def test_what_does_not_fit_into_memory_or_on_the_disk_is_one_message(opened, monkeypatch, capsys, tmp_path, form):
    monkeypatch.setattr(bytesource, "_IN_MEMORY", 1 << 20)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Path("/dev/full").open("r+b", buffering=0))  # noqa: SIM115
    if form == "mar":
        with zipfile.ZipFile(tmp_path / "m.mar", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {**FILES, "bigger.pkl": b"\x80\x02" + b"N0" * 3_000_000 + b"N."}.items():
                archive.writestr(name, content)
    else:
        opened(tar(FILES)).close()
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(tmp_path / f"m.{form}")])
    assert ended.value.code == ExitCode.ARCHIVE
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count(os.strerror(errno.ENOSPC)) == 1
