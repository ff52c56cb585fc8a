"""What each of the pickle machine's opcodes does, without consequences: names are noted, calls are not made."""

import re
from collections.abc import Callable
from struct import Struct

from marpack.weights.bytestream import ByteStream
from marpack.weights.joblib_arrays import WRAPPER, is_padded, raw_length
from marpack.weights.values import UNKNOWN, Global, Made, Persistent, Skipped, Table, Unknown

LONGEST_TEXT = 64 * 1024  # bytes; longer strings are jumped over
_LATEST_PROTOCOL = 5
_MOST_PAYLOADS = 10_000
_IMPORTABLE = re.compile(r"""[^\s:()\[\]{}"'=#,;]+""")  # no module or class has another name
_FILES = frozenset([b"PK", *(b"\x80" + bytes([number]) for number in range(_LATEST_PROTOCOL + 1))])
_COMPUTED = (Made, Persistent, Unknown)  # what may turn out to be anything at all


class BrokenPickleError(Exception):
    """A real unpickler would raise here; private to the readers of this package."""


class Machine:
    """Stack, marks and memo of one pickle, and what it was seen to do."""

    __slots__ = (
        "calls", "computed", "frames", "imports", "indirect", "joblib", "marks", "memo", "payloads", "running",
        "source", "stack", "storages",
    )  # fmt: skip

    def __init__(self, source: ByteStream, *, joblib: bool = False) -> None:
        self.source = source
        self.joblib = joblib  # read it as joblib does, with raw arrays between the opcodes
        self.frames: list[tuple[list[object], list[list[object]], dict[int, object]]] = []
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.imports: dict[Global, None] = {}
        self.calls = 0
        self.computed = False
        self.indirect = False
        self.running = True
        self.storages: set[str] = set()
        self.payloads: list[tuple[int, int]] = []

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
            self.stack.append(UNKNOWN)
        else:
            raise BrokenPickleError("it imports a name that is no text")

    def call(self, function: object, args: object) -> None:
        """Push what a call would return."""
        if isinstance(function, _COMPUTED):
            self.indirect = True
        elif not isinstance(function, Global):
            raise BrokenPickleError("it calls what is no function")
        self.calls += 1
        self.stack.append(Made(function, args))

    def array(self, state: object) -> None:
        """Pass over the array behind joblib's wrapper, or begin the pickle of its objects."""
        length = raw_length(state)
        if length is None:
            self.frames.append((self.stack, self.marks, self.memo))
            self.stack, self.marks, self.memo = [], [], {}
            return
        self.source.skip(length + (self.length(1) if is_padded(state) else 0))

    def pop_mark(self) -> list[object]:
        """Return what was pushed since the last MARK."""
        if not self.marks:
            raise BrokenPickleError("a MARK is missing")
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def length(self, width: int) -> int:
        """Read the little-endian length in front of a string."""
        return self.source.byte() if width == 1 else int.from_bytes(self.source.take(width), "little")

    def text(self, size: int, decode: Callable[[bytes], object]) -> None:
        """Push a string of `size` bytes, or jump over one that is too long to name anything."""
        source, begin = self.source, self.source.at
        if begin + size <= len(source.data):  # nearly always: the window is longer than names are
            source.at = begin + size
            self.stack.append(decode(source.data[begin : source.at]))
        elif size > LONGEST_TEXT:
            source.skip(size)
            self.stack.append(Skipped(size))
        else:
            self.stack.append(decode(source.take(size)))

    def payload(self, size: int) -> None:
        """Push a byte string, and note where it lies if it could be a pickle or a zip of its own."""
        source = self.source
        begins = source.data[source.at : source.at + 2] if size > 2 and source.fill(2) else b""
        if begins in _FILES and len(self.payloads) < _MOST_PAYLOADS:
            self.payloads.append((source.position, size))
        self.text(size, bytes)


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _latin(data: bytes) -> str:
    return data.decode("latin-1")  # Python 2 strings: names and keys are ASCII


def _mark(machine: Machine) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


def _stop(machine: Machine) -> None:
    if not machine.stack:
        raise IndexError
    if machine.frames:
        machine.stack, machine.marks, machine.memo = machine.frames.pop()
    else:
        machine.running = False


def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _pop_mark(machine: Machine) -> None:
    machine.pop_mark()


def _dup(machine: Machine) -> None:
    machine.stack.append(machine.stack[-1])


def _put(index: Callable[[Machine], int]) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.memo[index(machine)] = machine.stack[-1]

    return action


def _get(index: Callable[[Machine], int]) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        key = index(machine)
        if key not in machine.memo:
            raise BrokenPickleError("it asks for a value it never kept")
        machine.stack.append(machine.memo[key])

    return action


def _one(machine: Machine) -> int:
    return machine.source.byte()


def _four(machine: Machine) -> int:
    return machine.length(4)


def _decimal(machine: Machine) -> int:
    return int(machine.source.line())


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _constant(value: object) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.stack.append(value)

    return action


def _packed(form: str) -> Callable[[Machine], None]:
    layout = Struct(form)

    def action(machine: Machine) -> None:
        machine.stack.append(layout.unpack(machine.source.take(layout.size))[0])

    return action


def _small(machine: Machine) -> None:
    machine.stack.append(machine.source.byte())


def _int_line(machine: Machine) -> None:
    line = machine.source.line()
    machine.stack.append({b"00": False, b"01": True}.get(line) if line in (b"00", b"01") else int(line.rstrip(b"L")))


def _float_line(machine: Machine) -> None:
    machine.stack.append(float(machine.source.line()))


def _long(width: int) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.text(machine.length(width), lambda data: int.from_bytes(data, "little", signed=True))

    return action


def _string(width: int, decode: Callable[[bytes], object]) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.text(machine.length(width), decode)

    return action


def _bytes(width: int) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.payload(machine.length(width))

    return action


def _quoted(machine: Machine) -> None:
    line = machine.source.line(LONGEST_TEXT).strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
        raise BrokenPickleError("a quoted string has no quotes")
    machine.stack.append(line[1:-1].decode("unicode_escape"))


def _raw_unicode(machine: Machine) -> None:
    machine.stack.append(machine.source.line(LONGEST_TEXT).decode("raw_unicode_escape"))


def _tuple(count: int) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]

    return action


def _marked_tuple(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.stack.append(tuple(items))


def _marked_list(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.stack.append(items)


def _marked_dict(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.stack.append(Table(list(zip(items[::2], items[1::2], strict=False))))


def _empty_list(machine: Machine) -> None:
    machine.stack.append([])


def _empty_dict(machine: Machine) -> None:
    machine.stack.append(Table([]))


def _extend(target: object, values: list[object]) -> None:
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, Made):
        target.values.extend(values)


def _append(machine: Machine) -> None:
    value = machine.stack.pop()
    _extend(machine.stack[-1], [value])


def _appends(machine: Machine) -> None:
    values = machine.pop_mark()
    _extend(machine.stack[-1], values)


def _set_items(machine: Machine) -> None:
    values = machine.pop_mark()
    _update(machine.stack[-1], values)


def _set_item(machine: Machine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    _update(machine.stack[-1], [key, value])


def _update(target: object, values: list[object]) -> None:
    if isinstance(target, Table | Made):
        target.items.extend(zip(values[::2], values[1::2], strict=False))


def _global(machine: Machine) -> None:
    module = _utf8(machine.source.line())
    machine.note(module, _utf8(machine.source.line()))


def _stack_global(machine: Machine) -> None:
    name = machine.stack.pop()
    machine.note(machine.stack.pop(), name)


def _extension(width: int) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.note("copyreg", f"extension {machine.length(width)}")  # a number registered by some other code

    return action


def _reduce(machine: Machine) -> None:
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), args)


def _reduce_with_keywords(machine: Machine) -> None:
    keywords = machine.stack.pop()
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), (args, keywords))


def _object(machine: Machine) -> None:
    values = machine.pop_mark()
    if not values:
        raise IndexError
    machine.call(values[0], tuple(values[1:]))


def _instance(machine: Machine) -> None:
    module = _utf8(machine.source.line())
    name = _utf8(machine.source.line())
    args = tuple(machine.pop_mark())
    machine.note(module, name)
    machine.call(machine.stack.pop(), args)


def _build(machine: Machine) -> None:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if isinstance(target, Made):
        target.state = state
        if machine.joblib and target.made_by(WRAPPER):
            machine.array(state)


def _persistent(machine: Machine) -> None:
    key = machine.stack.pop()
    match key:
        case ("storage", _, str(name), *_):
            machine.storages.add(name)
    machine.stack.append(Persistent(key))


def _persistent_line(machine: Machine) -> None:
    machine.stack.append(Persistent(_latin(machine.source.line())))


def _unsupported(machine: Machine) -> None:
    raise BrokenPickleError(f"byte {machine.source.position - 1:,} is no opcode")


def _protocol(machine: Machine) -> None:
    if machine.length(1) > _LATEST_PROTOCOL:
        raise BrokenPickleError("its protocol does not exist")


def _jump(width: int) -> Callable[[Machine], None]:
    def action(machine: Machine) -> None:
        machine.source.take(width)

    return action


def _out_of_band(_machine: Machine) -> None:
    raise BrokenPickleError("it needs buffers from outside")


# The opcodes by their byte, as the standard library's pickletools documents them.
_TABLE: dict[bytes, Callable[[Machine], None]] = {
    b"(": _mark,
    b".": _stop,
    b"0": _pop,
    b"1": _pop_mark,
    b"2": _dup,
    b"F": _float_line,
    b"I": _int_line,
    b"J": _packed("<i"),
    b"K": _small,
    b"L": _int_line,
    b"M": _packed("<H"),
    b"N": _constant(None),
    b"P": _persistent_line,
    b"Q": _persistent,
    b"R": _reduce,
    b"S": _quoted,
    b"T": _string(4, _latin),
    b"U": _string(1, _latin),
    b"V": _raw_unicode,
    b"X": _string(4, _utf8),
    b"a": _append,
    b"b": _build,
    b"c": _global,
    b"d": _marked_dict,
    b"}": _empty_dict,
    b"e": _appends,
    b"g": _get(_decimal),
    b"h": _get(_one),
    b"i": _instance,
    b"j": _get(_four),
    b"l": _marked_list,
    b"]": _empty_list,
    b"o": _object,
    b"p": _put(_decimal),
    b"q": _put(_one),
    b"r": _put(_four),
    b"s": _set_item,
    b"t": _marked_tuple,
    b")": _constant(()),
    b"u": _set_items,
    b"G": _packed(">d"),
    b"\x80": _protocol,
    b"\x81": _reduce,  # NEWOBJ
    b"\x82": _extension(1),
    b"\x83": _extension(2),
    b"\x84": _extension(4),
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"\x8a": _long(1),
    b"\x8b": _long(4),
    b"B": _bytes(4),
    b"C": _bytes(1),
    b"\x8c": _string(1, _utf8),
    b"\x8d": _string(8, _utf8),
    b"\x8e": _bytes(8),
    b"\x8f": _empty_list,  # EMPTY_SET
    b"\x90": _appends,  # ADDITEMS
    b"\x91": _marked_list,  # FROZENSET
    b"\x92": _reduce_with_keywords,  # NEWOBJ_EX
    b"\x93": _stack_global,
    b"\x94": _memoize,
    b"\x95": _jump(8),  # FRAME
    b"\x96": _bytes(8),  # BYTEARRAY8
    b"\x97": _out_of_band,
    b"\x98": _jump(0),  # READONLY_BUFFER
}
ACTIONS: tuple[Callable[[Machine], None], ...] = tuple(_TABLE.get(bytes([code]), _unsupported) for code in range(256))
