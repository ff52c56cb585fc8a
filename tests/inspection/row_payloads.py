"""Compressed streams in a row, of which a later one holds the call, and places of a file that no format counts."""

import bz2
import gzip
import io
import lzma
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from inspection.containers import tarred, zipped
from inspection.file_payloads import gzipped
from inspection.loaders import (
    HELD,
    Found,
    Loader,
    Payload,
    expanding,
    first_of,
    load_every,
    load_joblib,
    load_pandas,
    opened,
)
from inspection.opcodes import EVIL

RANDOM = np.random.default_rng(2).bytes(40_000)  # longer than what a reader expands before it sees a checksum
LONG = EVIL + RANDOM
HONEST = pickle.dumps(HELD)


def alone(data: bytes, lc: int = 3) -> bytes:
    return lzma.compress(data, lzma.FORMAT_ALONE, filters=[{"id": lzma.FILTER_LZMA1, "lc": lc}])


def spoilt(data: bytes, at: int, size: int = 4) -> bytes:
    """Return data with some bytes changed, counted from the end."""
    place = len(data) - at
    return data[:place] + bytes(byte ^ 0xFF for byte in data[place : place + size]) + data[place + size :]


def rows_of(opener: Callable[..., object]) -> Loader:
    """Return a loader of all pickles in a compressed file."""

    def load(path: Path) -> object:
        with opener(path, "rb") as file:
            records = []
            while True:
                records.append(pickle.load(file))

    return load


def every_zlib(data: bytes) -> bytes:
    """Expand zlib streams in a row, as readers of git's packs and of PDF's streams do."""
    out = b""
    while data:
        engine = zlib.decompressobj()
        out += engine.decompress(data)
        data = engine.unused_data
    return out


SECOND_GZIPS: dict[str, bytes] = {
    "wrong CRC": spoilt(gzip.compress(LONG), 8),
    "wrong CRC, short": spoilt(gzip.compress(EVIL), 8),
    "wrong size": spoilt(gzip.compress(EVIL), 4),
    "no checksum": gzip.compress(EVIL)[:-8],
    "half a checksum": gzip.compress(EVIL)[:-4],
    "cut off": gzip.compress(LONG)[:-2000],
    "damage further on": spoilt(gzip.compress(LONG), 3000, 2000),
    "a wrong CRC of its header": gzipped(EVIL, 2, b"\0\0"),
    "flags that are reserved": gzipped(EVIL, 0x20),
    "all flags that are reserved": gzipped(EVIL, 0xE0),
    "a long name": gzipped(EVIL, 8, b"n" * 70_000 + b"\0"),
    "zeros before, wrong CRC": bytes(300) + spoilt(gzip.compress(EVIL), 8),
    "an empty one before, wrong CRC": gzip.compress(b"") + spoilt(gzip.compress(EVIL), 8),
    "plain": gzip.compress(EVIL),
}
SECOND_BZ2S: dict[str, bytes] = {
    "wrong CRC": spoilt(bz2.compress(LONG), 4),
    "wrong CRC of its block": bz2.compress(LONG)[:10] + bytes(4) + bz2.compress(LONG)[14:],
    "cut off": bz2.compress(EVIL + RANDOM * 8, 1)[:-2000],
    "damage further on": spoilt(bz2.compress(EVIL + RANDOM * 8, 1), 3000, 2000),
    "another level, wrong CRC": spoilt(bz2.compress(LONG, 1), 4),
    "plain": bz2.compress(EVIL),
}
SECOND_XZS: dict[str, bytes] = {
    "wrong check": spoilt(lzma.compress(LONG), 40),
    "wrong index": spoilt(lzma.compress(LONG), 14, 1),
    "wrong footer": spoilt(lzma.compress(LONG), 8),
    "cut off": lzma.compress(LONG)[:-2000],
    "damage further on": spoilt(lzma.compress(LONG), 3000, 2000),
    "no check, cut off": lzma.compress(LONG, check=lzma.CHECK_NONE)[:-100],
    "CRC32, wrong": spoilt(lzma.compress(LONG, check=lzma.CHECK_CRC32), 36),
    "lzma alone": alone(EVIL),
    "lzma alone, lc 0": alone(EVIL, 0),
    "lzma alone, cut off": alone(LONG)[:-500],
    "plain": lzma.compress(EVIL),
}
FIRSTS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
SECONDS = {"gzip": SECOND_GZIPS, "bz2": SECOND_BZ2S, "xz": SECOND_XZS}
OPENERS: dict[str, Callable[..., object]] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
MIXED: dict[str, tuple[bytes, Loader]] = {
    "lzma alone, lc 0, then another": (alone(b"", 0) + alone(EVIL), opened(lzma.open)),
    "lzma alone, lc 0, then xz": (alone(HONEST, 0) + lzma.compress(EVIL), rows_of(lzma.open)),
    "lzma alone, lc 1, then xz, cut off": (alone(HONEST, 1) + lzma.compress(LONG)[:-90], rows_of(lzma.open)),
    "lzma alone, then lc 2": (alone(HONEST) + alone(EVIL, 2), rows_of(lzma.open)),
    "zlib twice": (zlib.compress(b"") + zlib.compress(EVIL), expanding(every_zlib)),
    "zlib twice, half a pickle each": (zlib.compress(EVIL[:9]) + zlib.compress(EVIL[9:]), expanding(every_zlib)),
    "zlib twice, the second cut off": (zlib.compress(HONEST[:-1] + b"0") + zlib.compress(EVIL)[:-4],
        expanding(every_zlib)),
    "zlib three times": (zlib.compress(HONEST[:-1]) + zlib.compress(b"0") + zlib.compress(EVIL), expanding(every_zlib)),
    "zlib, small window, twice": (
        zlib.compress(b"", wbits=9) + zlib.compress(EVIL, wbits=10), expanding(every_zlib),
    ),
}  # fmt: skip
JOBLIBS: dict[str, Callable[[], bytes]] = {  # joblib reads a megabyte before it sees a checksum
    "zlib, wrong checksum": lambda: spoilt(zlib.compress(EVIL + RANDOM * 30, 0), 4),
    "zlib, cut off": lambda: zlib.compress(EVIL + RANDOM * 30, 0)[:-900],
    "gzip, wrong checksum": lambda: spoilt(gzip.compress(EVIL + RANDOM * 30, 0), 8),
    "bz2, the second of two": lambda: bz2.compress(b"") + spoilt(bz2.compress(EVIL + bytes(2 << 20)), 4),
    "xz, the second of two": lambda: lzma.compress(b"") + spoilt(lzma.compress(EVIL + bytes(2 << 20)), 40),
}
PANDAS = {
    "table.pkl.gz": gzip.compress(b"") + SECOND_GZIPS["wrong CRC"],
    "table.pkl.bz2": bz2.compress(b"") + SECOND_BZ2S["wrong CRC"],
    "table.pkl.xz": lzma.compress(b"") + SECOND_XZS["wrong check"],
    "table.gz": gzip.compress(b"") + SECOND_GZIPS["no checksum"],
}


def second_streams() -> Found:
    """What readers of compressed files read behind the end of the first stream."""
    for kind, seconds in SECONDS.items():
        pack, opener = FIRSTS[kind], OPENERS[kind]
        for name, second in seconds.items():
            yield f"{kind} of nothing, then: {name}", Payload(pack(b"") + second, "vocab.bin", opened(opener))
        for name in list(seconds)[:3]:
            title = f"{kind} of a pickle, then: {name}"
            yield title, Payload(pack(HONEST) + seconds[name], "vocab.pkl", rows_of(opener))
            title = f"{kind} of half the pickle, then: {name}"
            yield title, Payload(pack(HONEST[:-1] + b"0") + seconds[name], "vocab.dat", opened(opener))
    for name, (content, load) in MIXED.items():
        yield name, Payload(content, "weights.bin", load)
    for name, make in JOBLIBS.items():
        yield f"joblib's {name}", Payload(make, "weights.bin", load_joblib)
    for member, content in PANDAS.items():
        yield f"pandas: {member}", Payload(content, member, load_pandas)


LABELS = {"labels.txt": b"cat\n"}
PLACES: dict[str, tuple[bytes, Loader]] = {
    "between a zip's members": (
        zipped(LABELS).replace(b"PK\1\2", EVIL + b"PK\1\2", 1), expanding(lambda data: data[data.index(EVIL) :]),
    ),
    "behind a tar's end": (tarred(LABELS) + EVIL, expanding(lambda data: data[data.index(EVIL) :])),
    "a tar's member name": (tarred({EVIL.decode(): b"x"}), load_every),
    "a gzip's name": (gzipped(b"cat\n", 8, EVIL + b"\0"), expanding(lambda data: data[10:])),
}  # fmt: skip


def places() -> Found:
    """Names and gaps of archives, which a file that ends or starts in another format may use."""
    for name, (content, load) in PLACES.items():
        yield f"place: {name}", Payload(content, "assets.bin", load)
    for name in ("model.pickle.gz", "model.pth.gz", "model.bin.gz"):
        yield (
            f"zip with {name}",
            Payload(
                zipped({name: gzip.compress(b"") + SECOND_GZIPS["wrong CRC, short"]}),
                "assets.zip",
                expanding(lambda data: read_through(first_of(data))),
            ),
        )
    yield (
        "zip, deflated twice",
        Payload(
            zipped({"a.bin": zlib.compress(b"") + zlib.compress(EVIL)}, 8),
            "assets.zip",
            expanding(lambda data: every_zlib(first_of(data))),
        ),
    )


def read_through(data: bytes) -> bytes:
    """Return what gzip reads before it notices a wrong checksum."""
    with gzip.open(io.BytesIO(data)) as file:
        return file.read(1) + file.read1(100)
