"""Arrays of joblib's and numpy's that hold objects, or are shorter than they look: pickles stand where numbers do."""

import gzip
import struct
import zlib

from inspection.containers import zipped
from inspection.file_payloads import npy
from inspection.loaders import (
    Found,
    Payload,
    load_arrays,
    load_arrays_from_disk,
    load_joblib,
    load_pickle,
    load_zipped_arrays,
)
from inspection.opcodes import CALLED, EVIL, MKDIR, Ops, call, push, ref, short

WRAPPER = ref("joblib.numpy_pickle.NumpyArrayWrapper")
MADE = Ops(WRAPPER + b")\x81")  # an empty wrapper, as joblib makes one
OBJECT = Ops(call("numpy.dtype", "O8", False, True) + push((3, "|", None, None, None, -1, -1, 63)) + b"b")
HAS_OBJECTS = 63  # numpy's flags of a dtype whose elements are Python objects
ROOM = 64  # bytes of numbers that the dtype's name speaks of
SHAPE = (ROOM // 8,)


def dtype(code: str, *states: tuple[object, ...]) -> Ops:
    """Return a dtype as pickles make it: a call with a code, and then the states that BUILD gives it."""
    return Ops(call("numpy.dtype", code, False, True) + b"".join(push(state) + b"b" for state in states))


def fields(size: int = 8, **offsets: int) -> tuple[object, ...]:
    """Return the state of a dtype with fields of objects."""
    return (3, "|", None, tuple(offsets), {name: (OBJECT, at) for name, at in offsets.items()}, size, 1, HAS_OBJECTS)


def wrapped(of: Ops, shape: tuple[int, ...] = SHAPE, made: Ops = MADE, **more: object) -> bytes:
    """Return a wrapper with its state, behind which joblib reads the array."""
    state = {"subclass": ref("numpy.ndarray"), "shape": shape, "order": "C", "dtype": of, "allow_mmap": False}
    return OUTSIDE + made + push({**state, **more}) + b"b"


def numbers(opcodes: bytes, size: int = ROOM) -> bytes:
    """Return numbers that begin with opcodes, and the end of a pickle behind them."""
    return opcodes.ljust(size, b"\0") + b"."


# A pickle of objects, and the end of the one around it. It has a memo of its own: whoever reads on with that of the
# one around it sees a call of OrderedDict.
OUTSIDE = short("collections") + b"\x940" + short("OrderedDict") + b"\x940"
NESTED = numbers(short("posix") + b"\x940" + short("mkdir") + b"\x940h\0h\1\x93" + CALLED + b"..")
PLAIN = (3, "|", None, None, None, 8, 1, 0)  # the state of V8
FIELD = fields(a=0)
NO_NUMBERS = (3, "<", None, None, None, -1, -1, HAS_OBJECTS)
FLOATS = dtype("f8", (3, "<", None, None, None, -1, -1, 0))
DTYPES: dict[str, Ops] = {
    "V8 with a field": dtype("V8", FIELD),
    "V16 with two fields": dtype("V16", fields(16, a=0, b=8)),
    "V8 with a field and a title": dtype(
        "V8", (3, "|", None, ("a",), {"a": (OBJECT, 0, "t"), "t": (OBJECT, 0, "t")}, 8, 1, HAS_OBJECTS)
    ),
    "V8 with an array of objects": dtype("V8", (3, "|", (OBJECT, (1,)), None, None, 8, 1, HAS_OBJECTS)),
    "V8, its state twice": dtype("V8", PLAIN, FIELD),
    "V8, its state three times": dtype("V8", FIELD, PLAIN, FIELD),
    "V8, an older state": dtype("V8", (2, "|", None, ("a",), {"a": (OBJECT, 0)}, 8, 1)),
    "S8 with a field": dtype("S8", FIELD),
    "U2 with a field": dtype("U2", FIELD),
    "f8 with a field": dtype("f8", FIELD),
    "i8 with a field within a field": dtype(
        "i8", (3, "|", None, ("a",), {"a": (dtype("V8", FIELD), 0)}, 8, 1, HAS_OBJECTS)
    ),
    "f8, by its flags": dtype("f8", NO_NUMBERS),
    "i8, by its flags, from the memo": Ops(dtype("i8", NO_NUMBERS) + b"q\x050h\x05"),
    "u8 from the memo, changed": Ops(dtype("u8") + b"q\x05" + push(NO_NUMBERS) + b"b0h\x05"),
    "a Counter that says so": Ops(call("collections.Counter", "f8") + push({"hasobject": True}) + b"b"),
    "no new dtype": Ops(call("numpy.dtype", "V8", False) + push(FIELD) + b"b"),
}
BY_RECONSTRUCTOR = call("copyreg._reconstructor", WRAPPER, ref("builtins.object"), None)
ARGUMENTS = (ref("numpy.ndarray"), SHAPE, "C", FLOATS)
WRAPPERS: dict[str, Ops] = {
    "_reconstructor": BY_RECONSTRUCTOR,
    "REDUCE": Ops(WRAPPER + push(ARGUMENTS) + b"R"),
    "OBJ": Ops(b"(" + WRAPPER + b"".join(map(push, ARGUMENTS)) + b"o"),
    "INST": Ops(b"(" + b"".join(map(push, ARGUMENTS)) + b"ijoblib.numpy_pickle\nNumpyArrayWrapper\n"),
    "NEWOBJ_EX": Ops(WRAPPER + b")}\x92"),
    "the memo": Ops(MADE + b"q\x060h\x06"),
    "DUP": Ops(MADE + b"2"),
    "_reconstructor and the memo": Ops(BY_RECONSTRUCTOR + b"\x94"),
    "_rebuild_from_type_v2": call("torch._tensor._rebuild_from_type_v2", WRAPPER, WRAPPER, ARGUMENTS, {}),
}


def joblib_arrays() -> Found:
    """Arrays of objects whose dtype or wrapper looks like one of numbers."""
    for name, of in DTYPES.items():
        for member in ("svm.joblib", "model.bin"):
            yield f"joblib: {name} in {member}", Payload(wrapped(of) + NESTED, member, load_joblib)
    for name, made in WRAPPERS.items():
        title = f"joblib: objects, wrapper by {name}"
        yield title, Payload(wrapped(DTYPES["V8 with a field"], made=made) + NESTED, "model.bin", load_joblib)
        content = wrapped(FLOATS, made=made, numpy_array_alignment_bytes=None) + jumped()
        yield f"joblib: numbers, wrapper by {name}", Payload(content, "model.bin", load_joblib)
    changed = FLOATS + b"q\x05" + push(NO_NUMBERS) + b"b0"
    first = wrapped(Ops(FLOATS + b"q\x05")) + bytes(ROOM) + b"0"
    second = b"h\x05" + push(NO_NUMBERS) + b"b0" + wrapped(Ops(b"h\x05")) + NESTED
    yield "joblib: a dtype changed between two arrays", Payload(first + second, "svm.joblib", load_joblib)
    title = "joblib: a dtype changed before its array"
    yield title, Payload(changed + wrapped(Ops(b"h\x05")) + NESTED, "svm.joblib", load_joblib)
    shorter = dtype("V8", (3, "|", None, None, None, 4, 1, 0))
    behind = bytes(ROOM // 2) + b"0" + EVIL
    yield "joblib: V8 that is V4", Payload(wrapped(shorter) + behind.ljust(ROOM, b"\0") + b".", "a.bin", load_joblib)
    letters = dtype("U8", (3, "<", None, None, None, 4, 4, 8))
    short_text = bytes(4 * len(SHAPE) * SHAPE[0]) + b"0" + EVIL
    title = "joblib: U8 that is U1"
    yield title, Payload(wrapped(letters) + short_text.ljust(32 * SHAPE[0], b"\0") + b".", "a.bin", load_joblib)
    opcodes = wrapped(FLOATS) + b"0" + EVIL
    framed = b"\x80\x04\x95" + struct.pack("<Q", len(opcodes)) + opcodes
    hidden = framed.ljust(len(framed) + ROOM, b"\0") + b"."
    yield "joblib: a frame around the array's place", Payload(hidden, "svm.joblib", load_joblib)
    raw = wrapped(FLOATS) + numbers(MKDIR + b".")
    yield "joblib: numbers that are opcodes to pickle.load", Payload(raw, "svm.joblib", load_pickle)
    named = ref("os.name") + short("mkdir") + b"\x93" + CALLED + b"\xff"
    title = "joblib: numbers that are an imported name to pickle.load"
    yield title, Payload(wrapped(FLOATS) + numbers(named), "model.bin", load_pickle)
    for name in ("gz", "zlib"):
        pack = gzip.compress if name == "gz" else zlib.compress
        title = f"joblib: V8 with a field in {name}"
        yield title, Payload(pack(wrapped(DTYPES["V8 with a field"]) + NESTED), "model.bin", load_joblib)
    yield from _companions()


def jumped() -> bytes:
    """Return numbers, and the call behind them: read as opcodes, the numbers are a byte string that holds the call."""
    behind = b"0" + EVIL
    return (b"\x8e" + struct.pack("<Q", ROOM - 9 + len(behind))).ljust(ROOM, b"\0") + behind + b"0N."


def _companions() -> Found:
    """Arrays in files of their own, as joblib wrote them up to 0.9."""
    compat = ref("joblib.numpy_pickle_compat.NDArrayWrapper")
    state = {"filename": "svm_01.npy", "subclass": ref("numpy.ndarray"), "allow_mmap": False}
    files = {"svm_01.npy": npy("'O'"), "svm_01": npy("[('a', 'O')]")}
    for name, path in (("in a file beside", "svm_01.npy"), ("in a file without suffix", "svm_01")):
        content = Ops(compat + b")\x81") + push({**state, "filename": path}) + b"b."
        yield f"joblib: objects {name}", Payload(content, "svm.pkl", load_joblib, files)


def z_file(content: bytes = EVIL, length: str = "{:#x}", level: int = 6, gap: bytes = b"", rest: bytes = b"") -> bytes:
    """Return a file of joblib up to 0.9: ZF, the size in hex in 19 characters, zlib."""
    return b"ZF" + length.format(len(content)).encode().ljust(19) + gap + zlib.compress(content, level) + rest


PADDED = EVIL + b"\0" * 5000
Z_FILES: dict[str, bytes] = {
    "plain": z_file(),
    "a space more": z_file(gap=b" "),
    "in capitals": z_file(length="0X{:X}"),
    "no 0x": z_file(length="{:x}"),
    "underscores": z_file(length="0x0_{:x}"),
    "a sign": z_file(length="+{:#x}"),
    "spaces before": z_file(length="   {:#x}"),
    "zeros": z_file(length="0x000000000{:x}"),
    "level 0": z_file(level=0),
    "level 9": z_file(PADDED, level=9),
    "bytes behind": z_file(rest=b"\0" * 100),
    "an imported name": z_file(ref("os.name") + short("mkdir") + b"\x93" + CALLED + b"."),
    "a list as arguments": z_file(ref("posix.mkdir") + push(["canary"]) + b"R\xff"),
}


def z_files() -> Found:
    """What joblib still reads of what it wrote up to 0.9."""
    for name, content in Z_FILES.items():
        yield f"joblib's ZF: {name}", Payload(content, "weights.bin", load_joblib)
    for member in ("svm.pkl", "svm.pkl.z", "svm", "svm.dat", "svm.joblib", "svm.pickle", "tokenizer.model"):
        yield f"joblib's ZF as {member}", Payload(z_file(), member, load_joblib)


SIZES = {"i": 4, "f": 4, "S": 0, "U": 0, "V": 0, "<i": 4, ">f": 4, "=i": 4, "|f": 4, "<U": 0, "|S": 0, "|V": 0}
STRUCTURED = {
    "[('a', 'i')]": 4, "[('a', 'i'), ('b', 'f')]": 8, "[('a', '<i', (3,))]": 12, "[('a', 'f'), ('b', 'S')]": 4,
    "[('a', 'i'), ('', 'V4')]": 8, "[('a', [('b', 'i')])]": 4,
}  # fmt: skip
BEHIND = npy("'|O'")


def first_array(descr: str, shape: tuple[int, ...], numbers: int) -> bytes:
    """Return an array of numbers with another one, of objects, behind it."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(numbers) + BEHIND


SHAPES: dict[str, tuple[tuple[int, ...], int]] = {  # with the bytes that numpy reads nevertheless
    "negative": ((-1,), 0), "two negatives": ((-2, -3), 48), "negative and positive": ((-1, 8), 0),
    "negative, back to its header's start": ((-9,), 0),
    "negative, far": ((-(1 << 40), 1), 0), "over 64 bits": ((1 << 64,), 0), "2**63": ((1 << 63, 2), 0),
    "overflowing to 0": ((1 << 32, 1 << 32), 0), "overflowing to 8": (((1 << 61) + 1, 8), 64),
    "overflowing, times 0": (((1 << 32) + 1, 1 << 32, 0), 0),
}  # fmt: skip


def array_rows() -> Found:
    """A file of several arrays, of which the first is shorter than its code and shape seem to say."""
    for code, size in SIZES.items():
        loaders = (load_arrays, load_arrays_from_disk) if size else (load_arrays,)
        for load in loaders:
            content = first_array(repr(code), (8,), 8 * size)
            yield f"npy: {code!r}, then objects, by {load.__name__}", Payload(content, "data.npy", load)
    for descr, size in STRUCTURED.items():
        content = first_array(descr, (8,), 8 * size)
        yield f"npy: {descr}, then objects", Payload(content, "stats.bin", load_arrays)
    for name, (shape, size) in SHAPES.items():
        for load in (load_arrays,) if min(shape) < 0 else (load_arrays, load_arrays_from_disk):
            content = first_array("'<f8'", shape, size)
            yield f"npy: a shape {name}, then objects, by {load.__name__}", Payload(content, "data.npy", load)
    inside = zipped({"a.npy": first_array("'i'", (8,), 32)})
    yield "npz: an array behind another one", Payload(inside, "data.npz", load_zipped_arrays)
