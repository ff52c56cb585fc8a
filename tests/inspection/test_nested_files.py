"""What wraps another file: what comes out, and what is said where it cannot be followed to its end."""

import bz2
import copy
import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from inspection.containers import tarred, written

from marpack.inspection import nested_files
from marpack.inspection.nested_files import HEAD, WrappingError, unwrap
from marpack.inspection.pickles import Unscanned

TEXT = b"the inner file, " * 100
LIMIT = 1 << 20
NOISE = random.Random(5).randbytes(5000)


def unwrapped(content: bytes, limit: int = LIMIT) -> tuple[list[tuple[str, bytes, bool]], str | None]:
    """Return the inner files, and what was wrong."""
    found = []
    try:
        for name, file, unpickled, _ in unwrap(io.BytesIO(content), content[:HEAD], limit=limit):
            file.seek(0)
            found.append((name, file.read(), unpickled))
    except WrappingError as error:
        return found, str(error)
    return found, None


def deflated(data: bytes, window: int = 15) -> bytes:
    engine = zlib.compressobj(wbits=window)
    return engine.compress(data) + engine.flush()


def alone(data: bytes, **options: int) -> bytes:
    return lzma.compress(data, lzma.FORMAT_ALONE, filters=[{"id": lzma.FILTER_LZMA1, **options}])


def with_dictionary(data: bytes, size: int) -> bytes:
    """Return .lzma data that asks for a dictionary of `size` bytes, which compressing would have to allocate."""
    return data[:1] + size.to_bytes(4, "little") + data[5:]


COMPRESSED = {
    "gzip": gzip.compress(TEXT),
    "two gzips": gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:]),
    "gzip, padded": gzip.compress(TEXT) + bytes(100),
    "two gzips, far apart": gzip.compress(TEXT[:50]) + bytes(500_000) + gzip.compress(TEXT[50:]),
    "bz2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "two xz": lzma.compress(TEXT[:50]) + lzma.compress(TEXT[50:]),
    **{f"zlib, window {window}": deflated(TEXT, window) for window in range(9, 16)},
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_is_compressed_is_expanded(name: str) -> None:
    found, problem = unwrapped(COMPRESSED[name])
    assert [data for _, data, _ in found] == [TEXT]
    assert problem is None


LZMA = {
    "plain": alone(TEXT),
    "short": alone(b"cposix\nmkdir\n."),
    "of other properties": alone(TEXT, lc=0, lp=2, pb=0, dict_size=1 << 16),
    "a dictionary larger than is needed": with_dictionary(alone(TEXT), 3 << 28),
    "behind few zeros": bytes(18) + alone(TEXT),
    "behind many zeros": bytes(200_000) + alone(TEXT),
    "behind an empty stream and zeros": b"0" + bytes(100_000) + alone(TEXT),
    "cut off": alone(NOISE)[:-20],
    "damaged early": alone(b"N" * 10_000)[:40] + b"\xff" * 400,
}


@pytest.mark.parametrize("name", LZMA)
def test_lzma_without_a_container_is_not_scanned(name: str) -> None:
    found, problem = unwrapped(LZMA[name])
    assert found == []
    assert "LZMA" in str(problem)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, alone])
def test_what_is_cut_off_or_damaged_is_not_passed_over(compress: Callable[[bytes], bytes]) -> None:
    content = bytearray(compress(NOISE))
    assert unwrapped(bytes(content[:-20]))[1] is not None
    content[3000:3040] = bytes(40)
    assert unwrapped(bytes(content))[1] is not None


def test_a_wrong_sum_is_damage_and_hides_nothing_before_it() -> None:
    content = bytearray(deflated(NOISE))
    content[-1] ^= 1
    found, problem = unwrapped(bytes(content))
    assert "damaged" in str(problem)
    assert NOISE.startswith(found[0][1])


@pytest.mark.parametrize(
    "content", [b"(S) (S) (S) a text", b"x\x9c and no more", b"BZh is a word", b"]" + bytes(40), b"\x5d"]
)
def test_what_only_looks_compressed_comes_to_nothing(content: bytes) -> None:
    assert unwrapped(content) == ([], None)


def test_a_compressed_file_that_is_short_and_damaged_is_followed_to_that_byte() -> None:
    content = deflated(b"before" * 3)[:-4]  # without its sum, as one that never ends
    assert unwrapped(content + b"\xff" * 4)[0][0][1] == b"before" * 3


def test_what_expands_to_more_than_is_taken_is_said() -> None:
    found, problem = unwrapped(gzip.compress(bytes(LIMIT + 1)))
    assert len(found) == 1
    assert "1,048,576 bytes" in str(problem)
    assert unwrapped(gzip.compress(bytes(LIMIT)))[1] is None
    nothing = gzip.compress(b"", mtime=0)
    assert unwrapped(nothing * 10_000)[1] is None
    assert "10,000 compressed" in str(unwrapped(nothing * 10_001)[1])
    assert unwrapped(gzip.compress(b"a"), 0)[1] is not None


def test_a_format_that_is_not_read_is_named() -> None:
    assert "7z" in str(unwrapped(b"7z\xbc\xaf\x27\x1c" + bytes(50))[1])
    for start in (
        "502a4d18",
        "5f2a4d18",
        "04224d18",
        "02214c18",
        "4c5a495001",
        "ff060000734e61507059",
        "0000000050544d46",
    ):
        assert unwrapped(bytes.fromhex(start) + bytes(50))[1] is not None


MEMBERS = {"a": b"1", "b/c": b"22"}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_members_of_a_tar_are_given(form: int) -> None:
    found, problem = unwrapped(tarred(MEMBERS, form))
    assert ({name: data for name, data, _ in found}, problem) == (MEMBERS, None)


def test_a_tar_without_a_magic_word_is_one_by_its_checksum() -> None:
    content = bytearray(tarred({"a": TEXT}, tarfile.USTAR_FORMAT))
    content[257:265] = bytes(8)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    assert unwrapped(bytes(content))[0] == [("a", TEXT, False)]
    content[0] ^= 1
    assert unwrapped(bytes(content)) == ([], None)


@pytest.mark.parametrize(("kind", "names"), [(b"7", ["a"]), (b"Z", ["a"]), (b"2", []), (b"5", [])])
def test_a_tars_members_of_unknown_kinds_are_files_as_tarfile_has_it(kind: bytes, names: list[str]) -> None:
    assert [name for name, _, _ in unwrapped(tarred({"a": b""}, type=kind))[0]] == names


def test_a_tar_that_cannot_be_followed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    content = tarred(MEMBERS)
    broken = bytearray(content)
    broken[1024] ^= 1
    assert unwrapped(b"x" + content[1:])[1] is not None  # it says that it is one, and its checksum is wrong
    assert "sparse" in str(
        unwrapped(tarred({"a": b""}, pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "1"}))[1]
    )
    assert "extended header" in str(unwrapped(tarred({"a": b""}, pax_headers={"comment": "c" * (1 << 20)}))[1])
    torch = {"sys_info": b"N.", "pickle": b"N.", "storages": b"N.", "tensors": b"N."}
    assert "torch" in str(unwrapped(tarred(torch))[1])
    monkeypatch.setattr(nested_files, "_MAX_MEMBERS", 1)
    assert "over 1 members" in str(unwrapped(content)[1])


def saved(array: np.ndarray) -> bytes:
    return written(np.save, array, allow_pickle=True)


PLAIN = [
    np.zeros(3), np.zeros((2, 3), ">i2"), np.array(["ab", "c"]), np.array([b"abc"]), np.array(True),
    np.zeros(2, "i4,f8"), np.zeros(2, [("a", "u1"), ("b", "f4", (2, 2))]), np.zeros(2, "M8[s]"), np.zeros(0),
    np.zeros(2, "V5"),
]  # fmt: skip


@pytest.mark.parametrize("array", PLAIN, ids=lambda array: array.dtype.str)
def test_numbers_of_numpys_are_passed_over_by_their_length(array: np.ndarray) -> None:
    assert unwrapped(saved(array)) == ([], None)
    assert unwrapped(saved(array) + b"rest") == ([("rest", b"rest", False)], None)
    assert unwrapped(saved(array) + saved(array)) == ([], None)
    if array.nbytes:
        found, problem = unwrapped(saved(array)[:-1])
        assert found == []
        assert problem is not None


def test_objects_of_numpys_are_a_pickle() -> None:
    content = saved(np.array([{}], dtype=object))
    for data in (saved(PLAIN[0]) + content, content):
        (found,), problem = unwrapped(data)
        assert (found[0], found[2], problem) == ("objects", True, None)
        assert content.endswith(found[1])


def npy(header: bytes, rest: bytes = b"pickle") -> bytes:
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + rest


@pytest.mark.parametrize(
    "descr", ["'O'", "'|O'", "'O8'", r"'\x4f'", "[('a', 'O')]", "[('a', 'O', (2,))]", "[('a', '<f8'), ('b', '|O')]"]
)
def test_a_dtype_with_objects_is_followed_by_a_pickle(descr: str) -> None:
    found, problem = unwrapped(npy(b"{'descr': %s, 'fortran_order': False, 'shape': (1,)}" % descr.encode()))
    assert (found, problem) == ([("objects", b"pickle", True)], None)


UNKNOWN_DTYPES = [
    "'object'", "'O,O'", "'f' 'oo'", "('<f8', (2,))", "3", "'i'", "'f'", "'<i'", "'S'", "'V'", "'U'", "'float'",
    "[('a', 'i')]", "[('a', 'V')]", "[('a', [('b', 'f')])]", "[('a', '<f8', -1)]", "[('a', '<f8', (2, -1))]", "[1]",
]  # fmt: skip


@pytest.mark.parametrize("descr", UNKNOWN_DTYPES)
def test_a_dtype_of_unknown_width_is_not_scanned(descr: str) -> None:
    found, problem = unwrapped(npy(b"{'descr': %s, 'fortran_order': False, 'shape': (1,)}" % descr.encode()))
    assert found == []
    assert problem


@pytest.mark.parametrize(
    "shape", ["(-1,)", "(-200,)", "(2, -3)", "(1.5,)", "'a'", "(10**30,)", "(9223372036854775807, 8)"]
)
def test_a_shape_that_is_not_one_ends_the_scan(shape: str) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': %s}" % shape.encode()
    assert unwrapped(npy(header, bytes(1000)) * 3)[1]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zlib.compress])
def test_what_follows_a_compressed_stream_is_another_one_or_not_scanned(compress: Callable[[bytes], bytes]) -> None:
    second = bytearray(compress(TEXT))
    assert unwrapped(compress(TEXT) + bytes(second))[1] is None
    second[-6] ^= 1  # its checksum
    assert unwrapped(compress(TEXT) + bytes(second))[1]
    assert unwrapped(compress(TEXT) + b"trailing bytes")[1]


def test_zeros_are_not_streams_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_files, "_MAX_STREAMS", 2)
    assert unwrapped(bytes(2_000_000)) == ([], None)  # as LZMA, an empty stream every 18 bytes


def test_python_2s_long_numbers_are_numbers() -> None:
    assert unwrapped(npy(b"{'descr': '<i2', 'fortran_order': False, 'shape': (3L,)}")) == ([], None)


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b"{'descr': '<f8'}", b"__import__('os')", b"(" * 300])
def test_a_header_of_numpys_that_cannot_be_read_is_said(header: bytes) -> None:
    found, problem = unwrapped(npy(header))
    assert found == []
    assert "header" in str(problem)


def test_a_header_of_numpys_has_bounds() -> None:
    content = b"\x93NUMPY\3\0" + struct.pack("<I", 1 << 20) + b" " * (1 << 20)
    assert "1,048,576 bytes" in str(unwrapped(content)[1])


@pytest.mark.parametrize("head", [b"ZF0x10", b"ZF0X10", b"ZF10", b"ZF+1F", b"ZF  -0x1"])
def test_joblibs_old_compression_is_not_scanned(head: bytes) -> None:
    assert unwrapped(head.ljust(21) + zlib.compress(TEXT))[1]


def test_text_that_starts_like_joblibs_old_compression_is_text() -> None:
    assert unwrapped(b"ZFS is a file system, and not a number in base 16.\n") == ([], None)


def test_what_follows_the_end_of_a_tar_is_looked_into() -> None:
    found, problem = unwrapped(tarred({"a": b"first"}) + bytes(1024) + TEXT)
    assert ([(name, data) for name, data, _ in found], problem) == ([("a", b"first"), ("rest", TEXT)], None)


def test_members_that_share_their_bytes_are_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("member", bytes(1 << 16))
        for number in range(2000):  # only the directory repeats it
            archive.filelist.append(copy.copy(archive.filelist[0]))
            archive.filelist[-1].filename = f"{number:06}"
    reads = 0

    class Counting(io.BytesIO):
        def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
            nonlocal reads
            count = super().readinto(buffer)
            reads += count
            return count

    monkeypatch.setattr(nested_files, "MAX_EXPANDED", 1 << 20)
    found = list(nested_files.NestedScan().file("a.zip", Counting(out.getvalue())))
    assert [type(part) for part in found] == [Unscanned]
    assert 0 < reads < 100_000_000  # without the limit: 393 MB
