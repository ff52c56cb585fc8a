"""What Python's own unpickler runs and C's refuses: joblib, pandas' second try, dill and torch.package use Python's."""

import itertools
import struct
from collections.abc import Callable
from pathlib import Path

from inspection.import_payloads import DAMAGE, QUIET
from inspection.loaders import (
    Found,
    Payload,
    load_again,
    load_frames,
    load_joblib,
    load_pandas,
    load_persistent,
    load_pickle,
    load_python,
)
from inspection.opcodes import CALLED, CANARY, EVIL, MKDIR, MODULE, Ops, call, push, ref, short

FUNCTION = ref("posix.mkdir")
BOUND = Ops(ref("functools.partial") + push([FUNCTION, "canary"]) + b"R")  # called with nothing, it makes the file


def packed_set(*items: object) -> Ops:
    return Ops(b"\x8f(" + b"".join(map(push, items)) + b"\x90")


def packed_frozenset(*items: object) -> Ops:
    return Ops(b"(" + b"".join(map(push, items)) + b"\x91")


ARGUMENTS: dict[str, bytes] = {
    "a list": FUNCTION + push(["canary"]),
    "a list, appended to": FUNCTION + b"]" + CANARY + b"a",
    "a list, extended": FUNCTION + b"](" + CANARY + b"e",
    "a list from the memo": push(["canary"]) + b"\x940" + FUNCTION + b"h\0",
    "a dict": FUNCTION + push({"canary": None}),
    "a dict, updated": FUNCTION + b"}" + CANARY + b"Ns",
    "a set": FUNCTION + packed_set("canary"),
    "a frozenset": FUNCTION + packed_frozenset("canary"),
    "an empty list": BOUND + b"]",
    "an empty dict": BOUND + b"}",
    "an empty set": BOUND + b"\x8f",
    "an empty text": BOUND + push(""),
    "empty bytes": BOUND + b"C\0",
    "an empty bytearray": BOUND + b"\x96" + bytes(8),
    "a text of one letter": ref("quiet.run") + push("x"),
    "a long text": ref("quiet.run") + push("x" * 5000),
    "bytes": ref("quiet.run") + b"C\1x",
    "keys of an OrderedDict": FUNCTION + call("collections.OrderedDict", [("canary", 1)]),
}
ENDS = {b".": "vocab.txt", DAMAGE: "weights.bin"}
PYTHONS: dict[str, Callable[[Path], object]] = {
    "svm.joblib": load_joblib, "model.bin": load_joblib, "table.pkl": load_pandas, "table.dat": load_pandas,
}  # fmt: skip


def other_arguments() -> Found:
    """REDUCE and NEWOBJ take whatever can be iterated over."""
    files = {"quiet.py": QUIET}
    for (name, opcodes), (end, member) in itertools.product(ARGUMENTS.items(), ENDS.items()):
        title = f"REDUCE with {name} in {member}"
        yield title, Payload(opcodes + b"R" + end, member, load_python, files)
    for member, load in PYTHONS.items():
        for name in ("a list", "a dict", "a set", "an empty text"):
            yield f"REDUCE with {name} in {member}", Payload(ARGUMENTS[name] + b"R" + DAMAGE, member, load, files)
    for path in ("zipfile.ZipFile", "gzip.open", "logging.FileHandler", "codecs.open"):
        title = f"REDUCE of {path} with a list"
        yield title, Payload(ref(path) + push(["canary", "w"]) + b"R.", "notes.txt", load_python)
    mapped = ref("builtins.map") + push([FUNCTION, ["canary"]])
    listed = push([Ops(mapped + b"\x81")])
    for name, content in {
        "NEWOBJ with a list": ref("builtins.tuple") + listed + b"\x81",
        "NEWOBJ with a dict": ref("builtins.tuple") + b"}" + mapped + b"\x81Ns\x81",
        "NEWOBJ_EX with a list": ref("builtins.tuple") + listed + b"}\x92",
        "NEWOBJ_EX with a frozenset": ref("builtins.tuple") + packed_frozenset(Ops(mapped + b"\x81")) + b"}\x92",
    }.items():
        yield name, Payload(content + DAMAGE, "notes.txt", load_python)
        yield f"{name}, whole", Payload(b"\x80\x04" + content + b".", "notes.txt", load_python)


REPLACED = ref("copyreg.__dict__") + b"(" + push("_reconstructor") + FUNCTION  # for SETITEMS
REPLACED_CALL = ref("copyreg._reconstructor") + CALLED + b"."  # a name that honest pickles use


def framed(size: int, rest: bytes) -> bytes:
    return b"\x95" + struct.pack("<Q", size) + rest


DIFFERENCES: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "SETITEMS without the last value": (REPLACED + b"Nu" + REPLACED_CALL, load_again),
    "a name replaced in an earlier pickle": (REPLACED + b"u" + DAMAGE + REPLACED_CALL, load_again),
    "SETITEM in an earlier pickle": (
        ref("copyreg.__dict__") + push("_reconstructor") + FUNCTION + b"s" + DAMAGE + REPLACED_CALL, load_again,
    ),
    "BUILD of a module in an earlier pickle": (
        ref("posixpath.genericpath") + push({"exists": FUNCTION}) + b"b" + DAMAGE + ref("genericpath.exists")
        + CALLED + b".", load_again,
    ),
    "BUILD of a class in an earlier pickle": (
        ref("collections.Counter") + push((None, {"__init__": FUNCTION})) + b"b" + DAMAGE
        + ref("collections.Counter") + CALLED + b".", load_again,
    ),
    "FRAME beyond the end": (framed(10_000, EVIL), load_python),
    "FRAME beyond the end, damaged": (framed(10_000, MKDIR + DAMAGE), load_python),
    "a second FRAME before the first one's end": (framed(30, MKDIR + framed(2, b"N.") + bytes(30)), load_python),
    "a pickle behind the frame of the first": (framed(60, b"N.".ljust(60, b"\xff")) + EVIL, load_frames),
    "a pickle behind the frame, damaged": (framed(60, b"N.".ljust(60, b"\xff")) + MKDIR + DAMAGE, load_frames),
    "a string across the frame's end": (MKDIR + framed(3, b"\x8c\x05ab" + b"cde0N."), load_python),
    "a line across the frame's end": (MKDIR + framed(3, b"Vab" + b"cd\n."), load_python),
    "INST at the end of the file": (b"(" + CANARY + b"iposix\nmkdirs", load_python),
    "INST with no end of line": (b"N0(iquiet\nrunx", load_python),
    "GLOBAL with no end of line": (b"cevil\nnamex", load_python),
    "OBJ, damaged": (b"(" + FUNCTION + CANARY + b"o" + DAMAGE, load_pickle),
    "persistent id and then the call, damaged": (b"Pstorage\n0" + MKDIR + DAMAGE, load_persistent),
    "persistent id of a tuple": (b"(N(" + CANARY + b"ttQ0" + MKDIR + DAMAGE, load_persistent),
    "BINPERSID of the call": (MKDIR + b"Q" + DAMAGE, load_pickle),
    "POP of a MARK, damaged": (b"(0" + MKDIR + DAMAGE, load_python),
    "EXT1 of a name registered by SETITEM, damaged": (
        ref("copyreg._inverted_registry") + push(240) + push(("posix", "mkdir")) + b"s0\x82\xf0" + CALLED + DAMAGE,
        load_python,
    ),
    "ends behind the call": (MKDIR, load_python),
    "ends within an opcode behind the call": (MKDIR + b"X\xff\xff", load_python),
}  # fmt: skip


def differences() -> Found:
    """Streams that one unpickler follows further than the other, in files whose names claim nothing."""
    files = {"evil.py": MODULE, "quiet.py": QUIET}
    for name, (content, load) in DIFFERENCES.items():
        yield name, Payload(content, "notes.txt", load, files)


CLASSES = b"""
import numpy


class Run:
    def __init__(self, state):
        run()


class Array(numpy.ndarray):
    def __array_finalize__(self, other):
        run()


"""
HELPERS: dict[str, bytes] = {
    "_rebuild_from_type_v2": call(
        "torch._tensor._rebuild_from_type_v2", FUNCTION, ref("torch.Tensor"), ("canary",), {}
    ),
    "_reconstructor": call(
        "copyreg._reconstructor", ref("subprocess.Popen"), ref("subprocess.Popen"), ["mkdir", "canary"]
    ),
    "_reconstructor of a packed class": call("copyreg._reconstructor", ref("quiet.Run"), ref("quiet.Run"), 1),
    "_rebuild_from_type_v2, then the state of a class": Ops(
        call("torch._tensor._rebuild_from_type_v2", ref("builtins.type"), ref("builtins.type"),
             (call("collections.Counter"),), {"__init__": FUNCTION})
        + b"0" + call("collections.Counter", "canary")
    ),
    "_rebuild_from_type_v2 of a packed function": call(
        "torch._tensor._rebuild_from_type_v2", ref("quiet.run"), ref("torch.Tensor"), (), {}
    ),
    "numpy's _reconstruct of a packed class": call(
        "numpy._core.multiarray._reconstruct", ref("quiet.Array"), (0,), "b"
    ),
    "defaultdict's factory": call(
        "operator.getitem", call("collections.defaultdict", BOUND), "key"
    ),
    "list of a map": call("builtins.list", Ops(ref("builtins.map") + push((FUNCTION, ["canary"])) + b"\x81")),
    "deque of a map": call("collections.deque", Ops(ref("builtins.map") + push((FUNCTION, ["canary"])) + b"\x81")),
}  # fmt: skip


def helpers() -> Found:
    """The allow-list's own functions, asked to call what they are given."""
    files = {"quiet.py": QUIET + CLASSES}
    for name, opcodes in HELPERS.items():
        for end, member in ((b".", "model.pkl"), (DAMAGE, "notes.txt")):
            title = f"helper {name} in {member}"
            yield title, Payload(opcodes + end, member, load_python, files)
    named = short("posix") + short("mkdir") + b"\x93" + CALLED
    for member in ("net.pth", "net.bin", "net.ckpt", "net.p", "net.dat", "net"):
        yield f"damaged behind the call, {member}", Payload(named + DAMAGE, member, load_pickle)
