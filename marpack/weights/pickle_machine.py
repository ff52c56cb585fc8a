"""The pickle machine: one pickle, read to its STOP opcode by opcode, and nothing of it run."""

import re
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from struct import Struct
from typing import Any, BinaryIO, ClassVar

from marpack.weights.bytestream import ByteStream, TruncatedError
from marpack.weights.pickle_stream import (
    WRAPPER,
    BrokenPickleError,
    Global,
    Persistent,
    PickledCall,
    PickledDict,
    Skipped,
    Stream,
    Unknown,
    array_bytes,
    decimal,
    unquoted,
)

OPCODE_LIMIT = 10_000_000  # a vocabulary of three million words needs about as many
_LONGEST_TEXT = 4096  # bytes; longer strings are jumped over, longer lines are none
_LATEST_PROTOCOL = 5
_MAX_PAYLOADS = 10_000
_1, _2, _4, _8 = Struct("B"), Struct("<H"), Struct("<I"), Struct("<Q")
_IMPORTABLE = re.compile(r"""[^\s:()\[\]{}"'=#,;]+""")  # no module or class has another name
_FILES = frozenset([b"PK", *(b"\x80" + bytes([number]) for number in range(_LATEST_PROTOCOL + 1))])
_COMPUTED = (PickledCall, Persistent, Unknown)  # what may turn out to be anything at all

Decode = Callable[[bytes], object]
_utf8: Decode = methodcaller("decode", "utf-8", "surrogatepass")
_latin: Decode = methodcaller("decode", "latin-1")  # what Python 2 wrote: names and keys are ASCII
_raw: Decode = methodcaller("decode", "raw_unicode_escape")
_signed: Decode = partial(int.from_bytes, byteorder="little", signed=True)


def read_pickle(file: BinaryIO, offset: int = 0, *, limit: int = OPCODE_LIMIT, joblib: bool = False) -> Stream:
    """Read the pickle that starts at `offset`, opcode by opcode; never raises on its content.

    Args:
        file: Seekable.
        offset: Bytes from the file's start.
        limit: How many opcodes are read.
        joblib: Read it as joblib.load does, with raw arrays between the opcodes.
    """
    machine = _Machine(ByteStream(file, offset), joblib=joblib)
    count, problem = machine.run(limit)
    return Stream(
        root=machine.stack[-1] if problem is None else None,
        imports=tuple(machine.imports),
        calls=machine.calls,
        computed=machine.computed,
        indirect=machine.indirect,
        storages=frozenset(machine.storages),
        payloads=tuple(machine.payloads),
        codes=frozenset(code for code in range(256) if machine.used[code]),
        opcodes=count,
        start=offset,
        end=machine.source.position,
        problem=problem,
        too_long=count >= limit and machine.running,
    )


def _dict(values: list[object]) -> PickledDict:
    return PickledDict(list(zip(values[::2], values[1::2], strict=False)))


class _Machine:
    """Stack, marks and memo of one pickle, what it was seen to do, and a method for each thing that opcodes do."""

    def __init__(self, source: ByteStream, *, joblib: bool) -> None:
        self.source = source
        self.joblib = joblib
        self.frames: list[tuple[list[object], list[list[object]], dict[bytes, object]]] = []
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[bytes, object] = {}  # see `key`
        self.imports: dict[Global, None] = {}
        self.calls = 0
        self.computed = False
        self.indirect = False
        self.running = True
        self.storages: set[str] = set()
        self.payloads: list[tuple[int, int]] = []
        self.used = bytearray(256)

    def run(self, limit: int) -> tuple[int, str | None]:
        """Execute up to STOP; return the number of opcodes, and what went wrong if anything did."""
        source, used, count = self.source, self.used, 0
        try:
            while self.running and count < limit:
                if source.at >= len(source.data) and not source.fill(1):
                    return count, "it ends before its STOP"
                code = source.data[source.at]
                source.at += 1
                count += 1
                used[code] = 1
                action, operand = _ACTIONS[code]
                if operand is None:
                    action(self)
                else:
                    action(self, operand)
        except TruncatedError:
            return count, "it ends in the middle of an opcode"
        except BrokenPickleError as error:
            return count, str(error)
        except IndexError:
            return count, "its stack runs empty"
        except KeyError:
            return count, "it asks for a value that it never kept"
        except (ValueError, OverflowError):
            return count, "an argument cannot be read"
        return count, f"it has more than {limit:,} opcodes" if self.running else None

    def take(self, size: int) -> bytes:
        source = self.source
        if source.at + size > len(source.data) and not source.fill(size):
            raise TruncatedError
        source.at += size
        return source.data[source.at - size : source.at]

    def number(self, layout: Struct) -> Any:  # Any: an int or a float, as the layout has it
        return layout.unpack(self.take(layout.size))[0]

    def line(self) -> bytes:
        source = self.source
        end = source.data.find(b"\n", source.at)
        if end < 0:
            source.fill(_LONGEST_TEXT)
            end = source.data.find(b"\n", source.at)
        if end < 0:
            raise TruncatedError
        return self.take(end + 1 - source.at)[:-1]

    def push(self, value: object = None) -> None:
        self.stack.append(value)

    def push_number(self, layout: Struct) -> None:
        self.stack.append(self.number(layout))

    def push_line(self, decode: Decode) -> None:
        self.stack.append(decode(self.line()))

    def push_text(self, form: tuple[Struct, Decode]) -> None:
        layout, decode = form
        size = self.number(layout)
        if decode is bytes:
            self.note_file(size)
        if size > _LONGEST_TEXT:
            self.source.skip(size)
            self.stack.append(Skipped(size))
        else:
            self.stack.append(decode(self.take(size)))

    def note_file(self, size: int) -> None:
        """Note where a byte string lies if it could be a pickle or a zip of its own."""
        source = self.source
        begins = source.data[source.at : source.at + 2] if size > 2 and source.fill(2) else b""
        if begins in _FILES and len(self.payloads) < _MAX_PAYLOADS:
            self.payloads.append((source.position, size))

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def popped(self, count: int = 0) -> list[object]:
        """Return the `count` values on top; 0: what was pushed since the last MARK."""
        if not count:
            if not self.marks:
                raise BrokenPickleError("a MARK is missing")
            items, self.stack = self.stack, self.marks.pop()
            return items
        if len(self.stack) < count:
            raise IndexError
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def pop(self) -> None:
        self.popped(1 if self.stack else 0)

    def duplicate(self) -> None:
        self.stack.append(self.stack[-1])

    def key(self, size: int) -> bytes:
        """Read a place in the memo: in bytes, as one could choose numbers whose hashes all collide."""
        number = self.take(size) if size else int(self.line()).to_bytes(_LONGEST_TEXT, "little")
        return number.rstrip(b"\0")

    def put(self, size: int) -> None:
        self.memo[self.key(size)] = self.stack[-1]

    def get(self, size: int) -> None:
        self.stack.append(self.memo[self.key(size)])

    def memoize(self) -> None:
        self.memo[len(self.memo).to_bytes(8, "little").rstrip(b"\0")] = self.stack[-1]

    def push_new(self, kind: Callable[[], object]) -> None:
        self.stack.append(kind())

    def push_tuple(self, count: int) -> None:
        items = tuple(self.popped(count))
        self.stack.append(items)

    def collect(self, kind: Callable[[list[object]], object]) -> None:
        items = self.popped()
        self.stack.append(kind(items))

    def extend(self, count: int = 0) -> None:
        values, target = self.popped(count), self.stack[-1]
        if isinstance(target, PickledCall):
            target = target.values
        if isinstance(target, list):
            target.extend(values)

    def update(self, count: int = 0) -> None:
        values, target = self.popped(count), self.stack[-1]
        if isinstance(target, PickledDict | PickledCall):
            target.items.extend(_dict(values).items)

    def note(self, module: object, name: object) -> None:
        """Push an imported name, and remember that it was imported."""
        if isinstance(module, str) and isinstance(name, str):
            if not (_IMPORTABLE.fullmatch(module) and _IMPORTABLE.fullmatch(name)):
                raise BrokenPickleError("it imports what can have no such name")
            found = Global(module, name)
            self.imports[found] = None
            self.stack.append(found)
        elif isinstance(module, _COMPUTED) or isinstance(name, _COMPUTED):
            self.computed = True
            self.stack.append(Unknown())
        else:
            raise BrokenPickleError("it imports a name that is no text")

    def push_global(self) -> None:
        self.note(_utf8(self.line()), _utf8(self.line()))

    def push_named(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.note(module, name)

    def push_extension(self, layout: Struct) -> None:
        self.note("copyreg", f"extension_{self.number(layout)}")  # a number registered by some other code

    def call(self, function: object, args: object) -> None:
        """Push what a call would return."""
        if isinstance(function, _COMPUTED):
            self.indirect = True
        elif not isinstance(function, Global):
            raise BrokenPickleError("it calls what is no function")
        self.calls += 1
        self.stack.append(PickledCall(function, args))

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.call(function, args)

    def reduce_with_keywords(self) -> None:
        keywords, args, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.call(function, (args, keywords))

    def make_object(self) -> None:
        values = self.popped()
        self.call(values[0], tuple(values[1:]))

    def make_instance(self) -> None:
        module, name, args = _utf8(self.line()), _utf8(self.line()), tuple(self.popped())
        self.note(module, name)
        self.call(self.stack.pop(), args)

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PickledCall):
            target.state = state
            if self.joblib and target.made_by(WRAPPER):
                self.array(state)

    def array(self, state: object) -> None:
        """Pass over the array behind joblib's wrapper, or begin the pickle of its objects."""
        length, is_padded = array_bytes(state)
        if length is None:
            self.frames.append((self.stack, self.marks, self.memo))
            self.stack, self.marks, self.memo = [], [], {}
            return
        self.source.skip(length + (self.take(1)[0] if is_padded else 0))

    def persist(self) -> None:
        key = self.stack.pop()
        match key:
            case ("storage", _, str(name), *_):
                self.storages.add(name)
        self.stack.append(Persistent(key))

    def persist_line(self) -> None:
        self.stack.append(Persistent(_latin(self.line())))

    def stop(self) -> None:
        if not self.stack:
            raise IndexError
        if self.frames:
            self.stack, self.marks, self.memo = self.frames.pop()
        else:
            self.running = False

    def check_protocol(self) -> None:
        if self.number(_1) > _LATEST_PROTOCOL:
            raise BrokenPickleError("its protocol does not exist")

    def refuse(self, why: str) -> None:
        raise BrokenPickleError(why)

    def refuse_byte(self) -> None:
        raise BrokenPickleError(f"byte {self.source.position - 1:,} is no opcode")

    # By their byte, as the standard library's pickletools documents them; some methods take an operand from here
    OPCODES: ClassVar[dict[bytes, tuple[Callable[..., object], *tuple[object, ...]]]] = {
        b"N": (push,), b")": (push, ()), b"\x88": (push, True), b"\x89": (push, False), b"K": (push_number, _1),
        b"M": (push_number, _2), b"J": (push_number, Struct("<i")), b"G": (push_number, Struct(">d")),
        b"I": (push_line, decimal), b"L": (push_line, decimal), b"F": (push_line, float), b"S": (push_line, unquoted),
        b"V": (push_line, _raw), b"\x8a": (push_text, (_1, _signed)), b"\x8b": (push_text, (_4, _signed)),
        b"U": (push_text, (_1, _latin)), b"T": (push_text, (_4, _latin)), b"\x8c": (push_text, (_1, _utf8)),
        b"X": (push_text, (_4, _utf8)), b"\x8d": (push_text, (_8, _utf8)), b"C": (push_text, (_1, bytes)),
        b"B": (push_text, (_4, bytes)), b"\x8e": (push_text, (_8, bytes)), b"\x96": (push_text, (_8, bytes)),
        b"(": (mark,), b"0": (pop,), b"1": (popped,), b"2": (duplicate,), b"\x94": (memoize,),
        b"p": (put, 0), b"q": (put, 1), b"r": (put, 4), b"g": (get, 0), b"h": (get, 1), b"j": (get, 4),
        b"]": (push_new, list), b"}": (push_new, PickledDict), b"\x8f": (push_new, list),  # \x8f: EMPTY_SET
        b"t": (push_tuple, 0), b"\x85": (push_tuple, 1), b"\x86": (push_tuple, 2), b"\x87": (push_tuple, 3),
        b"l": (collect, list), b"d": (collect, _dict), b"\x91": (collect, list),  # \x91: FROZENSET
        b"a": (extend, 1), b"e": (extend,), b"\x90": (extend,), b"s": (update, 2), b"u": (update,),  # \x90: ADDITEMS
        b"c": (push_global,), b"\x93": (push_named,), b"\x82": (push_extension, _1), b"\x83": (push_extension, _2),
        b"\x84": (push_extension, _4), b"R": (reduce,), b"\x81": (reduce,), b"\x92": (reduce_with_keywords,),
        b"o": (make_object,), b"i": (make_instance,), b"b": (build,), b"Q": (persist,), b"P": (persist_line,),
        b".": (stop,), b"\x80": (check_protocol,), b"\x97": (refuse, "it needs buffers from outside"),
        b"\x95": (take, 8), b"\x98": (take, 0),  # FRAME and READONLY_BUFFER say nothing that we need
    }  # fmt: skip


_ROWS = (_Machine.OPCODES.get(bytes([code]), (_Machine.refuse_byte,)) for code in range(256))
_ACTIONS = tuple((action, operand[0] if operand else None) for action, *operand in _ROWS)
