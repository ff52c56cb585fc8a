"""Files around a pickle: compressed, in tars and zips, numpy's and torch's, as their readers open them."""

import base64
import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import joblib
import numpy as np
from inspection.containers import tarred, written, zipped
from inspection.loaders import (
    HELD,
    Called,
    Found,
    Loader,
    Payload,
    expanding,
    first_of,
    from_tar,
    load_npz,
    load_numpy,
    load_numpy_then_pickle,
    load_numpy_twice,
    load_package,
    load_storage,
    load_torch,
    load_zip,
    open_first,
    opened,
    torch_bytes,
    unzipped,
)
from inspection.opcodes import EVIL, MODULE, before
from lazy import torch

PADDED = EVIL + np.random.default_rng(1).bytes(40_000)


def gzipped(data: bytes, flags: int = 0, fields: bytes = b"") -> bytes:
    """Return a gzip whose header has other flags and fields."""
    content = gzip.compress(data)
    return content[:3] + bytes([flags]) + content[4:10] + fields + content[10:]


def stored_then(data: bytes, rest: bytes) -> bytes:
    """Return a raw deflate stream that holds some bytes and breaks off behind them."""
    parts = [data[at : at + 60_000] for at in range(0, len(data), 60_000)]
    return b"".join(b"\0" + struct.pack("<HH", len(part), len(part) ^ 0xFFFF) + part for part in parts) + rest


def lzma_alone(**options: int) -> bytes:
    return lzma.compress(EVIL, lzma.FORMAT_ALONE, filters=[{"id": lzma.FILTER_LZMA1, **options}])


def engine(wbits: int, level: int = 6, zdict: bytes = b"") -> bytes:
    compressor = (
        zlib.compressobj(level, zlib.DEFLATED, wbits, zdict=zdict) if zdict else zlib.compressobj(level, 8, wbits)
    )
    return compressor.compress(EVIL) + compressor.flush()


GZIPS = {
    "plain": gzip.compress(EVIL),
    "level 0": gzip.compress(EVIL, 0),
    "two members": gzip.compress(EVIL[:5]) + gzip.compress(EVIL[5:]),
    "an empty member first": gzip.compress(b"") + gzip.compress(EVIL),
    "zeros behind": gzip.compress(EVIL) + bytes(100),
    "rubbish behind": gzip.compress(PADDED) + b"rubbish",
    "wrong CRC": gzip.compress(PADDED)[:-8] + bytes(8),
    "wrong CRC, short": gzip.compress(EVIL)[:-8] + bytes(8),
    "cut off": gzip.compress(PADDED)[:-9],
    "damage further on": gzip.compress(b"")[:10] + stored_then(PADDED, b"\xff" * 50),
    "a name": gzipped(EVIL, 8, b"model.pkl\0"),
    "a comment": gzipped(EVIL, 16, b"hello\0"),
    "an extra field": gzipped(EVIL, 4, struct.pack("<H", 300) + b"x" * 300),
    "all fields": gzipped(EVIL, 4 | 8 | 16, struct.pack("<H", 4) + b"abcdn\0c\0"),
    "a wrong CRC of its header": gzipped(EVIL, 2, b"\0\0"),
    "flags that are reserved": gzipped(EVIL, 0x20),
    "text": gzipped(EVIL, 1),
    "a long name": gzipped(EVIL, 8, b"n" * 70_000 + b"\0"),
}
WRAPPED: dict[str, tuple[bytes, Loader]] = {
    "bz2": (bz2.compress(EVIL), opened(bz2.open)),
    "bz2, two": (bz2.compress(EVIL[:5], 1) + bz2.compress(EVIL[5:]), opened(bz2.open)),
    "bz2, rubbish behind": (bz2.compress(EVIL) + b"rubbish", opened(bz2.open)),
    "bz2, damage further on": (bz2.compress(EVIL + PADDED * 5, 1)[:-30] + bytes(30), opened(bz2.open)),
    "xz": (lzma.compress(EVIL), opened(lzma.open)),
    **{f"xz, check {check}": (lzma.compress(EVIL, check=check), opened(lzma.open)) for check in (0, 1, 4, 10)},
    "xz, two": (lzma.compress(EVIL[:5]) + lzma.compress(EVIL[5:]), opened(lzma.open)),
    "xz, rubbish behind": (lzma.compress(EVIL) + b"rubbish", opened(lzma.open)),
    "xz, damage further on": (lzma.compress(PADDED)[:-90] + bytes(90), opened(lzma.open)),
    "lzma": (lzma_alone(), opened(lzma.open)),
    "lzma, lc 0": (lzma_alone(lc=0), opened(lzma.open)),
    "lzma, lc 1, lp 2, pb 0": (lzma_alone(lc=1, lp=2, pb=0), opened(lzma.open)),
    "lzma, pb 4": (lzma_alone(pb=4), opened(lzma.open)),
    "lzma, dictionary of 4,096": (lzma_alone(dict_size=4096), opened(lzma.open)),
    "lzma, dictionary of 5,000": (lzma_alone(dict_size=5000), opened(lzma.open)),
    "lzma, dictionary of 100 MB": (lzma_alone(dict_size=100_000_001), opened(lzma.open)),
    **{f"zlib, window {bits}": (engine(bits), expanding(zlib.decompress)) for bits in range(9, 16)},
    **{f"zlib, level {level}": (engine(15, level), expanding(zlib.decompress)) for level in (0, 1, 9)},
    "zlib, small window stored": (engine(12, 0), expanding(zlib.decompress)),
    "zlib with a dictionary": (
        engine(15, 6, b"posix mkdir"),
        expanding(lambda data: zlib.decompressobj(zdict=b"posix mkdir").decompress(data)),
    ),
    "zlib, damage further on": (
        b"\x78\x9c" + stored_then(PADDED, b"\xff" * 50), expanding(lambda data: zlib.decompressobj().decompress(data,
            999))
    ),
    "raw deflate": (engine(-15), expanding(lambda data: zlib.decompress(data, -15))),
    "base64": (base64.b64encode(EVIL), expanding(base64.b64decode)),
    "gzip within bz2 within xz": (
        lzma.compress(bz2.compress(gzip.compress(EVIL))),
        expanding(lambda data: gzip.decompress(bz2.decompress(lzma.decompress(data)))),
    ),
    "zlib within a small zlib": (
        zlib.compress(EVIL, wbits=10), expanding(zlib.decompress)
    ),
}  # fmt: skip


def wrappings() -> Found:
    """Compressed files, and the call in them."""
    for name, content in GZIPS.items():
        yield f"gzip: {name}", Payload(content, "vocab.pkl", opened(gzip.open))
    for name, (content, load) in WRAPPED.items():
        yield name, Payload(content, "vocab.pkl", load)
    for how in ("zlib", "gzip", "bz2", "lzma", "xz"):
        for level in (1, 9):
            title = f"joblib: {how} {level}"
            yield title, Payload(partial(joblib_bytes, Called(), (how, level)), "svm.joblib", joblib.load)
    objects = np.array([Called()], dtype=object)
    yield "joblib: plain", Payload(partial(joblib_bytes, Called(), 0), "svm.joblib", joblib.load)
    title = "joblib: array of objects"
    yield title, Payload(partial(joblib_bytes, [np.zeros(9), objects], 0), "svm.joblib", joblib.load)
    yield "joblib: compressed array", Payload(partial(joblib_bytes, objects, 3), "svm.joblib", joblib.load)
    old = b"ZF" + hex(len(EVIL)).encode().ljust(19) + zlib.compress(EVIL)
    yield "joblib: its first format", Payload(old, "svm.joblib", joblib.load)
    yield "joblib: behind hex", Payload(before(b"I0x10\n"), "svm.joblib", joblib.load)


def joblib_bytes(value: object, compress: object) -> bytes:
    return written(lambda file: joblib.dump(value, file, compress=compress))


def headers_of(content: bytes) -> Iterator[int]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        yield from (member.offset for member in archive)


def rewritten(content: bytes, change: Callable[[bytearray], None]) -> bytes:
    """Return a tar with every header changed, and its checksum set right."""
    data = bytearray(content)
    for at in list(headers_of(content)):
        header = data[at : at + 512]
        change(header)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        data[at : at + 512] = header
    return bytes(data)


def as_v7(content: bytes) -> bytes:
    """Return a tar as Unix's seventh edition wrote it: without a magic word."""

    def change(header: bytearray) -> None:
        header[257:512] = bytes(255)

    return rewritten(content, change)


def as_type(kind: bytes) -> Callable[[bytes], bytes]:
    def change(header: bytearray) -> None:
        header[156:157] = kind

    return lambda content: rewritten(content, change)


def sparse(header: bytearray) -> None:
    """Make it GNU's sparse file: one block of data, at its beginning."""
    size = b"%011o\0" % len(EVIL)
    header[156:157] = b"S"
    header[257:265] = b"ustar  \0"
    header[386:410] = b"%011o\0" % 0 + size
    header[483:495] = size


TARS = {
    "ustar": tarred({"a/b": EVIL}, tarfile.USTAR_FORMAT),
    "pax": tarred({"ü" * 150: EVIL}),
    "gnu, long name": tarred({"n" * 300: EVIL}, tarfile.GNU_FORMAT),
    "V7": as_v7(tarred({"vocab": EVIL}, tarfile.USTAR_FORMAT)),
    "V7, second member": as_v7(tarred({"a": EVIL, "b": EVIL}, tarfile.USTAR_FORMAT)),
    "no magic word for one": tarred({"a": b"N."})[:1024] + as_v7(tarred({"b": EVIL}, tarfile.USTAR_FORMAT)),
    "unknown type": as_type(b"Z")(tarred({"a": EVIL})),
    "contiguous": tarred({"a": EVIL}, type=tarfile.CONTTYPE),
    "of old": tarred({"a": EVIL}, type=tarfile.AREGTYPE),
    "sparse": rewritten(tarred({"a": EVIL}, tarfile.GNU_FORMAT), sparse),
    "size by pax": tarred({"a": EVIL}, pax_headers={"comment": "x"}),
    "cut off": tarred({"a": EVIL})[:1024],
    "gz": gzip.compress(tarred({"a": EVIL})),
    "bz2": bz2.compress(tarred({"a": EVIL})),
    "xz": lzma.compress(tarred({"a": EVIL})),
    "V7, gz": gzip.compress(as_v7(tarred({"a": EVIL}, tarfile.USTAR_FORMAT))),
}
OTHER_TARS: dict[str, tuple[bytes, Loader]] = {
    "gz, damage further on": (
        gzip.compress(b"")[:10] + stored_then(tarred({"a": EVIL}) + PADDED, b"\xff" * 9),
        from_tar(mode="r|gz"),
    ),
}


def tars() -> Found:
    """Tars of every kind that Python's tarfile reads."""
    for name, (content, load) in {**{name: (each, from_tar()) for name, each in TARS.items()}, **OTHER_TARS}.items():
        yield f"tar: {name}", Payload(content, "assets.tar", load)
    for member in ("storages", "tensors", "pickle"):
        yield f"torch's tar, {member}", Payload(legacy_tar(member), "model.pt", load_torch)
        yield f"torch's tar of V7, {member}", Payload(legacy_tar(member, as_v7), "model.pt", load_torch)
        yield f"torch's tar of type Z, {member}", Payload(legacy_tar(member, as_type(b"Z")), "model.pt", load_torch)


def legacy_tar(evil: str, edit: Callable[[bytes], bytes] = lambda content: content) -> bytes:
    """Return what torch 0.1 wrote, a tar of four members, with the call in one of them."""
    members = {"sys_info": pickle.dumps({}), "storages": pickle.dumps(0) + pickle.dumps([]), "tensors": pickle.dumps(0)}
    return edit(tarred({**members, "pickle": pickle.dumps(HELD), evil: EVIL}, tarfile.USTAR_FORMAT))


HEADERS = {
    "'|O'": "'|O'", "'O'": "'O'", "'object'": "'object'", "'O8'": "'O8'", "escaped": r"'\x4f'", "in two": "'' 'O'",
    "unicode": r"u'\u004f'", "raw": "r'O'", "'object_'": "'object_'", "'O,O'": "'O,O'", "'i4,O'": "'i4,O'",
    "'2O'": "'2O'", "thrice quoted": "'''O'''", "double": '"O"', "a tuple": "('O', (1,))", "one field": "[('a', 'O')]",
    "'=O'": "'=O'", "two fields": "[('a', '<i4'), ('b', '|O')]", "a field, escaped": r"[('a', '\117')]",
    "a field named": "[('a', 'object')]", "fields within fields": "[('a', [('b', 'obj' 'ect')])]",
    "a shaped field": r"[('a', '\x7cO', (2,))]", "'>O'": "'>O'", "another line": "(\n'O'\n)",
    "a comment": "( # '<f8'\n'O')", "'O4'": "'O4'", "'|O8'": "'|O8'", "'(1,)O'": "'(1,)O'",
    "titled": "[(('t', 'n'), 'obje' 'ct')]", "N": r"'\N{LATIN CAPITAL LETTER O}'",
}  # fmt: skip


def npy(descr: str, version: int = 1, *, before: str = "", rest: bytes = EVIL, order: str = "False") -> bytes:
    """Return a .npy with the header as it is spelt here."""
    header = f"{{{before}'descr': {descr}, 'fortran_order': {order}, 'shape': (1,)}}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + rest


def numpys() -> Found:
    """Arrays of objects, whose type is spelt in all the ways that numpy reads."""
    for name, descr in HEADERS.items():
        yield f"npy: {name}", Payload(npy(descr), "data.npy", load_numpy)
    for version in (1, 2, 3):
        yield f"npy: version {version}", Payload(npy("'object'", version), "data.npy", load_numpy)
    yield "npy: padded", Payload(partial(npy, "'O'", 2, before=" " * 300_000), "data.npy", load_numpy)
    yield "npy: a long header", Payload(partial(npy, "'O'" + " " * 60_000, 3), "stats.bin", load_numpy)
    yield "npy: order spelt 1 == 1", Payload(npy("'object'", order="True"), "data.npy", load_numpy)
    yield "npy: descr twice", Payload(npy("'object'", before="'descr': '<f8', "), "data.npy", load_numpy)
    yield "npy: a pickle", Payload(before(b"I0x10\n"), "data.npy", load_numpy)
    plain = npy("'<f8'", rest=bytes(8))
    yield "npy: then objects", Payload(plain + npy("'|O'"), "data.npy", load_numpy_twice)
    yield "npy: then a pickle", Payload(plain + EVIL, "data.npy", load_numpy_then_pickle)
    yield "npy: another pickle behind", Payload(npy("'O'", rest=b"N." + EVIL), "data.npy", load_numpy_then_pickle)
    for method_ in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        for name in ("a.npy", "a", "../a.npy", "a\\b.npy", " ", "a/"):
            archive = zipped({name: npy("'object'")}, method_)
            yield f"npz: {name!r} by method {method_}", Payload(archive, "data.npz", load_npz)
    yield "npz: with a comment", Payload(zipped({"a.npy": npy("'O'")}, comment=b"hello"), "data.npz", load_npz)


def torched(evil: bytes = EVIL, method: int = zipfile.ZIP_STORED, comment: bytes = b"", root: str = "m") -> bytes:
    """Return a zip that torch.load reads."""
    return zipped(
        {f"{root}/data.pkl": evil, f"{root}/byteorder": b"little", f"{root}/version": b"3\n"}, method, comment
    )


def twice() -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(buffer, "w") as archive:
            for content in (EVIL, b"N.", EVIL):
                archive.writestr("m/data.pkl", content)
            archive.writestr("m/version", b"3\n")
    return buffer.getvalue()


def patched(content: bytes, magic: bytes, *changes: tuple[int, str, int]) -> bytes:
    """Return a zip with fields of its first record of that magic changed."""
    data = bytearray(content)
    at = content.find(magic)
    for offset, layout, value in changes:
        struct.pack_into(layout, data, at + offset, value)
    return bytes(data)


def ended(content: bytes, extra: bytes) -> bytes:
    """Return a zip with bytes between the directory and its end record."""
    at = content.rfind(b"PK\5\6")
    return content[:at] + extra + content[at:]


def shifted(content: bytes, by: int) -> bytes:
    """Return a zip that says of everything that it lies further behind than it does: zipfile takes that off again."""
    data = bytearray(content)
    at = content.rfind(b"PK\5\6")
    struct.pack_into("<I", data, at + 16, struct.unpack_from("<I", data, at + 16)[0] + by)
    place = content.find(b"PK\1\2")
    while place >= 0:
        struct.pack_into("<I", data, place + 42, struct.unpack_from("<I", data, place + 42)[0] + by)
        place = content.find(b"PK\1\2", place + 1)
    return bytes(data)


def zip64(content: bytes) -> bytes:
    """Return a zip with the larger end records, the smaller one full of 0xFF."""
    at = content.rfind(b"PK\5\6")
    count, size, offset = struct.unpack_from("<HII", content, at + 10)
    record = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, at, 1)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return content[:at] + record + locator + end


def crowded(count: int = 200_001) -> bytes:
    """Return torch's zip with more members than anybody needs, all of them nothing."""
    content = torched()
    at = content.rfind(b"PK\5\6")
    found, size, offset = struct.unpack_from("<HII", content, at + 10)
    record = b"PK\1\2" + struct.pack("<6H3I5H2I", 20, 20, 0, 0, 0, 33, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0) + b"m/x"
    added = record * count
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, size + len(added), offset, 0)
    total = found + count
    big = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, total, total, size + len(added), offset)
    return content[:at] + added + big + b"PK\6\7" + struct.pack("<IQI", 0, at + len(added), 1) + end


def encrypted(password: bytes = b"secret") -> bytes:
    """Return a zip in PKWARE's old cipher, which zipfile opens for whoever knows the password."""
    keys = [0x12345678, 0x23456789, 0x34567890]
    table = [zlib.crc32(bytes([byte]), 0xFFFFFFFF) ^ 0xFFFFFFFF for byte in range(256)]

    def update(byte: int) -> None:
        keys[0] = (keys[0] >> 8) ^ table[(keys[0] ^ byte) & 0xFF]
        keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
        keys[2] = (keys[2] >> 8) ^ table[(keys[2] ^ (keys[1] >> 24)) & 0xFF]

    for byte in password:
        update(byte)
    out = bytearray()
    for byte in bytes(11) + bytes([zlib.crc32(EVIL) >> 24]) + EVIL:
        mask = keys[2] | 2
        out.append(byte ^ ((mask * (mask ^ 1)) >> 8) & 0xFF)
        update(byte)
    content = zipped({"vocab.pkl": bytes(out)})
    for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content = patched(content, magic, (at, "<H", 1), (at + 8, "<I", zlib.crc32(EVIL)))
        content = patched(content, magic, (at + 16, "<I", len(EVIL)))
    return content


FALSE_LOCATOR = b"PK\6\7" + struct.pack("<IQI", 0, 4, 1)


def other_zips() -> dict[str, tuple[bytes, Loader]]:
    """Return zips for which `load_zip` does not do."""
    stored_pickle = first_of(torch_bytes({"w": torch.zeros(64)}))
    numbers = {"m/data.pkl": stored_pickle, "m/version": b"3\n", "m/data/0": before(b"N0I0x1\n")}
    cut_off = patched(zipped({"a": PADDED * 10}, zipfile.ZIP_DEFLATED), b"PK\1\2", (20, "<I", 300_000))
    deep = zipped({"a": zipped({"a": zipped({"a": zipped({"a": before(b"I0x1\n")})}, 8)})}, 8)
    small_zlib = zipped({"a": engine(10)}, zipfile.ZIP_DEFLATED)
    script = zipped({"m/data.pkl": b"N.", "m/constants.pkl": b").", "m/data/0": EVIL})
    gzipped_member = zipped({"a.gz": gzip.compress(EVIL)})
    return {
        "zip, wrong CRC": (patched(zipped({"a": PADDED * 10}), b"PK\1\2", (16, "<I", 1)), open_first),
        "zip, deflated, cut off": (cut_off, open_first),
        "zip, encrypted": (encrypted(), expanding(partial(unzipped, password=b"secret"))),
        "zip of a gzip": (gzipped_member, expanding(lambda data: gzip.decompress(unzipped(data)))),
        "zip of a small zlib": (small_zlib, expanding(lambda data: zlib.decompress(unzipped(data)))),
        "zip in zip in zip in zip": (deep, expanding(lambda data: unzipped(unzipped(unzipped(unzipped(data)))))),
        "zip, one byte": (zipped({"a": EVIL, **{f"b{at}": b"" for at in range(9)}}), open_first),
        "torch, a storage that is a pickle": (zipped(numbers), load_storage),
        "torch, a deflated storage that is a pickle": (zipped(numbers, zipfile.ZIP_DEFLATED), load_storage),
        "torch, TorchScript's names": (script, load_storage),
    }


ZIPS = {
    "zip, deflated": zipped({"a": EVIL}, zipfile.ZIP_DEFLATED),
    "zip, bzip2": zipped({"a": EVIL}, zipfile.ZIP_BZIP2),
    "zip, lzma": zipped({"a": EVIL}, zipfile.ZIP_LZMA),
    "zip behind something": b"#!/bin/sh\n" + zipped({"a": EVIL}),
    "zip behind something, with a comment": b"GIF89a" + bytes(99) + zipped({"a": EVIL}, comment=b"hello"),
    "zip behind something, with bytes behind": b"GIF89a" + zipped({"a": EVIL}) + bytes(9),
    "zip with a comment": zipped({"a": EVIL}, comment=b"c" * 60_000),
    "zip with bytes behind it": zipped({"a": EVIL}) + bytes(3000),
    "zip, shifted": shifted(zipped({"a": EVIL}), 20),
    "zip, shifted behind something": bytes(7) + shifted(zipped({"a": EVIL}), 3),
    "zip, a folder with content": zipped({"vocab.pkl/": EVIL}),
    "zip64": zip64(zipped({"a": EVIL})),
}


def torch_zips() -> dict[str, bytes | Callable[[], bytes]]:
    """Return zips as torch.load opens them, however odd."""
    return {
        "torch": torched(),
        "torch, its own": torch_bytes({"a": torch.zeros(2), "b": Called()}),
        "torch, hex": torched(before(b"I0x10\n")),
        "torch, a long line": torched(before(b"S'" + b"x" * 90_000 + b"'\n")),
        "torch, a spaced module": torched(b"cmy mod\nNet\n."),
        "torch, deflated": torched(method=zipfile.ZIP_DEFLATED),
        "torch, .data": zipped({"m/data.pkl": EVIL, "m/.data/version": b"3", "m/.data/serialization_id": b"1"}),
        "torch, odd folder": torched(root="my model (1)"),
        "torch, capitals": zipped({"m/x": b"", "m/DATA.PKL": EVIL, "m/version": b"3\n"}),
        "torch, two of a name": twice(),
        "torch, no CRC": patched(torched(), b"PK\1\2", (16, "<I", 0)),
        "torch, wrong local size": patched(torched(), b"PK\3\4", (18, "<I", 5), (22, "<I", 5)),
        "torch, wrong local method": patched(torched(), b"PK\3\4", (8, "<H", 8)),
        "torch, wrong local name": torched().replace(b"m/data.pkl", b"m/name.txt", 1),
        "torch, a comment": torched(comment=b"hello"),
        "torch, half a magic word in its comment": torched(comment=b"x" * 30 + b"PK\5\6"),
        "torch, bytes behind": torched() + bytes(3000),
        "torch, a false locator": ended(torched(), FALSE_LOCATOR),
        "torch, zip64": zip64(torched()),
        "torch, encrypted flag, local": patched(torched(), b"PK\3\4", (6, "<H", 1)),
        "torch, over 200,000 members": crowded,
    }


def zips() -> Found:
    """Zips as torch and Python's zipfile open them, however odd."""
    for name, (content, load) in {**{name: (each, load_zip) for name, each in ZIPS.items()}, **other_zips()}.items():
        yield name, Payload(content, "assets.zip", load)
    for name, content in torch_zips().items():
        yield name, Payload(content, "model.pt", load_torch, {"my mod.py": MODULE})
    package = {"x/model/model.pkl": EVIL, "x/.data/extern_modules": b"posix\n", "x/.data/version": b"6\n"}
    yield "torch.package", Payload(zipped(package), "model.pt", load_package)
    code = {
        "x/model/model.pkl": b"cevil\nNet\n.",
        "x/evil.py": MODULE,
        "x/.data/extern_modules": b"os\n",
        "x/.data/version": b"6\n",
    }
    yield "torch.package, a module of its own", Payload(zipped(code), "model.pt", load_package)
