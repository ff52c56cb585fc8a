"""Imports that hide: names that are themselves imported, modules with unusual names, files of two formats at once."""

import json
import pickle
import struct
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import rich
from inspection.loaders import (
    HELD,
    Found,
    Payload,
    load_bytes,
    load_every,
    load_joblib,
    load_pandas,
    load_pickle,
    load_python,
    load_torch,
    load_torch_then_pickle,
    torch_bytes,
)
from inspection.opcodes import CALLED, CODE, EVIL, MODULE, Ops, before, push, ref, short
from lazy import torch

DAMAGE = b"\xff"  # not an opcode: behind the call, it makes the stream look like other data
SETTINGS = b"MODULE = 'posix'\nNAME = 'mkdir'\n"  # a packed module that runs nothing when it is imported
MODULE_NAME = ref("os.name")  # the string 'posix'
FUNCTION_NAME = ref("pathlib:Path.mkdir.__name__")
IMPORTED_NAMES: dict[str, bytes] = {
    "module": MODULE_NAME + push("mkdir"),
    "module, short string": MODULE_NAME + short("mkdir"),
    "module through another module": ref("posixpath:os.name") + push("mkdir"),
    "module of a class": ref("torch:Size.__module__") + push("serialization.os.mkdir"),
    "module of a function": ref("posixpath:join.__module__") + push("os.mkdir"),
    "module's own name": ref("posixpath:os.__name__") + push("mkdir"),
    "module from the memo": MODULE_NAME + b"q\x070h\x07" + push("mkdir"),
    "module twice on the stack": MODULE_NAME + b"2" + push("mkdir"),
    "module from a packed module": ref("settings.MODULE") + push("mkdir"),
    "name": push("posix") + FUNCTION_NAME,
    "name in Unicode": b"Vposix\n" + FUNCTION_NAME,
    "name from the memo": FUNCTION_NAME + b"\x940" + push("posix") + b"h\0",
    "name from a packed module": push("posix") + ref("settings.NAME"),
    "both": MODULE_NAME + FUNCTION_NAME,
    "both from a packed module": ref("settings.MODULE") + ref("settings.NAME"),
}
HIDDEN = IMPORTED_NAMES["module"] + b"\x93" + CALLED  # the call by such an import
HIDDEN_EVAL = ref("builtins:eval.__module__") + ref("builtins:eval.__name__") + b"\x93" + push((CODE,)) + b"R"
LOOSE_NAMES = ["vocab.pkl", "notes.txt", "weights.bin", "model.pth", "words.pickle.gz.bak", "tokenizer.model", "data"]


def legacy(number: int, put: bytes = EVIL) -> bytes:
    """Return a torch.save of before 1.6 with one of its five pickles exchanged."""
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, HELD, []]
    return b"".join(put if at == number else pickle.dumps(part, 2) for at, part in enumerate(parts))


def imported_names() -> Found:
    """STACK_GLOBAL takes what was imported for a module or a name."""
    files = {"settings.py": SETTINGS}
    for name, names in IMPORTED_NAMES.items():
        for load in (load_pickle, load_python):
            content = b"\x80\x04" + names + b"\x93" + CALLED + b"."
            yield f"imported name, {name}, by {load.__name__}", Payload(content, "vocab.pkl", load, files)
        title = f"imported name, {name}, in a text"
        yield title, Payload(names + b"\x93" + CALLED + DAMAGE, "notes.txt", load_pickle, files)
    for member in LOOSE_NAMES:
        yield f"imported name in {member}", Payload(HIDDEN + b".", member, load_pickle)
        yield f"imported name in {member}, damaged", Payload(b"N0" + HIDDEN + DAMAGE, member, load_python)
    yield "imported name, eval", Payload(HIDDEN_EVAL + b".", "labels.txt", load_bytes)
    yield "imported name by joblib", Payload(HIDDEN + b".", "svm.joblib", load_joblib)
    yield "imported name by pandas", Payload(HIDDEN + b".", "table.pkl", load_pandas)
    yield "imported name behind hex", Payload(before(b"I0x1\n")[: -len(EVIL)] + HIDDEN + b".", "v.pkl", load_pickle)
    yield "imported name in the second pickle", Payload(pickle.dumps(HELD) + HIDDEN + b".", "rows.bin", load_every)
    for number in range(5):
        title = f"imported name in torch's old pickle {number + 1}"
        yield title, Payload(legacy(number, HIDDEN + b"."), "model.pt", load_torch)
    for number in (1, 3):
        title = f"imported name in torch's old pickle {number + 1}, damaged"
        yield title, Payload(legacy(number, HIDDEN + DAMAGE), "weights.bin", load_torch)
    old = torch_bytes({"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
    title = "imported name behind torch's old storages"
    yield title, Payload(old + HIDDEN + DAMAGE, "model.pt", load_torch_then_pickle)
    yield "imported name as torch's magic number", Payload(HIDDEN + DAMAGE, "model.pt", load_torch)


QUIET = b"import os\n\n\ndef run(*args):\n    os.mkdir('canary')\n"  # runs nothing until it is called
DYNAMIC = b"import os\n\n\ndef __getattr__(name):\n    return os.mkdir\n"
SYSCONFIG = sysconfig._get_sysconfigdata_name()  # _sysconfigdata__linux_x86_64-linux-gnu
NO_BYTES = Ops(b"C\0")
WRITING: dict[str, tuple[str, tuple[object, ...]]] = {
    "loader": ("__loader__.set_data", ("canary", NO_BYTES)),
    "spec's loader": ("__spec__.loader.set_data", ("canary", NO_BYTES)),
    "bytecode": ("__loader__._cache_bytecode", ("", "canary", NO_BYTES)),
    "class of its loader": ("__loader__.__class__.set_data", (None, "canary", NO_BYTES)),
}
ODD_MODULES = ["my-mod", "2nd", "my mod", "class", "a+b", "v1.0-rc", "mod\xa0ule", "@", "my-mod~1"]
ODD_NAMES = ["a-b", "a b", "1", "run!", "-", "[0]", "a\tb", "\xb2"]


def unusual_names() -> Found:
    """Installed and packed modules whose names look like text, and attributes that do."""
    installed = [SYSCONFIG, *_rich_modules()]
    for module in installed:
        for name, (path, args) in WRITING.items():
            function = Ops(b"\x80\x04" + push(module) + push(path) + b"\x93")
            for end, member in ((b".", "net.pkl"), (DAMAGE, "notes.txt")):
                content = function + push(args) + b"R" + end
                yield f"{module}, {name}, in {member}", Payload(content, member, load_pickle)
    evaluate = Ops(b"\x80\x04" + push(SYSCONFIG) + push("__builtins__.get") + b"\x93") + push(("eval",)) + b"R"
    yield "__builtins__ of sysconfig's data", Payload(evaluate + push((CODE,)) + b"R.", "labels.txt", load_pickle)
    title = "__builtins__ of sysconfig's data, damaged"
    yield title, Payload(evaluate + push((CODE,)) + b"R" + DAMAGE, "labels.txt", load_python)
    for module in ODD_MODULES:
        files = {f"{module.replace('.', '/')}.py": QUIET}
        for end, member in ((b".", "net.pkl"), (b".", "labels.txt"), (DAMAGE, "notes.bin")):
            content = push(module) + push("run") + b"\x93)R" + end
            yield f"function of module {module!r} in {member}, {end!r}", Payload(content, member, load_pickle, files)
        as_line = f"c{module}\nrun\n".encode() + b")R" + DAMAGE
        yield f"function of module {module!r}, by lines", Payload(as_line, "notes.txt", load_pickle, files)
        imported = {f"{module.replace('.', '/')}.py": MODULE}
        alone = f"c{module}\nname\n.".encode()
        yield f"import of module {module!r} alone, in a text", Payload(alone, "labels.txt", load_pickle, imported)
    for attribute in ODD_NAMES:
        content = push("dynamic") + push(attribute) + b"\x93" + CALLED
        for end, member in ((b".", "labels.txt"), (DAMAGE, "weights.bin")):
            title = f"attribute {attribute!r} in {member}"
            yield title, Payload(content + end, member, load_pickle, {"dynamic.py": DYNAMIC})


def _rich_modules() -> Iterator[str]:
    """Yield a module of an installed package whose name has dashes, if that release has any."""
    found = sorted(Path(rich.__path__[0]).glob("_unicode_data/unicode*-*.py"))
    yield from (f"rich._unicode_data.{path.stem}" for path in found[:1])


HOP = 0x7E  # the longest string that SHORT_BINSTRING jumps over whose length is one printable character


def safetensors(first: bytes, length_bytes: int, evil: bytes, code: bytes = b"U") -> bytes:
    """Return an exact safetensors file that is a pickle, too.

    Its first opcode takes the header's length for a string, further ones in the metadata jump over the header's rest,
    and the call is among the numbers. `length_bytes` of length follow the first opcode; the least of them is the second
    byte of the header's length. `code` is the opcode of the strings in the metadata.
    """
    skipped = 40
    header_bytes = int.from_bytes(first + bytes([skipped]), "little")
    begin = 1 + length_bytes + skipped  # of the opcodes in the metadata
    described = {"dtype": "U8", "shape": [len(evil)], "data_offsets": [0, len(evil)]}
    opening = b'{"__metadata__":{"note":"'
    closing = f'"}},"w":{json.dumps(described, separators=(",", ":"))}}}'.encode()
    text = opening.ljust(begin - 8, b"-")
    while (left := header_bytes - len(text) - 2) > HOP:
        hop = min(HOP, left - 2 - len(closing))  # the last string holds all of the closing
        text += code + bytes([hop]) + b"-" * hop
    return struct.pack("<Q", header_bytes) + text + code + bytes([left]) + closing.rjust(left, b"-") + evil


def resembling(evil: bytes) -> bytes:
    """Return a pickle that begins like a safetensors file, and is none."""
    return b"X" + struct.pack("<I", 40) + bytes(3) + b'{"w":{"dtype":"F32"' + b" " * 18 + evil + b" " * 20_000


def bitmap(evil: bytes) -> bytes:
    """Return a picture whose first bytes are BINBYTES and a length of 77."""
    pixels = (b"\0" * 28 + evil).ljust(320, b"\0")
    header = struct.pack("<IiiHHIIiiII", 40, 10, 10, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return b"BM" + bytes(8) + struct.pack("<I", 54) + header + pixels


def gif(evil: bytes) -> bytes:
    """Return a picture whose first bytes are BINFLOAT and its number, with the call in its palette."""
    screen = b"GIF89a\1\0\1N\x8fNN"  # 1 x 19,969 pixels, a palette of 256 colors
    return screen + evil.ljust(3 * 256, b"\0") + b",\0\0\0\0\1\0\1\0\0\x08\x04\0\1\4\4\0;"


def onnx(evil: bytes) -> bytes:
    """Return an ONNX model whose first field, its version, is MARK and SHORT_BINSTRING, with the call in a name."""
    text = b"-" * 55 + evil  # behind the 58 bytes that the graph's tag takes for a length
    name = b"\x12" + bytes([len(text)]) + text
    return b"\x28U" + b"\x3a" + bytes([len(name)]) + name + b"\x08\x08\x42\x04\n\0\x10\x12"


POLYGLOTS: dict[str, Callable[[bytes], bytes]] = {
    "safetensors, SHORT_BINSTRING": lambda evil: safetensors(b"U", 1, evil),
    "safetensors, BINUNICODE": lambda evil: safetensors(b"X", 4, evil),
    "safetensors, SHORT_BINBYTES": lambda evil: safetensors(b"C", 1, evil, b"C"),
    "safetensors, BINBYTES": lambda evil: safetensors(b"B", 4, evil, b"C"),
    "safetensors, BINSTRING": lambda evil: safetensors(b"T", 4, evil),
    "safetensors, SHORT_BINUNICODE": lambda evil: safetensors(b"\x8c", 1, evil),
    "safetensors, LONG1": lambda evil: safetensors(b"\x8a", 1, evil),
    "safetensors, LONG4": lambda evil: safetensors(b"\x8b", 4, evil),
    "like safetensors": resembling,
    "BMP": bitmap,
    "GIF": gif,
    "ONNX": onnx,
}
READ_AS: dict[str, Callable[[Path], object]] = {
    "model.pkl": load_pickle, "model.pickle": load_python, "model.joblib": load_joblib, "model.pt": load_torch,
    "model.pth": load_torch, "table.pkl": load_pandas, "weights.bin": load_torch,
}  # fmt: skip


def polyglots() -> Found:
    """Weights and pictures that a pickle's reader reads as well."""
    for name, make in POLYGLOTS.items():
        for kind, evil in {"a call": EVIL, "an imported name": HIDDEN + b".", "damage behind": HIDDEN + DAMAGE}.items():
            yield f"{name} with {kind}", Payload(make(evil), "model.pkl", load_pickle)
    for member, load in READ_AS.items():
        yield f"safetensors as {member}", Payload(safetensors(b"U", 1, HIDDEN + b"."), member, load)
        yield f"safetensors as {member}, plain call", Payload(safetensors(b"X", 4, EVIL), member, load)
