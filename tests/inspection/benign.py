"""Members of archives that are honest: nothing in them may raise an alarm."""

import bz2
import collections
import datetime as dt
import decimal
import fractions
import gzip
import importlib.util
import io
import lzma
import marshal
import pickle
import random
import sqlite3
import struct
import tarfile
import uuid
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
import safetensors.numpy
import torch
from inspection.benign_contents import FOLDER, HANDLERS, HEADS, IMPORTING, OPENINGS, UNICODE, WORDS
from PIL import Image
from torch import nn

from marpack.inspection.pickles import PickleVerdict

PROTOCOLS = range(6)
OPCODES = bytes(code for code in b"ci(ISV}])ldt012NFGJKLMPQRUTXBCabeghjopqrsu.") + bytes(range(0x80, 0x99))
Make = Callable[[], bytes]
Family = Iterator[tuple[str, Make | bytes | str]]


class Benign(NamedTuple):
    """One member."""

    member: str  # its file name
    make: Make
    verdict: PickleVerdict


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


# --- Texts -------------------------------------------------------------------------------------------------------


def texts() -> Family:
    """What people write by hand: handlers, requirements, labels, settings, licences."""
    yield from ((f"handlers/{name}", text) for name, text in HANDLERS.items())
    yield from ((f"folder/{name}", text) for name, text in FOLDER.items())
    yield from ((f"unicode/{name}", content) for name, content in UNICODE.items())


def openings() -> Family:
    """Texts whose first letter is an opcode."""
    for letter, all_texts in OPENINGS.items():
        yield from ((f"openings/{ord(letter):02x}_{i}.txt", text) for i, text in enumerate(all_texts))


def importing_texts() -> Family:
    """Texts in which a reader of pickles finds a whole import."""
    yield from ((f"importing/{name}", text) for name, text in IMPORTING.items())


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


# --- Numbers -----------------------------------------------------------------------------------------------------


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
        yield f"first_bytes/{code:02x}.gray", bytes([code] * 300)  # a picture of one colour
    for seed in range(5):
        pixels = np.random.default_rng(seed).integers(0x81, 0x98, 4096, dtype=np.uint8)
        yield f"first_bytes/middle_grey_{seed}.rgb", pixels.tobytes()


def raw_numbers() -> Family:
    """Embeddings, indices and masks, written by ndarray.tofile."""
    for seed, kind in enumerate(["<f2", "<f4", "<f8", ">f4", "<i2", "<i4", "<i8", "u1"]):
        numbers = np.random.default_rng(seed).normal(scale=50, size=2000)
        yield f"raw/{kind[-2:]}_{seed}.bin", np.abs(numbers).astype(kind).tobytes()
    yield "raw/counting.i8", np.arange(40, 400, dtype="<i8").tobytes()  # begins with an opcode, `(`
    yield "raw/labels.u1", np.tile(np.frombuffer(OPCODES, np.uint8)[:40], 50).tobytes()
    yield "raw/ones.f4", np.ones(1000, "<f4").tobytes()
    yield "raw/zeros.f4", bytes(4000)
    yield "raw/ones.bool", b"\x01" * 1000
    yield "raw/mask.u1", b"(" * 100_000
    yield "raw/tuples.u1", b")" * 100_000
    yield "raw/trues.u1", b"\x88" * 100_000
    yield "raw/like_zlib.i2", np.arange(0x0178, 0x0378, dtype="<i2").tobytes()
    yield "raw/like_lzma.i4", np.arange(93, 500, dtype="<i4").tobytes()
    yield "raw/true_tuples.u1", b"\x88\x85" * 20_000  # tuples in tuples


def numpy_files() -> Family:
    """.npy and .npz of every kind of element that needs no Python objects, and objects that are plain."""
    arrays = {
        "float": np.linspace(0, 1, 50),
        "int": np.arange(40, 80),
        "bool": np.ones(5, bool),
        "str": np.array(["cat", "dog"]),
        "bytes": np.array([b"cos\nsystem\n", b"x"]),
        "structured": np.zeros(3, [("a", "f4"), ("b", "i8"), ("name", "U5")]),
        "elements": np.ones(3, [("C", "f4"), ("H", "f4"), ("O", "f4")]),  # 'O' is also how numpy spells Python objects
        "date": np.array(["2024-01-01"], "M8[D]"),
        "complex": np.ones(3, complex),
        "half": np.ones(3, np.float16),
        "fortran": np.asfortranarray(np.ones((3, 4))),
        "empty": np.ones(0),
        "scalar": np.array(1.5),
    }
    for name, array in arrays.items():
        yield f"numpy/{name}.npy", partial(_npy, array)
    unicode = np.ones(3, [("\u732b", "f4")])
    yield "numpy/version_2.npy", lambda: _written(np.lib.format.write_array, np.ones(3), (2, 0))
    yield "numpy/version_3.npy", lambda: _written(np.lib.format.write_array, unicode, (3, 0))
    yield "numpy/objects.npy", lambda: _npy(np.array([1, "a", None, [1.5]], object))
    yield "numpy/all.npz", lambda: _written(np.savez, **arrays)
    yield "numpy/small.npz", lambda: _written(np.savez_compressed, **arrays)


def _npy(array: np.ndarray) -> bytes:
    return _written(np.save, array)


def _written(save: Callable[..., object], *args: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *args, **options)
    return buffer.getvalue()


# --- Files of other programs -------------------------------------------------------------------------------------


def pictures() -> Family:
    """What Pillow writes: most formats begin with a letter or two that are opcodes."""
    formats = "PNG JPEG GIF BMP TIFF WEBP ICO PPM PCX TGA DIB SGI PDF EPS JPEG2000 XBM MSP DDS QOI"
    for name in formats.split():
        yield f"pictures/{name}.{name.lower()}", partial(_picture, name)
    yield "pictures/grey.pgm", b"P5\n16 16\n255\n" + bytes(range(256))
    yield "pictures/grey_ascii.pgm", "P2\n2 2\n255\n0 1\n2 3\n"
    yield "pictures/bits_ascii.pbm", "P1\n2 2\n0 1\n1 0\n"
    yield "pictures/float.pfm", b"Pf\n2 2\n-1.0\n" + struct.pack("<4f", 1, 2, 3, 4)
    yield "pictures/big_endian.tiff", b"MM\0*\0\0\0\x08" + bytes(40)
    yield "pictures/heif.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)


def _picture(name: str) -> bytes:
    mode = {"XBM": "1", "MSP": "1"}.get(name, "RGB")
    image = Image.frombytes("RGB", (16, 16), _noise(7, 768)).convert(mode)
    return _written(image.save, format=name)


def sounds() -> Family:
    """Sound and film, by hand but for wav."""
    yield "sounds/tone.wav", _tone
    yield "sounds/tone.snd", b".snd" + struct.pack(">5I", 24, 0xFFFFFFFF, 1, 8000, 1) + _noise(1, 400)
    yield "sounds/tone.ogg", b"OggS\0\x02" + bytes(8) + _noise(2, 400)
    yield "sounds/tagged.mp3", b"ID3\x03\0\0\0\0\0\x15TIT2\0\0\0\x0b\0\0\0A sentence" + _noise(3, 400)
    yield "sounds/plain.mp3", b"\xff\xfb\x90d" + _noise(4, 400)
    yield "sounds/tone.flac", b"fLaC\0\0\0\x22" + _noise(5, 400)
    yield "sounds/tone.mid", b"MThd\0\0\0\x06\0\0\0\x01\0\x60MTrk\0\0\0\x04\0\xff\x2f\0"
    yield "sounds/tone.aiff", b"FORM\0\0\1\0AIFFCOMM" + _noise(6, 248)
    yield "sounds/film.avi", b"RIFF\x24\1\0\0AVI LIST" + _noise(8, 280)
    yield "sounds/film.mp4", b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41" + _noise(9, 300)
    yield "sounds/film.webm", b"\x1a\x45\xdf\xa3" + _noise(10, 300)


def _tone() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(_noise(11, 800))
    return buffer.getvalue()


def data_files() -> Family:
    """Tables, databases and indices, by their first bytes and something behind them."""
    for seed, (name, head) in enumerate(HEADS.items()):
        yield f"data/{name}", head + _noise(1000 + seed, 600)
    for length in (*range(128, 1409, 256), *(256 + code for code in OPCODES if code % 8 == 0)):
        yield f"data/header_{length}.safetensors", partial(_safetensors, length)
    yield "data/spiece.model", _sentencepiece
    yield "data/labels.sqlite", _database
    yield "data/messages.mo", struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, 44) + struct.pack("<4I", 3, 44, 4, 48)
    yield "data/handler.pyc", _compiled
    yield "data/weights.safetensors", lambda: safetensors.numpy.save({"w": np.ones((3, 4), "f4"), "b": np.arange(40)})
    yield "data/core.so", lambda: Path(importlib.util.find_spec("msgspec._core").origin).read_bytes()
    if found := importlib.util.find_spec("matplotlib"):
        fonts = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
        yield from ((f"data/{font.name}", font.read_bytes) for font in fonts.glob("STIXSiz*Reg.ttf"))


def _safetensors(length: int) -> bytes:
    """Return a file with a header of that many bytes: it begins with this number, 80 02 in bytes where it is 640."""
    header = b'{"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}'
    return struct.pack("<Q", length) + header.ljust(length) + np.ones(8, "<f4").tobytes()


def _sentencepiece() -> bytes:
    pieces = [b"<unk>", b"<s>", b"</s>", *WORDS.encode().split()]
    records = (b"\x0a" + bytes([len(word)]) + word + b"\x15" + struct.pack("<f", -1.5) for word in pieces)
    return b"".join(b"\x0a" + bytes([len(record)]) + record for record in records)


def _database() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE labels (id INTEGER, name TEXT)")
        database.executemany("INSERT INTO labels VALUES (?, ?)", enumerate(WORDS.split()))
    content = database.serialize()
    database.close()
    return content


def _compiled() -> bytes:
    code = compile(HANDLERS["class.py"], "handler.py", "exec")
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


# --- Files of files ----------------------------------------------------------------------------------------------


def containers() -> Family:
    """Compressed files and archives of honest ones, one in the other, too."""
    text = "\n".join(WORDS.split() * 20).encode()
    packers = {"gz": partial(gzip.compress, mtime=0), "bz2": bz2.compress, "xz": lzma.compress, "zlib": zlib.compress}
    packers["lzma"] = partial(lzma.compress, format=lzma.FORMAT_ALONE)
    for name, pack in packers.items():
        yield f"containers/words.txt.{name}", partial(pack, text)
        yield f"containers/empty.{name}", partial(pack, b"")
        yield f"containers/noise.{name}", partial(pack, _noise(20, 3000))
        yield f"containers/inside.tar.{name}", partial(_packed, pack)
        yield f"containers/vocab.pkl.{name}", partial(pack, pickle.dumps({"cat": 0, "dog": 1}))
    for level in (1, 6, 9):
        yield f"containers/level_{level}.z", partial(zlib.compress, text, level)
    yield "containers/two.gz", gzip.compress(b"captum\n", mtime=0) + gzip.compress(b"numpy\n", mtime=0)
    yield "containers/inside.tar", lambda: _tarred(_inside())
    yield "containers/stored.zip", lambda: _zipped(_inside(), zipfile.ZIP_STORED)
    for suffix in ("zip", "jar", "whl", "mar", "docx", "egg"):
        yield f"containers/deflated.{suffix}", lambda: _zipped(_inside())
    for name in ("cat.txt", "index.json", "(a).txt", "Vocab", "Labels", "Python.py", "None", "]", "0"):
        yield f"containers/first_{name}.tar", partial(_tarred, {name: b"1\n"})
    every = {f"{ord(letter)}_{i}": text.encode() for letter, group in OPENINGS.items() for i, text in enumerate(group)}
    yield "containers/openings.zip", lambda: _zipped(every)
    yield "containers/openings.tar", lambda: _tarred(every)
    yield "containers/folders.zip", lambda: _zipped({"a/": b"", "a/\u732b.txt": b"cat\n", "b/": b"", "b/c/": b""})
    yield "containers/comment.zip", lambda: _zipped({"a.txt": b"cat\n"}, comment=b"captum\nnumpy\n")
    yield "containers/empty.zip", lambda: _zipped({})
    yield "containers/nested.zip", lambda: _zipped({"in.mar": _zipped(_inside()), "in.tar": _tarred(_inside())})
    yield "containers/run.pyz", lambda: b"#!/usr/bin/env python3\n" + _zipped(_inside())


@cache
def _inside() -> dict[str, bytes]:
    members = {name: text.encode() for name, text in {**HANDLERS, **FOLDER}.items()}
    return members | {"a/state.pt": _saved({"w": torch.ones(3)}), "a/vocab.pkl": pickle.dumps({"a": 0})}


def _zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.comment = comment
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def _tarred(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _packed(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(_tarred(_inside()))


# --- Torch -------------------------------------------------------------------------------------------------------


def _saved(value: object, **options: Any) -> bytes:
    return _written(partial(_save_to, value), **options)


def _save_to(value: object, buffer: io.BytesIO, **options: Any) -> None:
    torch.save(value, buffer, **options)


def state_dicts() -> Family:
    """One state_dict by torch.save, in both of its formats and every protocol."""
    state = Net().state_dict()
    for protocol in PROTOCOLS:
        save = partial(_saved, state, pickle_protocol=protocol)
        yield f"state/p{protocol}/model.pt", save
        yield f"state/p{protocol}/pytorch_model.bin", partial(save, _use_new_zipfile_serialization=False)


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


def training() -> Family:
    """Checkpoints of a model with its optimizer: the first of them imports half of torch."""
    yield from ((f"training/{kind}.ckpt", partial(_trained, kind)) for kind in ("SGD", "Adam", "AdamW", "RMSprop"))


def _trained(kind: str) -> bytes:
    net = Net()
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    net(torch.zeros(2, 4)).sum().backward()
    optimizer.step()
    parts = {"model": net, "optimizer": optimizer, "schedule": schedule}
    return _saved({name: part.state_dict() for name, part in parts.items()} | {"epoch": 1})


def programs() -> Family:
    """TorchScript and ONNX."""
    yield "programs/scripted.pt", partial(_scripted, torch.jit.script)
    yield "programs/traced.pt", partial(_scripted, lambda net: torch.jit.trace(net, torch.ones(1, 4)))
    yield "programs/frozen.pt", partial(_scripted, lambda net: torch.jit.freeze(torch.jit.script(net)))
    yield "programs/lookup.pt", lambda: _scripted(lambda _: torch.jit.script(Lookup()))
    yield "programs/function.pt", lambda: _scripted(lambda _: torch.jit.script(doubled))
    yield "programs/mobile.ptl", _mobile
    yield "programs/extra.pt", partial(_scripted, torch.jit.script, _extra_files={"labels.txt": "captum\nnumpy\n"})
    if importlib.util.find_spec("onnx"):
        yield "programs/model.onnx", _onnx


def exported() -> Family:
    """torch.export, which takes seconds."""
    yield "exported/model.pt2", lambda: _exported(Net())


def _scripted(convert: Callable[[nn.Module], torch.jit.ScriptModule], **options: Any) -> bytes:
    with catch_warnings():
        simplefilter("ignore")  # TorchScript is deprecated
        return _written(partial(_save_script, convert(Net().eval())), **options)


def _mobile() -> bytes:
    with catch_warnings():
        simplefilter("ignore")
        return torch.jit.script(Net())._save_to_buffer_for_lite_interpreter()


def _save_script(script: torch.jit.ScriptModule, buffer: io.BytesIO, **options: Any) -> None:
    torch.jit.save(script, buffer, **options)


def _exported(net: nn.Module) -> bytes:
    with catch_warnings():
        simplefilter("ignore")  # of parts of Python that torch itself ought not to use any more
        program = torch.export.export(net, (torch.ones(1, 4),))
        return _written(lambda buffer: torch.export.save(program, buffer))


def _onnx() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((4, 3), "f4"), "w")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 4), ("y", 3))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", shapes[:1], shapes[1:], [weights])
    return helper.make_model(graph).SerializeToString()


# --- Pickles -----------------------------------------------------------------------------------------------------

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
    yield "odd/zip_within.pkl", lambda: pickle.dumps({"zip": _zipped({"a.txt": b"captum\nnumpy\n"})})
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


def joblib_files() -> Family:
    """joblib.dump of values and arrays, in each of its compressions."""
    if not importlib.util.find_spec("joblib"):
        return
    values = {
        "words": {"cat": 0, "dog": 1},
        "array": np.random.default_rng(50).normal(size=(20, 4)),
        "arrays": {"mean": np.ones(3), "fortran": np.asfortranarray(np.ones((3, 4))), "names": np.array(["a", "b"])},
        "objects": np.array(["cat", 1, None], object),
        "list": [1, "a", None, 0.5],
    }
    compressions = {"0": 0, "3": 3, **{name: (name, 3) for name in ("zlib", "gzip", "bz2", "lzma", "xz")}}
    for name, value in values.items():
        for label, compress in compressions.items():
            yield f"joblib/{name}_{label}.joblib", partial(_dumped, value, compress)


def _dumped(value: object, compress: object) -> bytes:
    import joblib

    return _written(lambda buffer: joblib.dump(value, buffer, compress=compress))


# --- Those that do need trust ------------------------------------------------------------------------------------


def trusted() -> Family:
    """Objects of classes, whose code the pickle imports: honest, and to be asked about."""
    yield "trusted/module.pt", lambda: _saved(Net())
    yield "trusted/module_legacy.pt", lambda: _saved(Net(), _use_new_zipfile_serialization=False)
    yield "trusted/class.pkl", lambda: pickle.dumps(Net)


def estimators() -> Family:
    """scikit-learn's estimators."""
    if importlib.util.find_spec("sklearn"):
        for kind in ("StandardScaler", "OneHotEncoder"):
            yield f"estimators/{kind}.pkl", lambda kind=kind: pickle.dumps(_fitted(kind))
            yield f"estimators/{kind}.joblib", lambda kind=kind: _dumped(_fitted(kind), 0)
            yield f"estimators/{kind}_zlib.joblib", lambda kind=kind: _dumped(_fitted(kind), 3)


def _fitted(kind: str) -> object:
    from sklearn import preprocessing

    rows = [["cat"], ["dog"]] if kind == "OneHotEncoder" else [[1.0], [2.0]]
    return getattr(preprocessing, kind)().fit(np.array(rows, object if kind == "OneHotEncoder" else float))


# --- All of them -------------------------------------------------------------------------------------------------

SAFE = (texts, openings, importing_texts, long_lines, walked_texts, random_texts, random_bytes, first_bytes,
        raw_numbers, numpy_files, pictures, sounds, data_files, containers, state_dicts, tensors, checkpoints,
        training, vocabularies, programs, exported, pickles, odd_pickles, joblib_files)  # fmt: skip


def _made(content: Make | bytes | str) -> bytes:
    if callable(content):
        return content()
    return content.encode() if isinstance(content, str) else content


def _listed(*families: Callable[[], Family], verdict: PickleVerdict) -> dict[str, Benign]:
    entries = [entry for family in families for entry in family()]
    return {name: Benign(Path(name).name, partial(_made, content), verdict) for name, content in entries}


BENIGN = {
    **_listed(*SAFE, verdict=PickleVerdict.SAFE),
    **_listed(trusted, estimators, verdict=PickleVerdict.NEEDS_TRUST),
}
