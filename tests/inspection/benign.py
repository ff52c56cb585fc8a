"""Members of archives that are honest: nothing in them may raise an alarm."""

import bz2
import collections
import datetime as dt
import decimal
import fractions
import gzip
import lzma
import pickle
import random
import struct
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from inspection.benign_contents import FOLDER, HANDLERS, HEADS, IMPORTING, OPENINGS, UNICODE, WORDS
from inspection.containers import tarred, written, zipped
from torch import nn

PROTOCOLS = range(6)
OPCODES = bytes(code for code in b"ci(ISV}])ldt012NFGJKLMPQRUTXBCabeghjopqrsu.") + bytes(range(0x80, 0x99))
Make = Callable[[], bytes]
Family = Iterator[tuple[str, Make | bytes | str]]


class Net(nn.Module):
    """A network small enough to be saved in every way there is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        nn.init.orthogonal_(self.layer.weight, generator=torch.Generator().manual_seed(0))
        nn.init.ones_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


class Lookup(nn.Module):
    """Its vocabulary is an attribute, which TorchScript pickles."""

    def __init__(self) -> None:
        super().__init__()
        self.words = {"cat": 0, "dog": 1}
        self.names = ["cat", "dog"]

    def forward(self, words: list[str]) -> list[int]:
        return [self.words[word] for word in words]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def texts() -> Family:
    """Texts that people write by hand, and texts whose first letters are an opcode or a whole import."""
    tables = {"handlers": HANDLERS, "folder": FOLDER, "unicode": UNICODE, "importing": IMPORTING}
    for folder, table in tables.items():
        yield from ((f"{folder}/{name}", text) for name, text in table.items())
    for letter, all_texts in OPENINGS.items():
        yield from ((f"openings/{ord(letter):02x}_{i}.txt", text) for i, text in enumerate(all_texts))


def long_lines() -> Family:
    """One line of 10,000 characters, behind each of the opcodes that take the rest of a line."""
    words = ",".join(WORDS.split()).ljust(10_000, "x")
    yield from ((f"long/{ord(letter):02x}.csv", letter + words) for letter in "FILSVPcipg")


def walked_texts() -> Family:
    """Lists of names, each of whose lines is an opcode with its argument: `I12` is the number 12."""
    for letter in "FILPV":
        yield f"walked/{letter}.txt", "".join(f"{letter}{number}\n" for number in range(300))
    yield "walked/mixed.txt", "".join(f"{letter}{number}\n" for number in range(50) for letter in "FILPV")
    yield "walked/unicode.txt", "".join(f"V{word}\n" for word in WORDS.split())
    yield "walked/sequence.fasta", "N" * 200 + "\n" + "N" * 200 + "ACGT\n"


def random_texts() -> Family:
    """Texts of no sense: any printable characters, and lists of words."""
    letters = "".join(map(chr, range(32, 127))) + "\n"
    for seed in range(20):
        yield f"random/printable_{seed}.txt", "".join(random.Random(seed).choices(letters, k=2000))
    for seed in range(10):
        yield f"random/words_{seed}.txt", "\n".join(random.Random(seed).choices(WORDS.split(), k=500))


def _noise(seed: int, size: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def random_bytes() -> Family:
    """Bytes of no sense, as in keys, hashes and encrypted files."""
    for seed in range(40):
        yield f"random/blob_{seed}.bin", _noise(seed, 64 + 100 * seed)


def first_bytes() -> Family:
    """Numbers whose first byte is an opcode: float32 weights, and the rows of a grey picture around that value."""
    for code in OPCODES:
        weights = np.random.default_rng(code).normal(size=256).astype("<f4").tobytes()
        second = b"\x86" if code == 0x80 else b""  # with 0 to 5 behind it, it says that it is a pickle
        yield f"first_bytes/{code:02x}.bin", bytes([code]) + second + weights[1 + len(second) :]
        yield f"first_bytes/{code:02x}.gray", bytes([code] * 300)  # a picture of one color
    for seed in range(5):
        pixels = np.random.default_rng(seed).integers(0x81, 0x98, 4096, dtype=np.uint8)
        yield f"first_bytes/middle_grey_{seed}.rgb", pixels.tobytes()


def raw_numbers() -> Family:
    """Embeddings, indices and masks, written by ndarray.tofile."""
    for seed, kind in enumerate(["<f2", "<f4", "<f8", ">f4", "<i2", "<i4", "<i8", "u1"]):
        numbers = np.random.default_rng(seed).normal(scale=50, size=2000)
        yield f"raw/{kind[-2:]}_{seed}.bin", np.abs(numbers).astype(kind).tobytes()
    yield from {
        "raw/counting.i8": np.arange(40, 400, dtype="<i8").tobytes(),  # begins with an opcode, `(`
        "raw/labels.u1": np.tile(np.frombuffer(OPCODES, np.uint8)[:40], 50).tobytes(),
        "raw/ones.f4": np.ones(1000, "<f4").tobytes(),
        "raw/zeros.f4": bytes(4000),
        "raw/ones.bool": b"\x01" * 1000,
        "raw/mask.u1": b"(" * 100_000,
        "raw/tuples.u1": b")" * 100_000,
        "raw/trues.u1": b"\x88" * 100_000,
        "raw/like_zlib.i2": np.arange(0x0178, 0x0378, dtype="<i2").tobytes(),
        "raw/like_lzma.i4": np.arange(93, 500, dtype="<i4").tobytes(),
        "raw/true_tuples.u1": b"\x88\x85" * 20_000,  # tuples in tuples
    }.items()


def data_files() -> Family:
    """Tables, databases and indices, by their first bytes and something behind them."""
    for seed, (name, head) in enumerate(HEADS.items()):
        yield f"data/{name}", head + _noise(1000 + seed, 600)
    yield "data/messages.mo", struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, 44) + struct.pack("<4I", 3, 44, 4, 48)


def containers() -> Family:
    """Compressed files and archives of honest ones, one in the other, too."""
    text = "\n".join(WORDS.split() * 20).encode()
    packers = {"gz": partial(gzip.compress, mtime=0), "bz2": bz2.compress, "xz": lzma.compress, "zlib": zlib.compress}
    for name, pack in packers.items():
        yield f"containers/words.txt.{name}", partial(pack, text)
        yield f"containers/empty.{name}", partial(pack, b"")
        yield f"containers/noise.{name}", partial(pack, _noise(20, 3000))
        yield f"containers/inside.tar.{name}", lambda pack=pack: pack(tarred(_inside()))
        yield f"containers/vocab.pkl.{name}", partial(pack, pickle.dumps({"cat": 0, "dog": 1}))
    for level in (1, 6, 9):
        yield f"containers/level_{level}.z", partial(zlib.compress, text, level)
    yield "containers/two.gz", gzip.compress(b"captum\n", mtime=0) + gzip.compress(b"numpy\n", mtime=0)
    yield "containers/inside.tar", lambda: tarred(_inside())
    yield "containers/stored.zip", lambda: zipped(_inside())
    for suffix in ("zip", "jar", "whl", "mar", "docx", "egg"):
        yield f"containers/deflated.{suffix}", lambda: _deflated(_inside())
    for name in ("cat.txt", "index.json", "(a).txt", "Vocab", "Labels", "Python.py", "None", "]", "0"):
        yield f"containers/first_{name}.tar", partial(tarred, {name: b"1\n"})
    every = {f"{ord(letter)}_{i}": text.encode() for letter, group in OPENINGS.items() for i, text in enumerate(group)}
    yield "containers/openings.zip", lambda: _deflated(every)
    yield "containers/openings.tar", lambda: tarred(every)
    yield "containers/folders.zip", lambda: _deflated({"a/": b"", "a/\u732b.txt": b"cat\n", "b/": b"", "b/c/": b""})
    yield "containers/comment.zip", lambda: _deflated({"a.txt": b"cat\n"}, comment=b"captum\nnumpy\n")
    yield "containers/empty.zip", lambda: _deflated({})
    yield "containers/nested.zip", lambda: _deflated({"in.mar": _deflated(_inside()), "in.tar": tarred(_inside())})
    yield "containers/run.pyz", lambda: b"#!/usr/bin/env python3\n" + _deflated(_inside())


@cache
def _inside() -> dict[str, bytes]:
    members = {name: text.encode() for name, text in {**HANDLERS, **FOLDER}.items()}
    return members | {"a/state.pt": _saved({"w": torch.ones(3)}), "a/vocab.pkl": pickle.dumps({"a": 0})}


def _deflated(members: dict[str, bytes], comment: bytes = b"") -> bytes:
    return zipped(members, zipfile.ZIP_DEFLATED, comment)


def _saved(value: object, **options: Any) -> bytes:
    return written(lambda file: torch.save(value, file, **options))


DTYPES = """
    bfloat16 bool complex32 complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32
    uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 bits8 bits16
"""


def tensors() -> Family:
    """Tensors of all the kinds of numbers there are, and of all layouts, in both of torch.save's formats."""
    ones = torch.ones(4, 3)
    kinds: dict[str, Callable[[], object]] = {name: partial(_tensor_of, name) for name in DTYPES.split()}
    kinds |= {
        "view": lambda: torch.arange(100)[40:80:2],
        "transposed": ones.t,
        "meta": lambda: torch.empty(3, device="meta"),
        "sparse_coo": ones.to_sparse,
        "sparse_csr": ones.to_sparse_csr,
        "quantized": lambda: torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8),
        "quantized_channels": lambda: torch.quantize_per_channel(ones, ones[:, 0], ones[:, 0] * 0, 0, torch.quint8),
        "parameter": lambda: nn.Parameter(ones.clone()),
        "conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
        "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "requires_grad": lambda: torch.ones(3, requires_grad=True),
        "empty": lambda: torch.ones(0, 5),
        "scalar": lambda: torch.tensor(1.5),
    }
    for name, make in kinds.items():
        yield f"tensors/{name}.pt", partial(_saved_made, make)
        yield f"tensors/{name}.pth", partial(_saved_made, make, _use_new_zipfile_serialization=False)


def _tensor_of(name: str) -> torch.Tensor:
    return _bytes_of(_noise(30, 64)).view(getattr(torch, name))


def _saved_made(make: Callable[[], object], **options: Any) -> bytes:
    with catch_warnings():
        simplefilter("ignore")  # torch warns of kinds that it calls experimental
        return _saved(make(), **options)


def checkpoints() -> Family:
    """What training scripts save: tensors in every kind of plain container."""
    shared = torch.ones(5)
    values = {
        "nested.pt": {"model": {"a": {"b": torch.ones(2)}}, "names": ["x", "y"]},
        "ordered.pt": collections.OrderedDict(w=torch.ones(2)),
        "list.pt": [torch.ones(2), torch.zeros(3)],
        "tuple.pt": (torch.ones(2), None, True),
        "shared.pt": {"a": shared, "b": shared, "c": shared[1:3]},
        "size.pt": {"shape": torch.ones(2, 3).shape, "dtype": torch.float16, "device": torch.device("cpu")},
        "plain.pt": {"epoch": 3, "loss": 0.5, "args": {"lr": 1e-3}, "name": "cos\nsystem\n(S'id'\ntR."},
        "set.pt": {"seen": {1, 2}, "bytes": b"\x00", "complex": 1j},
        "counter.pt": collections.Counter("abca"),
        "storage.pt": torch.ones(3).untyped_storage(),
        "bytes.pt": {"code": _bytes_of(b"cat\ndog\n"), "extra_state": _bytes_of(pickle.dumps({"scale": 1.0}))},
        "opcodes.pt": [_bytes_of(bytes([code]) * 20) for code in OPCODES],
        "protocols.pt": [_bytes_of(bytes([0x80, second]) + _noise(second, 64)) for second in PROTOCOLS],
        "names.pt": {"os.system": torch.ones(1), "builtins": {"eval": torch.ones(1)}},
        "embedding.pt": {"w": torch.from_numpy(np.random.default_rng(4).normal(size=(500, 64)))},
    }
    for name, value in values.items():
        yield f"checkpoints/{name}", partial(_saved, value)
        yield f"checkpoints/legacy_{name}", partial(_saved, value, _use_new_zipfile_serialization=False)


def vocabularies() -> Family:
    """Vocabularies as large as real ones."""
    words = {f"word{number}": number for number in range(100_000)}
    yield "vocabularies/vocab.pt", partial(_saved, words)
    yield "vocabularies/vocab.pkl", partial(pickle.dumps, words)
    yield "vocabularies/vocab_0.pkl", partial(pickle.dumps, words, 0)


def _bytes_of(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def programs() -> Family:
    """TorchScript with attributes, with files beside it, and for phones."""
    yield "programs/lookup.pt", lambda: scripted(lambda _: torch.jit.script(Lookup()))
    yield "programs/function.pt", lambda: scripted(lambda _: torch.jit.script(doubled))
    yield "programs/mobile.ptl", _mobile
    yield "programs/extra.pt", partial(scripted, torch.jit.script, _extra_files={"labels.txt": "captum\nnumpy\n"})
    yield "programs/traced.pt", partial(scripted, lambda net: torch.jit.trace(net, torch.ones(1, 4)))
    yield "programs/frozen.pt", partial(scripted, lambda net: torch.jit.freeze(torch.jit.script(net)))


def scripted(convert: Callable[[nn.Module], torch.jit.ScriptModule], **options: Any) -> bytes:
    with catch_warnings():
        simplefilter("ignore")  # TorchScript is deprecated
        return written(lambda file: torch.jit.save(convert(Net().eval()), file, **options))


def _mobile() -> bytes:
    with catch_warnings():
        simplefilter("ignore")
        return torch.jit.script(Net())._save_to_buffer_for_lite_interpreter()


UTC_NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
PLAIN = {
    "dict": {"cat": 0, "dog": 1},
    "list": ["a", 1, 2.5, None, True],
    "tuple": (1, (2, (3,)), 4, 5, 6),
    "set": {1, 2, 3},
    "frozenset": frozenset({1}),
    "bytes": b"\x80\x04 and more",
    "bytearray": bytearray(b"abc"),
    "names": ["os", "system", ("posix", "system"), {"builtins": "eval"}, "cos\nsystem\n(S'id'\ntR."],
    "int": -300,
    "long": 1 << 300,
    "float": 0.5,
    "complex": 1 + 2j,
    "bool": True,
    "none": None,
    "str": "two\nlines, \u732b",
    "long_str": "x" * 10_000,
    "empty": [{}, [], (), set(), "", b""],
    "datetime": UTC_NOON,
    "dates": [UTC_NOON.date(), UTC_NOON.time(), UTC_NOON.replace(tzinfo=None)],
    "timedelta": dt.timedelta(seconds=5),
    "decimal": decimal.Decimal("1.5"),
    "fraction": fractions.Fraction(1, 3),
    "uuid": uuid.UUID(int=5),
    "range": range(5),
    "slice": slice(1, 5, 2),
    "ordered": collections.OrderedDict(a=1),
    "defaultdict": collections.defaultdict(int, a=1),
    "defaultdict_list": collections.defaultdict(list, a=[1]),
    "counter": collections.Counter("abca"),
    "deque": collections.deque([1, 2], maxlen=5),
    "ndarray": np.linspace(0, 1, 20),
    "int_array": np.arange(6).reshape(2, 3),
    "str_array": np.array(["cat", "dog"]),
    "structured_array": np.zeros(2, [("a", "f4"), ("name", "U5")]),
    "object_array": np.array(["cat", 1, None], object),
    "bool_array": np.ones(3, bool),
    "numpy_scalar": np.float32(0.5),
    "numpy_scalars": [np.int64(1), np.bool_(True), np.str_("a"), np.datetime64("2024-01-01")],
    "dtype": np.dtype("f4"),
    "scores": {"mean": np.float64(0.5), "bins": np.arange(3), "when": UTC_NOON},
}


def pickles() -> Family:
    """Plain values in every protocol."""
    for name, value in PLAIN.items():
        yield from (
            (f"pickles/p{protocol}/{name}.pkl", partial(pickle.dumps, value, protocol)) for protocol in PROTOCOLS
        )


def odd_pickles() -> Family:
    """Pickles of plain values, as other programs and earlier days wrote them."""
    words = {"cat": 0, "dog": 1}
    yield "odd/newline.pkl", pickle.dumps(words, 0) + b"\n"
    yield "odd/crlf.pkl", pickle.dumps(words, 0) + b"\r\n"
    yield "odd/long_line.pkl", pickle.dumps({"text": "x" * 10_000}, 0)
    yield "odd/several.pkl", b"".join(pickle.dumps(words, protocol) for protocol in PROTOCOLS)
    yield "odd/rows.pkl", b"".join(pickle.dumps([number, "x"]) for number in range(200))
    yield "odd/within.pkl", pickle.dumps({"inner": pickle.dumps(words)})
    yield "odd/bytes_within.pkl", pickle.dumps([bytes([code]) + b"\x99" + _noise(code, 50) for code in OPCODES])
    yield "odd/then_numbers.pkl", pickle.dumps({"shape": (1000, 50), "dtype": "f4"}) + _noise(60, 200_000)
    yield "odd/then_text.pkl", pickle.dumps({"rows": 2}) + b"owl\ndog\n"
    yield "odd/zip_within.pkl", lambda: pickle.dumps({"zip": _deflated({"a.txt": b"captum\nnumpy\n"})})
    yield "odd/recursive.pkl", _recursive
    yield "odd/deep.pkl", pickle.dumps(_deep(100))
    yield "odd/numpy_1.pkl", pickle.dumps(np.arange(5), 2).replace(b"numpy._core", b"numpy.core")
    yield "odd/python_2.pkl", b"(dp0\nS'cat'\np1\nI0\nsS'big'\np2\nL5L\nsV\\u732b\np3\n(lp4\nF0.5\nas."
    yield "odd/python_2_set.pkl", b"\x80\x02c__builtin__\nset\nq\x00]q\x01K\x01a\x85q\x02Rq\x03."
    yield "odd/python_2_str.pkl", b"\x80\x02}q\x00(U\x03catq\x01K\x00U\x02\xe9\xe8q\x02K\x01u."
    yield "odd/scaler.npy.pkl", pickle.dumps({"mean": np.ones(3), "std": np.ones(3)}, 2)
    yield "odd/big.pkl", lambda: pickle.dumps([_noise(40, 300_000), "x" * 300_000])
    yield "odd/out_of_order.pkl", pickle.dumps([b"PK\x03\x04", b"PK\x05\x06", b"\x80\x04"])  # heads of files, alone


def _recursive() -> bytes:
    value: list[object] = []
    value.append(value)
    return pickle.dumps(value)


def _deep(depth: int) -> list[object]:
    return [_deep(depth - 1)] if depth else []


FAMILIES = (
    texts, long_lines, walked_texts, random_texts, random_bytes, first_bytes, raw_numbers, data_files, containers,
    tensors, checkpoints, vocabularies, programs, pickles, odd_pickles,
)  # fmt: skip


def made(content: Make | bytes | str) -> bytes:
    if callable(content):
        return content()
    return content.encode() if isinstance(content, str) else content


BENIGN: dict[str, Make] = {name: partial(made, content) for family in FAMILIES for name, content in family()}
