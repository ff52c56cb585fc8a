"""The pickle machine's opcodes that push numbers, text and bytes."""

import re
from collections.abc import Callable
from struct import Struct

from marpack.weights.pickle_machine import LONGEST_TEXT, BrokenPickleError, PickleMachine

Action = Callable[[PickleMachine], None]
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def utf8(data: bytes) -> str:
    """Decode a Python 3 string."""
    return data.decode("utf-8", "surrogatepass")


def latin(data: bytes) -> str:
    """Decode a Python 2 string: names and keys are ASCII."""
    return data.decode("latin-1")


def constant(value: object) -> Action:
    """Push a value that needs no argument."""

    def action(machine: PickleMachine) -> None:
        machine.stack.append(value)

    return action


def packed(form: str) -> Action:
    """Push a number in the layout that `struct` calls `form`."""
    layout = Struct(form)

    def action(machine: PickleMachine) -> None:
        machine.stack.append(layout.unpack(machine.source.take(layout.size))[0])

    return action


def small(machine: PickleMachine) -> None:
    """Push a number of one byte."""
    machine.stack.append(machine.source.byte())


def int_line(machine: PickleMachine) -> None:
    """Push a number written in decimals; 00 and 01 are False and True."""
    line = machine.source.line()
    machine.stack.append({b"00": False, b"01": True}.get(line) if line in (b"00", b"01") else int(line.rstrip(b"L")))


def float_line(machine: PickleMachine) -> None:
    """Push a number written in decimals, with a point."""
    machine.stack.append(float(machine.source.line()))


def long(width: int) -> Action:
    """Push a number of any length."""

    def action(machine: PickleMachine) -> None:
        machine.text(machine.length(width), lambda data: int.from_bytes(data, "little", signed=True))

    return action


def string(width: int, decode: Callable[[bytes], object]) -> Action:
    """Push a text whose length stands before it."""

    def action(machine: PickleMachine) -> None:
        machine.text(machine.length(width), decode)

    return action


def text(machine: PickleMachine) -> None:
    """Push a text as torch.save writes all of them: it is worth an action of its own."""
    machine.text(machine.source.four(), utf8)


def byte_string(width: int) -> Action:
    """Push bytes whose length stands before them."""

    def action(machine: PickleMachine) -> None:
        machine.payload(machine.length(width))

    return action


def quoted(machine: PickleMachine) -> None:
    """Push a text written in quotes, with backslashes."""
    line = machine.source.line(LONGEST_TEXT).strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
        raise BrokenPickleError("a quoted string has no quotes")
    machine.stack.append(_ESCAPE.sub(_unescaped, line[1:-1].decode("latin-1")))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x":
        return chr(int(code[1:], 16))
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _LETTERS.get(code, code)


def raw_unicode(machine: PickleMachine) -> None:
    """Push a text on a line of its own."""
    machine.stack.append(machine.source.line(LONGEST_TEXT).decode("raw_unicode_escape"))
