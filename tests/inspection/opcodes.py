"""Pickles put together opcode by opcode, up to the one call that all payloads make."""

import pickle
import struct


class Ops(bytes):
    """Opcodes that leave one value on the stack."""


def push(value: object) -> Ops:
    """Return the opcodes for a value; Ops within it stand for what they make."""
    match value:
        case Ops():
            return value
        case tuple():
            return Ops(b"(" + b"".join(map(push, value)) + b"t")
        case list():
            return Ops(b"(" + b"".join(map(push, value)) + b"l")
        case dict():
            return Ops(b"(" + b"".join(push(part) for item in value.items() for part in item) + b"d")
        case str():
            return Ops(b"X" + struct.pack("<I", len(value.encode())) + value.encode())
        case _:
            return Ops(pickle.dumps(value, 1)[:-1])


def ref(path: str) -> Ops:
    """Return the import of `module.name`, or of `module:a.dotted.name`."""
    module, _, name = path.rpartition(":") if ":" in path else path.rpartition(".")
    if "." in name:
        return Ops(b"\x80\x04" + push(module) + push(name) + b"\x93")
    return Ops(f"c{module}\n{name}\n".encode())


def call(function: str | Ops, *args: object) -> Ops:
    """Return a call of what a path names, or of what some opcodes make."""
    return Ops((function if isinstance(function, Ops) else ref(function)) + push(args) + b"R")


def method(name: str, target: Ops, *args: object) -> Ops:
    """Return a call of a value's method."""
    return call(call("operator.methodcaller", name, *args), target)


def line(text: bytes | str) -> bytes:
    return (text if isinstance(text, bytes) else text.encode()) + b"\n"


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text.encode())]) + text.encode()


CODE = "open('canary', 'w')"
CANARY = push("canary")
MKDIR = call("posix.mkdir", "canary")
EVIL = MKDIR + b"."  # the payload inside every wrapping
CALLED = push(("canary",)) + b"R."  # with the function on the stack
NAMED = short("posix") + short("mkdir") + b"\x93"
MODULE = b"import os\nos.mkdir('canary')\n"  # a packed module: to import it is enough


def before(opcodes: bytes) -> bytes:
    """Return the call behind a value that is dropped."""
    return opcodes + b"0" + EVIL
