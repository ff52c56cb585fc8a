"""Honest files as archives carry them, made as their own programs make them: none may be called dangerous.

`benign.py` looks for false alarms byte by byte; this list has whole files, and says which of them may need trust.
"""

import importlib.util
import io
import json
import pickle
import sqlite3
import struct
import wave
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import joblib
import numpy as np
import torch
from inspection.benign import BENIGN, Make, Net, made
from inspection.containers import written
from inspection.honest_texts import LANGUAGES
from PIL import Image
from torch import nn

DATA = Path(__file__).parents[1] / "data"
PROTOCOLS = range(6)
Files = Iterator[tuple[str, Make | bytes | str]]


class Honest(NamedTuple):
    """One file."""

    member: str  # its name in the archive
    make: Make
    may_need_trust: bool = False


def saved(value: object, protocol: int = 2, *, legacy: bool = False) -> bytes:
    return written(
        lambda file: torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    )


def in_both_formats(name: str, make: Callable[[], object], protocols: range = range(2, 3)) -> Files:
    """Yield a value as torch.save writes it now, and as it did before 1.6.

    torch.save writes protocol 0, too, although torch.load cannot read its tensors: where they are in an older file is
    known to no one.
    """
    for protocol in protocols:
        yield f"{name}_p{protocol}.pt", lambda protocol=protocol: saved(make(), protocol)
        if protocol:
            yield f"{name}_p{protocol}.bin", lambda protocol=protocol: saved(make(), protocol, legacy=True)


class Larger(nn.Module):
    """A network of many kinds of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.rows = nn.LSTM(8, 6, num_layers=2, bidirectional=True)
        self.picture = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU(), nn.GroupNorm(2, 4))
        self.attention = nn.TransformerEncoderLayer(8, 2, 16)
        self.register_buffer("mask", torch.ones(4, 4, dtype=torch.bool).tril())


@cache
def larger() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return Larger().state_dict()


def state_dicts() -> Files:
    """Weights of a model, in every protocol and both formats."""
    yield from in_both_formats("larger", larger, PROTOCOLS)
    halves: dict[str, Callable[[], object]] = {
        "half": lambda: {name: value.half() for name, value in larger().items()},
        "bfloat16": lambda: {name: value.bfloat16() for name, value in larger().items()},
        "tied": lambda: dict.fromkeys(("embed.weight", "head.weight"), torch.ones(5, 3)),
        "checkpoint": lambda: {"epoch": 3, "state_dict": larger(), "best": 0.91, "args": {"lr": 1e-3, "name": "a"}},
        "sharded": lambda: {f"layers.{number}.weight": torch.full((2, 2), float(number)) for number in range(60)},
        "lora": lambda: {f"base_model.model.q.lora_{part}.weight": torch.ones(2, 8) for part in "AB"},
    }
    for name, make in halves.items():
        yield from in_both_formats(name, make)


OPTIMIZERS = (
    "SGD", "Adam", "AdamW", "Adamax", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS",
)  # fmt: skip
SCHEDULERS: dict[str, dict[str, Any]] = {
    "StepLR": {"step_size": 3}, "MultiStepLR": {"milestones": [2, 5]}, "ExponentialLR": {"gamma": 0.9},
    "CosineAnnealingLR": {"T_max": 10}, "CosineAnnealingWarmRestarts": {"T_0": 3}, "LinearLR": {}, "PolynomialLR": {},
    "ReduceLROnPlateau": {}, "OneCycleLR": {"max_lr": 1.0, "total_steps": 10},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "cycle_momentum": False}, "LambdaLR": {"lr_lambda": lambda _: 1.0},
}  # fmt: skip


def trained(kind: str) -> torch.optim.Optimizer:
    """Return an optimizer after one step."""
    net = Net()
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1, **options)

    def closure() -> torch.Tensor:
        loss = net(torch.ones(2, 4)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return optimizer


def optimizers() -> Files:
    """Optimizers' states, with schedules and the scaler of mixed precision."""
    for kind in OPTIMIZERS:
        protocols = PROTOCOLS if kind in ("SGD", "AdamW") else range(2, 3)
        yield from in_both_formats(f"optimizer_{kind}", lambda kind=kind: trained(kind).state_dict(), protocols)
    for kind, options in SCHEDULERS.items():
        yield from in_both_formats(f"schedule_{kind}", partial(scheduled, kind, options))
    yield from in_both_formats("scaler", lambda: torch.amp.GradScaler("cpu").state_dict(), PROTOCOLS)
    yield from in_both_formats("training", training)


def scheduled(kind: str, options: dict[str, Any]) -> object:
    with catch_warnings():
        simplefilter("ignore")  # nobody trains here
        schedule = getattr(torch.optim.lr_scheduler, kind)(trained("SGD"), **options)
        schedule.step(*([0.5] if kind == "ReduceLROnPlateau" else []))
    return schedule.state_dict()


def training() -> object:
    parts = {"model": larger(), "optimizer": trained("AdamW").state_dict()}
    return parts | {"scaler": torch.amp.GradScaler("cpu").state_dict(), "rng": torch.get_rng_state(), "epoch": 3}


KINDS = (
    "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8", "S5", "U5",
    "M8[D]", "M8[ns]", "m8[s]", "V6",
)  # fmt: skip
STRUCTURED: dict[str, Any] = {
    "pairs": [("x", "f4"), ("y", "i8")], "names": [("name", "U7"), ("code", "S3"), ("on", "?")],
    "nested": [("at", [("x", "f4"), ("y", "f4")]), ("t", "M8[s]")], "shaped": [("box", "f4", (2, 2)), ("id", "u2")],
    "offsets": {"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [0, 16], "itemsize": 24},
    "elements": [("C", "f4"), ("H", "f4"), ("O", "f4")],  # 'O' is also how numpy spells Python objects
    "titled": [(("the size", "size"), "f4"), ("n", "i4")], "aligned": np.dtype([("a", "i1"), ("b", "f8")], align=True),
}  # fmt: skip
COMPRESSIONS: dict[str, Any] = {
    "0": 0, "1": 1, "9": 9, **{name: (name, 3) for name in ("zlib", "gzip", "bz2", "xz")},
}  # fmt: skip


def array(kind: Any) -> np.ndarray:
    dtype = np.dtype(kind)
    return np.frombuffer(np.random.default_rng(3).integers(32, 90, 4 * dtype.itemsize, np.uint8).tobytes(), dtype)


def arrays() -> dict[str, np.ndarray]:
    """Return an array of every numeric type, and some of unusual shapes."""
    found = {f"kind_{number}": array(kind) for number, kind in enumerate(KINDS)}
    numbers = np.arange(24, dtype="f4")
    return found | {name: array(kind) for name, kind in STRUCTURED.items()} | {
        "fortran": np.asfortranarray(numbers.reshape(4, 6)), "cube": numbers.reshape(2, 3, 4), "view": numbers[::3],
        "scalar": np.array(1.5), "empty": np.zeros((0, 3)),
    }  # fmt: skip


def numpy_files() -> Files:
    """.npy and .npz, and arrays in pickles."""
    for name, value in arrays().items():
        yield f"{name}.npy", partial(written, np.save, value)
    write, objects = np.lib.format.write_array, np.array([1, "a", None, [1.5]], object)
    yield "objects.npy", partial(written, np.save, objects)
    yield "version_2.npy", lambda: written(write, np.ones(3), (2, 0))
    yield "version_3.npy", lambda: written(write, np.ones(3, [("\u732b", "f4")]), (3, 0))
    yield "all.npz", lambda: written(np.savez, **arrays())
    yield "all_compressed.npz", lambda: written(np.savez_compressed, **arrays())
    for protocol in PROTOCOLS:
        yield f"arrays_p{protocol}.pkl", lambda protocol=protocol: pickle.dumps(arrays(), protocol)
        yield (
            f"scalars_p{protocol}.pkl",
            lambda protocol=protocol: pickle.dumps(
                {"mean": np.float32(0.5), "n": np.int64(3), "on": np.True_, "day": np.datetime64("2024-01-01")},
                protocol,
            ),
        )


def joblib_files() -> Files:
    """Plain values by joblib.dump, compressed or not."""
    for label, compress in COMPRESSIONS.items():
        yield f"names_{label}.joblib", partial(dumped, lambda: {"names": ["a", "b"], "scale": 2.0}, compress)


def dumped(make: Callable[[], object], compress: object, protocol: int | None = None) -> bytes:
    return written(lambda file: joblib.dump(make(), file, compress=compress, protocol=protocol))


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizers() -> Files:
    """The files of tokenizers as transformers writes them, in many languages."""
    for language, words in LANGUAGES.items():
        tokens = words.split()
        pieces = [
            *SPECIAL,
            *(f"[unused{number}]" for number in range(9)),
            *tokens,
            *(f"##{word[-2:]}" for word in tokens),
        ]
        yield f"{language}/vocab.txt", "\n".join(pieces) + "\n"
        yield f"{language}/merges.txt", "#version: 0.2\n" + "".join(f"{word[:1]} {word[1:]}\n" for word in tokens)
        yield f"{language}/vocab.json", json.dumps({token: number for number, token in enumerate(pieces)})
        yield f"{language}/dict.txt", "".join(f"{word} {900 - number}\n" for number, word in enumerate(tokens))
        yield f"{language}/spiece.model", partial(sentencepiece, tokens)
        yield f"{language}/tokenizer.json", json.dumps(tokenizer(pieces), ensure_ascii=False, indent=2)
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    yield "special_tokens_map.json", json.dumps(roles, indent=2)
    yield "added_tokens.json", json.dumps({"<image>": 32000, "<|im_start|>": 32001})
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 512, "do_lower_case": True, **roles}
    yield "tokenizer_config.json", json.dumps(config, indent=2)
    yield "chat_template.jinja", "{% for message in messages %}{{ message['content'] }}{% endfor %}\n"
    yield "tekken.json", json.dumps({"vocab": [{"rank": 0, "token_bytes": "AA=="}], "config": {"pattern": r"[^\r\n]+"}})
    yield "vocab.tiktoken", "".join(f"{word} {number}\n" for number, word in enumerate(["IQ==", "Ig==", "Iw=="]))
    for path in sorted(DATA.glob("sentencepiece/*.model")):
        yield f"sentencepiece/{path.name}", path.read_bytes


def tokenizer(pieces: list[str]) -> dict[str, object]:
    """Return what is in tokenizer.json."""
    special = [{"id": number, "content": token, "special": True} for number, token in enumerate(SPECIAL)]
    vocab = {token: number for number, token in enumerate(pieces)}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": vocab}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "model": model}


def field(number: int, content: bytes) -> bytes:
    """Return a field of a protobuf."""
    size, digits = len(content), b""
    while size > 127:
        digits, size = digits + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + digits + bytes([size]) + content


def sentencepiece(words: list[str]) -> bytes:
    """Return a model with the table of Unicode's normal forms that most models bring: here random bytes."""
    pieces = [b"<unk>", b"<s>", b"</s>", *("▁".encode() + word.encode() for word in words)]
    scored = (field(1, piece) + b"\x15" + struct.pack("<f", -number) for number, piece in enumerate(pieces))
    table = np.random.default_rng(len(words)).bytes(20_000)
    return b"".join(field(1, item) for item in scored) + field(3, field(1, b"nmt_nfkc") + field(2, table))


PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "grey.png": ("L", {}), "palette.png": ("P", {}), "alpha.png": ("RGBA", {}), "bits.png": ("1", {}),
    "deep.png": ("I;16", {}), "grey.jpeg": ("L", {}), "progressive.jpeg": ("RGB", {"progressive": True}),
    "cmyk.jpeg": ("CMYK", {}), "palette.gif": ("P", {}), "bits.bmp": ("1", {}), "grey.bmp": ("L", {}),
    "color.bmp": ("RGB", {}), "alpha.bmp": ("RGBA", {}), "plain.tiff": ("RGB", {}),
    "lzw.tiff": ("RGB", {"compression": "tiff_lzw"}), "deflate.tiff": ("L", {"compression": "tiff_deflate"}),
    "color.ppm": ("RGB", {}), "color.pcx": ("RGB", {}), "color.tga": ("RGB", {}), "color.dib": ("RGB", {}),
    "color.sgi": ("RGB", {}), "color.pdf": ("RGB", {}), "color.eps": ("RGB", {}), "color.jpeg2000": ("RGB", {}),
    "bits.xbm": ("1", {}), "bits.msp": ("1", {}), "color.dds": ("RGB", {}), "color.qoi": ("RGB", {}),
    "lossy.webp": ("RGB", {}), "lossless.webp": ("RGBA", {"lossless": True}), "favicon.ico": ("RGBA", {}),
}  # fmt: skip


def pictures() -> Files:
    """What Pillow writes, in several sizes: sizes and colors are among the first bytes."""
    for name, (mode, options) in PICTURES.items():
        for size in (1, 32, 83):
            yield f"{size}_{name}", partial(picture, name, mode, size, options)


def picture(name: str, mode: str, size: int, options: dict[str, Any]) -> bytes:
    noise = Image.frombytes("RGB", (size, size), np.random.default_rng(size).bytes(3 * size * size))
    image = noise.convert("L").convert("I").convert(mode) if mode == "I;16" else noise.convert(mode)
    return written(image.save, format=name.rpartition(".")[2], **options)


def sounds() -> Files:
    """Sounds in whole and in heads."""
    for channels, rate, width in ((1, 8000, 1), (1, 16000, 2), (2, 44100, 2), (2, 48000, 4)):
        yield f"{channels}_{rate}_{width}.wav", partial(sound, channels, rate, width)
    noise = np.random.default_rng(7).bytes(2000)
    for number, head in enumerate(
        (b"\xff\xfb\x90\x64", b"\xff\xf3\x40\xc4", b"ID3\x04\0\0\0\0\0\x23TSSE\0\0\0\x0f\0\0\3")
    ):
        yield f"{number}.mp3", head + noise
    yield "speech.flac", b"fLaC\0\0\0\x22\x10\0\x10\0" + noise
    yield "speech.ogg", b"OggS\0\2" + bytes(8) + noise


def sound(channels: int, rate: int, width: int) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(rate).bytes(400 * channels * width))
    return buffer.getvalue()


def safetensors_files() -> Files:
    """A header of every length: its number is the file's first byte, any opcode."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}, separators=(",", ":")).encode()
    numbers = np.linspace(-1, 1, 8, dtype="f4").tobytes()
    for length in range(256, 512):
        yield f"{length}.safetensors", struct.pack("<Q", length) + header.ljust(length) + numbers


def text_of(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(version: int = 3, names: int = 1) -> bytes:
    """Return a model of llama.cpp's: its head, keys with values, one tensor."""
    keys = [("general.architecture", "llama"), ("general.name", "tiny"), ("tokenizer.ggml.model", "gpt2")][:names]
    fields = b"".join(text_of(key) + struct.pack("<I", 8) + text_of(value) for key, value in keys)
    described = text_of("token_embd.weight") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", version, 1, len(keys)) + fields + described
    return head.ljust(len(head) + -len(head) % 32, b"\0") + np.ones(8, "f4").tobytes()


LIGHTGBM = "tree\nversion=v4\nnum_class=1\nmax_feature_idx=3\nobjective=binary sigmoid:1\n\nTree=0\nnum_leaves=2\n"
XGBOOST = {"learner": {"objective": {"name": "binary:logistic"}}, "version": [2, 0, 3]}


def weights_files() -> Files:
    """Models and tables of other programs."""
    for names in (1, 2, 3):
        yield f"{names}.gguf", partial(gguf, 3, names)
    yield "old.gguf", partial(gguf, 2)
    yield "model.json", json.dumps(XGBOOST)
    yield (
        "model.ubj",
        b"{L" + struct.pack(">q", 7) + b"learner{L" + struct.pack(">q", 9) + b"objectiveSL\0\0\0\0\0\0\0\1a}}",
    )
    yield "model.xgb", b"binf" + struct.pack("<fI", 0.5, 4) + bytes(130)
    yield "lightgbm.txt", LIGHTGBM
    yield "catboost.cbm", b"CBM1" + struct.pack("<I", 64) + np.random.default_rng(8).bytes(200)
    yield "labels.sqlite", database
    yield "table.parquet", partial(table, "parquet")
    yield "table.feather", partial(table, "feather")
    yield "module.cpython-311.pyc", compiled
    yield "core.so", lambda: Path(str(importlib.util.find_spec("msgspec._core").origin)).read_bytes()
    if found := importlib.util.find_spec("matplotlib"):
        folder = Path(str(found.origin)).parent / "mpl-data" / "fonts" / "ttf"
        yield "font.ttf", (folder / "DejaVuSansMono.ttf").read_bytes
    if importlib.util.find_spec("onnx"):
        for opset in (9, 13, 17, 21):
            yield f"opset_{opset}.onnx", partial(onnx_model, opset)


def database() -> bytes:
    with sqlite3.connect(":memory:") as file:
        file.execute("CREATE TABLE labels (id INTEGER PRIMARY KEY, name TEXT)")
        file.executemany("INSERT INTO labels (name) VALUES (?)", [("cat",), ("dog",)])
    content = file.serialize()
    file.close()
    return content


def table(kind: str) -> bytes:
    import pyarrow as pa
    from pyarrow import feather, parquet

    rows = pa.table({"name": ["cat", "dog"], "score": [0.5, 0.25]})
    write = parquet.write_table if kind == "parquet" else feather.write_feather
    return written(lambda buffer: write(rows, buffer))


def compiled() -> bytes:
    import marshal

    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile("import os\n", "module.py", "exec"))


def onnx_model(opset: int) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    weights = numpy_helper.from_array(np.eye(4, dtype="f4"), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", ports[:1], ports[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()


def estimators() -> Files:
    """scikit-learn's estimators, tables of pandas, eager quantized modules: their classes are code."""
    if importlib.util.find_spec("sklearn"):
        for kind in ("StandardScaler", "LogisticRegression", "DecisionTreeClassifier", "TfidfVectorizer"):
            yield f"{kind}.pkl", lambda kind=kind: pickle.dumps(fitted(kind))
            yield f"{kind}.joblib", lambda kind=kind: dumped(partial(fitted, kind), 3)
    for protocol in (2, 4, 5):
        yield f"table_p{protocol}.pkl", partial(frame, protocol)
    yield "quantized.pt", lambda: saved(quantized().state_dict())
    yield "quantized_module.pt", lambda: saved(quantized())
    yield "module.pt", lambda: saved(Net())


def fitted(kind: str) -> object:
    from sklearn import feature_extraction, linear_model, preprocessing, tree

    rows, labels = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), [0, 1, 0]
    if kind == "TfidfVectorizer":
        return feature_extraction.text.TfidfVectorizer().fit(["a cat sat", "a dog ran"])
    module = next(module for module in (preprocessing, linear_model, tree) if hasattr(module, kind))
    return getattr(module, kind)().fit(rows, labels)


def frame(protocol: int) -> bytes:
    import pandas as pd

    return pickle.dumps(pd.DataFrame({"name": ["cat", "dog"], "score": [0.5, 0.25]}), protocol)


def quantized() -> nn.Module:
    with catch_warnings():
        simplefilter("ignore")  # torch's eager quantization is deprecated
        return torch.ao.quantization.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.qint8)


QUICK = (state_dicts, numpy_files, joblib_files, tokenizers, pictures, sounds, safetensors_files)
SLOW = (optimizers, weights_files)  # seconds, of imports most of all
NEED_TRUST = (estimators,)


def listed(*families: Callable[[], Files], may_need_trust: bool = False) -> dict[str, Honest]:
    """Return the files of some families by name."""
    found = {}
    for family in families:
        for name, content in family():
            path = f"{family.__name__}/{name}"
            found[path] = Honest(Path(name).name, partial(made, content), may_need_trust)
    return found


def benign(*, slow: bool) -> dict[str, Honest]:
    """Return the files of `benign.py` by name."""
    names = (name for name in BENIGN if name.startswith("vocabularies/") is slow)
    return {name: Honest(Path(name).name, BENIGN[name]) for name in names}
