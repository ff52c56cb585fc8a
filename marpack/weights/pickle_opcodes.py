"""What each of the pickle machine's opcodes does."""

from marpack.weights import pickle_constants as push
from marpack.weights.pickle_constants import Action
from marpack.weights.pickle_machine import (
    LATEST_PROTOCOL,
    WRAPPER,
    BrokenPickleError,
    Persistent,
    PickledCall,
    PickledDict,
    PickleMachine,
)


def _mark(machine: PickleMachine) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


def _stop(machine: PickleMachine) -> None:
    if not machine.stack:
        raise IndexError
    if machine.frames:
        machine.stack, machine.marks, machine.memo = machine.frames.pop()
    else:
        machine.running = False


def _pop(machine: PickleMachine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _pop_mark(machine: PickleMachine) -> None:
    machine.pop_mark()


def _dup(machine: PickleMachine) -> None:
    machine.stack.append(machine.stack[-1])


def _put(machine: PickleMachine) -> None:
    machine.memo[_decimal(machine)] = machine.stack[-1]


def _put_at_byte(machine: PickleMachine) -> None:
    machine.memo[machine.source.byte()] = machine.stack[-1]


def _put_at_four(machine: PickleMachine) -> None:
    machine.memo[machine.source.four()] = machine.stack[-1]


def _get(machine: PickleMachine) -> None:
    machine.stack.append(machine.memo[_decimal(machine)])


def _get_at_byte(machine: PickleMachine) -> None:
    machine.stack.append(machine.memo[machine.source.byte()])


def _get_at_four(machine: PickleMachine) -> None:
    machine.stack.append(machine.memo[machine.source.four()])


def _decimal(machine: PickleMachine) -> int:
    return int(machine.source.line())


def _memoize(machine: PickleMachine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _tuple(count: int) -> Action:
    def action(machine: PickleMachine) -> None:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]

    return action


def _marked_tuple(machine: PickleMachine) -> None:
    items = machine.pop_mark()
    machine.stack.append(tuple(items))


def _marked_list(machine: PickleMachine) -> None:
    items = machine.pop_mark()
    machine.stack.append(items)


def _marked_dict(machine: PickleMachine) -> None:
    items = machine.pop_mark()
    machine.stack.append(PickledDict(list(zip(items[::2], items[1::2], strict=False))))


def _empty_list(machine: PickleMachine) -> None:
    machine.stack.append([])


def _empty_dict(machine: PickleMachine) -> None:
    machine.stack.append(PickledDict([]))


def _extend(target: object, values: list[object]) -> None:
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, PickledCall):
        target.values.extend(values)


def _append(machine: PickleMachine) -> None:
    value = machine.stack.pop()
    _extend(machine.stack[-1], [value])


def _appends(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    _extend(machine.stack[-1], values)


def _set_items(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    _update(machine.stack[-1], values)


def _set_item(machine: PickleMachine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    _update(machine.stack[-1], [key, value])


def _update(target: object, values: list[object]) -> None:
    if isinstance(target, PickledDict | PickledCall):
        target.items.extend(zip(values[::2], values[1::2], strict=False))


def _global(machine: PickleMachine) -> None:
    module = push.utf8(machine.source.line())
    machine.note(module, push.utf8(machine.source.line()))


def _stack_global(machine: PickleMachine) -> None:
    name = machine.stack.pop()
    machine.note(machine.stack.pop(), name)


def _extension(width: int) -> Action:
    def action(machine: PickleMachine) -> None:
        machine.note("copyreg", f"extension {machine.length(width)}")  # a number registered by some other code

    return action


def _reduce(machine: PickleMachine) -> None:
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), args)


def _reduce_with_keywords(machine: PickleMachine) -> None:
    keywords = machine.stack.pop()
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), (args, keywords))


def _object(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    if not values:
        raise IndexError
    machine.call(values[0], tuple(values[1:]))


def _instance(machine: PickleMachine) -> None:
    module = push.utf8(machine.source.line())
    name = push.utf8(machine.source.line())
    args = tuple(machine.pop_mark())
    machine.note(module, name)
    machine.call(machine.stack.pop(), args)


def _build(machine: PickleMachine) -> None:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if isinstance(target, PickledCall):
        target.state = state
        if machine.joblib and target.made_by(WRAPPER):
            machine.array(state)


def _persistent(machine: PickleMachine) -> None:
    key = machine.stack.pop()
    match key:
        case ("storage", _, str(name), *_):
            machine.storages.add(name)
    machine.stack.append(Persistent(key))


def _persistent_line(machine: PickleMachine) -> None:
    machine.stack.append(Persistent(push.latin(machine.source.line())))


def _unsupported(machine: PickleMachine) -> None:
    raise BrokenPickleError(f"byte {machine.source.position - 1:,} is no opcode")


def _protocol(machine: PickleMachine) -> None:
    if machine.length(1) > LATEST_PROTOCOL:
        raise BrokenPickleError("its protocol does not exist")


def _jump(width: int) -> Action:
    def action(machine: PickleMachine) -> None:
        machine.source.take(width)

    return action


def _out_of_band(_machine: PickleMachine) -> None:
    raise BrokenPickleError("it needs buffers from outside")


# The opcodes by their byte, as the standard library's pickletools documents them.
_TABLE: dict[bytes, Action] = {
    b"(": _mark,
    b".": _stop,
    b"0": _pop,
    b"1": _pop_mark,
    b"2": _dup,
    b"F": push.float_line,
    b"I": push.int_line,
    b"J": push.packed("<i"),
    b"K": push.small,
    b"L": push.int_line,
    b"M": push.packed("<H"),
    b"N": push.constant(None),
    b"P": _persistent_line,
    b"Q": _persistent,
    b"R": _reduce,
    b"S": push.quoted,
    b"T": push.string(4, push.latin),
    b"U": push.string(1, push.latin),
    b"V": push.raw_unicode,
    b"X": push.text,
    b"a": _append,
    b"b": _build,
    b"c": _global,
    b"d": _marked_dict,
    b"}": _empty_dict,
    b"e": _appends,
    b"g": _get,
    b"h": _get_at_byte,
    b"i": _instance,
    b"j": _get_at_four,
    b"l": _marked_list,
    b"]": _empty_list,
    b"o": _object,
    b"p": _put,
    b"q": _put_at_byte,
    b"r": _put_at_four,
    b"s": _set_item,
    b"t": _marked_tuple,
    b")": push.constant(()),
    b"u": _set_items,
    b"G": push.packed(">d"),
    b"\x80": _protocol,
    b"\x81": _reduce,  # NEWOBJ
    b"\x82": _extension(1),
    b"\x83": _extension(2),
    b"\x84": _extension(4),
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"\x88": push.constant(True),
    b"\x89": push.constant(False),
    b"\x8a": push.long(1),
    b"\x8b": push.long(4),
    b"B": push.byte_string(4),
    b"C": push.byte_string(1),
    b"\x8c": push.string(1, push.utf8),
    b"\x8d": push.string(8, push.utf8),
    b"\x8e": push.byte_string(8),
    b"\x8f": _empty_list,  # EMPTY_SET
    b"\x90": _appends,  # ADDITEMS
    b"\x91": _marked_list,  # FROZENSET
    b"\x92": _reduce_with_keywords,  # NEWOBJ_EX
    b"\x93": _stack_global,
    b"\x94": _memoize,
    b"\x95": _jump(8),  # FRAME
    b"\x96": push.byte_string(8),  # BYTEARRAY8
    b"\x97": _out_of_band,
    b"\x98": _jump(0),  # READONLY_BUFFER
}
ACTIONS: tuple[Action, ...] = tuple(_TABLE.get(bytes([code]), _unsupported) for code in range(256))
