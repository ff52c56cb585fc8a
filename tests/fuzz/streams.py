"""Pickles that no pickler writes: made from a grammar of all opcodes, and from a corpus, then damaged."""

import pickle
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from random import Random

from fuzz import seeds

ALLOWED = [
    "collections OrderedDict", "collections Counter", "builtins set", "builtins list", "builtins dict",
    "builtins bytearray", "_codecs encode", "torch._utils _rebuild_tensor_v2", "torch FloatStorage", "torch Size",
    "torch._tensor _rebuild_from_type_v2", "copyreg _reconstructor", "builtins object", "numpy dtype", "numpy ndarray",
    "numpy._core.multiarray _reconstruct", "numpy._core.multiarray scalar", "numpy.core.multiarray _reconstruct",
    "collections defaultdict", "datetime datetime", "decimal Decimal", "joblib.numpy_pickle NumpyArrayWrapper",
]  # fmt: skip
OTHERS = [
    "posix system", "os system", "builtins eval", "__builtin__ eval", "__builtin__ set", "copy_reg _reconstructor",
    "UserDict UserDict", "itertools imap", "exceptions StandardError", "cPickle loads", "me Net", "m n", "a b.c",
    "torch.nn Linear", "torch serialization.os.system", "numpy f2py.os.system", "sys modules", "os ", " os system",
    "_sysconfigdata__linux_x86_64-linux-gnu x", "my-mod x y", "m\xe9 n\xe9", "x <locals>", "extmodule one",
    "joblib.numpy_pickle NDArrayWrapper", "torch.storage _load_from_bytes", "at dog", "a..b c", ". .", "1 2",
]  # fmt: skip
_NAMES = [(*text.split(" ", 1),) for text in ALLOWED + OTHERS] + [("", ""), ("", "x"), ("collections", "")]
CODES = b"N)\x88\x89KMJGILFSV\x8a\x8bUT\x8cX\x8dCB\x8e\x96(012\x94pqrghj]}\x8ft\x85\x86\x87ld\x91ae\x90suc\x93\x82\x83"
CODES += b"\x84R\x81\x92oibQP.\x80\x95\x97\x98"
_SIZES = [0, 1, 2, 3, 255, 256, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63,
          (1 << 64) - 1]  # fmt: skip
_PLACES = [b"0", b"1", b"2", b"00", b" 1", b"1 ", b"+2", b"-0", b"0_1", b"-1", b"1_0", b"10", b"1\0x", b"99", b"", b"x",
           b"0" * 30 + b"1", b"1" + b"0" * 30, b"\t2\r", b"0x1", b"1L", b"1\x0b", b"__1", b"\xb2"]  # fmt: skip
_INTS = [b"0", b"1", b"00", b"01", b"010", b"017", b"08", b"0x10", b"0o7", b"0b1", b"1_0", b"-1", b"+1", b" 1", b"1 ",
         b"", b"1\0x", b"\0", b"0\0", b"-0x1F", b"0_0", b"0_7", b"00_1", b"1" * 30, b"0" * 30, b"9" * 4400,
         b"0x" + b"f" * 4400, b"1L", b"-", b"0x", b"1.0", b"\t7\r", b"0L", b"\xb2", b"01\r", b" 01", b"-01", b"1__0",
         b"0X_1f", b"1\x1f"]  # fmt: skip
_REALS = [b"1.0", b"inf", b"-nan", b"1e5", b"1e999", b" 1.5", b"1_0.5", b"1.5 ", b"1.0\0x", b"", b".5", b"5.", b"0x1p3",
          b"nan\0", b"x", b"1,5", b"\0", b"infinity", b"1e-999", b"1.0\r", b"1L", b"+.5e+1", b"1e400_0"]  # fmt: skip
_QUOTED = [b"'%s'", b'"%s"', b"'%s", b"%s", b" '%s' ", b"'%s'\r", b"'%s\"", b"''%s''", b"'"]
_ESCAPED = [b"", b"a", b"os", b"\\x6fs", b"\\157s", b"\\q", b"\\", b"\\x", b"\\x4", b"\\'", b"'", b"\xe9", b"\\xe9",
            b"a\0b", b"\\0", b"\\777", b"\\8", b"\\n", b"\\N{DASH}", b"\\u0041"]  # fmt: skip
_RAW = [*rb"os \u006fs \U0000006fs \u00 \ \\u0041".split(), b"\xe9", b"\\ud800", b"\\U00110000", b"", b"a\0b"]
_UTF8 = [b"", b"a", "\xe9".encode(), b"\xed\xa0\x80", b"\xff", b"\xc3", "\U0001f600".encode(), b"x" * 300, b"y" * 5000,
         b"shape", b"dtype", b"f8", b"O8", b"V8", b"storage", b"cpu", b"append", b"__setstate__"]  # fmt: skip
_FILES = [pickle.dumps([1], 2), b"\x80\x04N.", b"PK\3\4", b"\x80\x02cos\nsystem\n)R.", b"cos\nsystem\n)R."]
_LEN1, _LEN4, _LEN8 = struct.Struct("B"), struct.Struct("<I"), struct.Struct("<Q")

Draw = Callable[[Sequence[bytes]], bytes]


def sized(code: bytes, layout: struct.Struct, content: bytes) -> bytes:
    return code + layout.pack(min(len(content), 256**layout.size - 1)) + content


def strings(text: bytes) -> list[bytes]:
    """Return a text in each spelling that has room for it."""
    found = [sized(b"X", _LEN4, text), sized(b"\x8d", _LEN8, text), sized(b"T", _LEN4, text)]
    if len(text) < 256:
        found += [sized(b"\x8c", _LEN1, text), sized(b"U", _LEN1, text)]
    if b"\n" not in text and b"\\" not in text:
        found += [b"V" + text + b"\n", b"S'" + text + b"'\n"]
    return found


@cache
def texts() -> list[bytes]:
    """Return pushes of texts, those of names among them."""
    names = {part.encode() for pair in _NAMES for part in pair}
    found = [push for text in [*sorted(names), *_UTF8] for push in strings(text)]
    found += [b"S" + form.replace(b"%s", text) + b"\n" for form in _QUOTED for text in _ESCAPED]
    return found + [b"V" + text + b"\n" for text in _RAW]


@cache
def plain() -> list[bytes]:
    """Return pushes of values that are not texts."""
    found = [b"N", b")", b"\x88", b"\x89", b"K\0", b"K\1", b"M\1\1", b"J\xff\xff\xff\xff", b"G" + bytes(8), b"]", b"}",
             b"\x8f", b"\x8a\0", b"\x8a\1\xff", b"\x8a\x09" + bytes(8) + b"\1", b"\x8b" + bytes(4)] * 4  # fmt: skip
    found += [b"I" + text + b"\n" for text in _INTS] + [b"L" + text + b"\n" for text in _INTS]
    found += [b"L" + text + b"L\n" for text in _INTS] + [b"F" + text + b"\n" for text in _REALS]
    for content in [b"", b"a", *_FILES, b"z" * 300, b"z" * 5000]:
        found += [sized(b"B", _LEN4, content), sized(b"\x8e", _LEN8, content), sized(b"\x96", _LEN8, content)]
        found += [sized(b"C", _LEN1, content)] if len(content) < 256 else []
    for size in _SIZES:
        found += [code + layout.pack(size & (256**layout.size - 1)) + b"ab" for code, layout in
                  [(b"\x8b", _LEN4), (b"T", _LEN4), (b"X", _LEN4), (b"B", _LEN4), (b"\x8d", _LEN8), (b"\x8e", _LEN8),
                   (b"\x96", _LEN8), (b"\x8a", _LEN1), (b"U", _LEN1), (b"\x8c", _LEN1), (b"C", _LEN1)]]  # fmt: skip
    return found


@cache
def working_values() -> list[bytes]:
    """Return pushes that an unpickler takes."""
    found = []
    for push in [*plain(), *texts()]:
        for loads in (pickle.loads, pickle._loads):  # type: ignore[attr-defined]
            with suppress(Exception):
                loads(push + b".", encoding="latin1")
                found.append(push)
    return found


@cache
def imports() -> list[bytes]:
    """Return imports by GLOBAL and STACK_GLOBAL, of allowed names as often as of others."""
    found = []
    for pair in _NAMES:
        module, name = (part.encode() for part in pair)
        line = b"c" + module + b"\n" + name + b"\n"
        stacked = [one + two + b"\x93" for one, two in zip(strings(module), strings(name), strict=False)]
        found += [line, line, line, *stacked] * (1 if " ".join(pair) in OTHERS else 2)
    return [*found, b"cm\xff\nn\n", b"cm\nn", b"c", b"cm\n"]


@cache
def instances() -> list[bytes]:
    return [b"i" + "\n".join(pair).encode() + b"\n" for pair in _NAMES] + [b"iposix\nsystem", b"i"]


@cache
def memo() -> list[bytes]:
    """Return memo opcodes; few places far out, as C's unpickler allocates all before them."""
    found = [code + bytes([place]) for code in (b"q", b"h") for place in (0, 0, 0, 1, 1, 2, 3, 255)]
    found += [code + _LEN4.pack(place) for code in (b"r", b"j") for place in (0, 0, 1, 1, 2, 70_000, (1 << 32) - 1)]
    found += [code + place + b"\n" for code in (b"p", b"g") for place in (b"0", b"1", b"0", b"1", b"2", *_PLACES)]
    return found + [b"\x94"] * 20


OUTSIDE = [b"Q", b"Pid\n", b"P\n", b"P\xff\n", b"P", b"\x97", b"\x98", b"\x97\x98", b"\x82\7", b"\x82\0", b"\x82\x09",
           b"\x83\x2c\1", b"\x84\x70\x11\1\0", b"\x84\xff\xff\xff\xff", b"\x84\0\0\0\0", b"\x84\7\0\0\0"]  # fmt: skip
ARGUMENTS = [b")", b"N\x85", b"(", b"]", b"}", b"(lp0\n", b"\x8f", b"N", b"(t", b"NN\x86", b"]N\x86", b"h\0",
             b"h\0\x85", b"K\1",
             b"U\1a", b"U\1a\x85", b"C\1a", b"(Nt", b"h\1", b")}", b"((tt", b"]\x85", b"}\x85", b"0", b"2"]  # fmt: skip
CALLS = [b"R", b"R", b"R", b"\x81", b"\x81", b"\x92", b"b", b"Rb", b"R}b", b"RNb", b")R", b"a", b"(e", b"(Ne", b"NNs",
         b"(u", b"(NNu", b"(Nu", b"(\x90", b"(N\x90", b"o", b"1", b"\x93", b"0", b"2", b"R\x85", b"}b", b"N}\x86b",
         b"(NN}\x86tb", b"h\0b", b"h\0R", b"Nh\0\x86b", b"h\0N\x86b"]  # fmt: skip
LOOSE = [b"(", b"(", b"0", b"1", b"2", b"t", b"\x85", b"\x86", b"\x87", b"l", b"d", b"\x91", b"a", b"e", b"\x90", b"s",
         b"u", b"\x93", b"R", b"\x81", b"\x92", b"o", b"b", b"Q", b"."]  # fmt: skip
STATES = [b"}", b"N", b"}U\6appendNs", b"(N}t", b"K\1", b"}U\1aNs", b"]",
          b"(K\3U\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t",
          b"}U\5shape)sU\5dtypecnumpy\ndtype\nU\2f8\x85Rs", b"(dU\5shapeK\1\x85sU\5dtypeNs"]  # fmt: skip
PROTOCOLS = [b"\x80" + bytes([number]) for number in (0, 1, 2, 2, 2, 3, 4, 4, 5)]
ODD_PROTOCOLS = [b"\x80\6", b"\x80\xff", b"\x80"]
TUPLES = [b")", b"N\x85", b"(t", b"NN\x86", b"h\0\x85", b"U\1a\x85", b"]\x85", b"(Nt", b"K\1K\2K\3\x87", b"}\x85", b"]"]
ON_RESULTS = [b"}b", b"Nb", b"K\1b", b"(NNu", b"Na", b"(Ne", b"(N\x90", b"NNs", b"q\0", b"q\1", b"\x94", b")R", b"2",
              b"(u", b"(e", b"N}\x86b", b"}U\1aNsb", b"\x85", b"]\x86", b"U\6appendNs", b"h\0b", b"Q", b")\x81",
              b"p1\n", b"r\0\0\0\0"]  # fmt: skip
ON_VALUES = [*b"q\0 q\1 \x94".split(), b"p0\n", *b"2 2\x86 \x85 N\x86 0 Q (e (u h\0\x86 h\0".split()]


WRAPPERS = [b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81"] * 4 + [
    b"ccopyreg\n_reconstructor\n(cjoblib.numpy_pickle\nNumpyArrayWrapper\ncbuiltins\nobject\nNtR",
    b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81q\0", b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)R", b"h\0",
    b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n(cnumpy\nndarray\nK\2\x85U\1Ccnumpy\ndtype\nU\2i4\x85RtRq\0",
    b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}(U\5shape)U\x1bnumpy_array_alignment_bytesK\x10ub", b"h\0", b"h\0",
    b"cjoblib\nnumpy_pickle.NumpyArrayWrapper\n)\x81", b"(ijoblib.numpy_pickle\nNumpyArrayWrapper\n",
]  # fmt: skip
SHAPES = [b")", b"K\2\x85", b"K\2\x85", b"K\2K\1\x86", b"K\0\x85", b"J\xff\xff\xff\xff\x85", b"]", b"K\1\x85",
          b"\x88\x85", b"G?\xf0\0\0\0\0\0\0\x85", b"(t", b"U\1a"]  # fmt: skip
DTYPES = [
    b"cnumpy\ndtype\nU" + bytes([len(code)]) + code + args + b"R" + state
    for code in [b"f8", b"i4", b"O8", b"O", b"V8", b"S3", b"U1", b"b1", b"|b1", b"f", b"M8", b"<f8", b"O4"]
    for args in [b"\x85", b"\x89\x88\x87"]
    for state in [
        b"", b"(K\3U\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb",
        b"(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb",
        b"(K\3U\1|NU\1a\x85}U\1acnumpy\ndtype\nU\2O8\x85RK\0\x86sK\x08K\1K?tb",
    ]
]  # fmt: skip
ATTRIBUTES = [b"", b"", b"U\x1bnumpy_array_alignment_bytesK\x10", b"U\x1bnumpy_array_alignment_bytesN", b"U\5orderU\1C",
              b"U\4readcbuiltins\nslice\n", b"U\5dtypecbuiltins\nslice\n", b"U\5shape)", b"U\x0callow_mmap\x88",
              b"U\nread_arraycbuiltins\nslice\n", b"U\5dtypeN"]  # fmt: skip
CONTENTS = [bytes(16), bytes(8), b"\3\xff\xff\xff" + bytes(16), b"N.", b"\x80\2N.", b"\x80\4N.",
            b"c__builtin__\nset\n.", b"\x80\2c__builtin__\nset\n.", b"\x80\5cUserDict\nCounter\n.", b"cme\nNet\n)R.",
            b"0cme\nNet\n)R.", b"", b"\x80\2]cme\nNet\n)R0.", b"N0cme\nNet\n)R0", b"(cme\nNet\n)R1", b"\0" + bytes(8),
            b"cme\nNet\n)R00000"]  # fmt: skip
WORKING_CALLS = [b"R", b"R", b"R", b"\x81", b"}\x92"]
_PHRASE_WEIGHTS: list[tuple[int, Callable[[], tuple[list[bytes], ...]]]] = [
    (35, lambda: (imports(), ARGUMENTS, CALLS)),
    (10, lambda: (imports(), ARGUMENTS, [b"R"], STATES, [b"b", b"b", b"a", b"0", b"\x86"])),
    (4, lambda: (imports(), plain(), CALLS)),
    (10, lambda: (memo(),)),
    (10, lambda: (texts(),)),
    (10, lambda: (plain(),)),
    (5, lambda: (imports(),)),
    (4, lambda: ([b"("], plain(), instances())),
    (3, lambda: (OUTSIDE,)),
    (2, lambda: (PROTOCOLS,)),
    (1, lambda: (ODD_PROTOCOLS,)),
    (10, lambda: (LOOSE,)),
]
INSERTED = (lambda: LOOSE, lambda: CALLS, lambda: ARGUMENTS, memo, imports)
PHRASES = [phrase for weight, phrase in _PHRASE_WEIGHTS for _ in range(weight)]


class Maker:
    """What draws streams, all from one seed."""

    def __init__(self, seed: int | str) -> None:
        self.random = Random(seed)
        self.corpus = corpus()

    def draw(self, pieces: Sequence[bytes]) -> bytes:
        return pieces[int(self.random.random() * len(pieces))]

    def stream(self) -> bytes:
        """Return a file of one or more pickles."""
        random = self.random.random
        kind = random()
        if kind < 0.6:
            data = self.framed(self.working() if kind < 0.35 else self.anything())
        elif kind < 0.85:
            data = self.draw(self.corpus)
        else:
            data = bytes(CODES[int(random() * len(CODES))] for _ in range(int(2 + random() * 20)))
        if kind > 0.6 or random() < 0.25:
            data = self.damaged(data)
        if random() < 0.15:
            data += self.stream()
        return data

    def working(self) -> list[bytes]:
        """Return opcodes of a program that nearly always works."""
        random, draw = self.random.random, self.draw
        made = [draw(PROTOCOLS)] if random() < 0.6 else []
        made += [draw(working_values()), b"q\0", b"\x94"]
        for _ in range(int(1 + random() * random() * 12)):
            kind = random()
            if kind < 0.45:
                made += [draw(imports()), draw(TUPLES), draw(WORKING_CALLS)]
                made += [draw(ON_RESULTS) for _ in range(int(random() * 3))]
            elif kind < 0.55:
                made += [draw(imports()), draw(ON_RESULTS)]
            elif kind < 0.85:
                made += [draw(working_values()), draw(ON_VALUES)]
            elif kind < 0.9:
                made += [b"(", draw(working_values()), draw(instances())]
            elif kind < 0.95:
                made += [b"(", draw(working_values()), draw(imports()), draw([b"t", b"l", b"d", b"\x91", b"1"])]
            else:
                made.append(draw(PROTOCOLS))
        return [*made, b"."]

    def arrays(self) -> bytes:
        """Return what joblib writes of arrays, or nearly that."""
        random, draw = self.random.random, self.draw
        made = [draw([b"\x80\2", b"\x80\4", b""]), b"]"]
        for _ in range(int(1 + random() * 3)):
            made += [
                draw(WRAPPERS),
                b"}(U\x08subclasscnumpy\nndarray\nU\5shape",
                draw(SHAPES),
                b"U\5dtype",
                draw(DTYPES),
            ]
            made += [draw(ATTRIBUTES), b"ub", draw(CONTENTS), draw([b"a", b"0", b"", b"a", b"a"])]
            if random() < 0.5:
                made += [draw(imports()), draw(TUPLES), draw(WORKING_CALLS), b"a"]
        data = self.framed([*made, b"."])
        return self.damaged(data) if random() < 0.2 else data

    def anything(self) -> list[bytes]:
        """Return opcodes of a program that may work."""
        random, draw = self.random.random, self.draw
        made = [draw(PROTOCOLS)] if random() < 0.6 else []
        for _ in range(int(1 + random() * random() * 14)):
            made += [draw(one) for one in self.random.choice(PHRASES)()]
        if random() < 0.9:
            made.append(b".")
        return made

    def framed(self, pieces: list[bytes]) -> bytes:
        """Join opcodes, with frames around some of them, or around something else."""
        random = self.random.random
        while random() < 0.15:
            at = int(random() * (len(pieces) + 1))
            rest = sum(map(len, pieces[at:]))
            kind = random()
            if kind < 0.5:  # ends between opcodes
                size = sum(map(len, pieces[at : at + 1 + int(random() * len(pieces))]))
            elif kind < 0.9:
                size = max(0, rest - 4 + int(random() * 8)) if kind < 0.6 else int(random() * (rest + 1))
            else:
                size = _SIZES[int(random() * len(_SIZES))]
            pieces.insert(at, b"\x95" + _LEN8.pack(size))
        return b"".join(pieces)

    def damaged(self, data: bytes) -> bytes:
        """Cut, flip, remove, repeat or insert bytes."""
        random = self.random.random
        for _ in range(1 + int(random() * 2.5)):
            at, kind = int(random() * (len(data) + 1)), random()
            if kind < 0.1:
                data = data[:at]
            elif kind < 0.3:
                data = data[:at] + bytes([int(random() * 256)]) + data[at + 1 :]
            elif kind < 0.5:
                data = data[:at] + data[at + 1 + int(random() * random() * 12) :]
            elif kind < 0.6:
                data = data[:at] + data[at : at + 1 + int(random() * 12)] + data[at:]
            elif kind < 0.75:
                data = data[:at] + bytes([CODES[int(random() * len(CODES))]]) + data[at + 1 :]
            else:
                data = data[:at] + self.draw(self.random.choice(INSERTED)()) + data[at:]
        return data


@cache
def corpus() -> list[bytes]:
    """Return small pickles of real objects in every protocol, and the payloads that are bare pickles."""
    import datetime as dt
    import decimal
    from collections import Counter, OrderedDict, defaultdict, deque

    import numpy as np
    from inspection.opcodes import EVIL
    from inspection.payloads import payloads

    shared = ["a"]
    values = [
        {"a": [1, -2, 1 << 40, 2.5, None, True, "ß", b"b", (1, 2)], "x": shared, "y": shared}, [shared, shared, {1: 2}],
        OrderedDict(a=1), Counter("ab"), deque([1]), defaultdict(list, a=[1]), {1, 2}, frozenset([3]), 1 + 2j, range(3),
        np.arange(3), np.float32(1), np.array([{}], dtype=object), np.zeros(2, "i4,f8"), OSError(2, "no"), len,
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC), decimal.Decimal("1.5"), bytearray(b"x"), ("a", b"b", 1 << 300), [],
    ]  # fmt: skip
    found = [pickle.dumps(value, number) for value in values for number in range(6)]
    found += [data for data in seeds.pickles().values() if len(data) < 600]
    made = (payload.content for payload in payloads().values() if isinstance(payload.content, bytes))
    return found + [EVIL] * 10 + sorted({data for data in made if len(data) < 400})
