"""One pickle, read to its STOP without being run: what it would make, import and call."""

from typing import BinaryIO

from msgspec import Struct

from marpack.weights.bytestream import ByteStream, TruncatedError
from marpack.weights.pickle_machine import WRAPPER, BrokenPickleError, Global, PickleMachine
from marpack.weights.pickle_opcodes import ACTIONS

OPCODE_LIMIT = 10_000_000  # a vocabulary of three million words needs about as many


class Stream(Struct, frozen=True, kw_only=True):
    """What one pickle would do, from its first opcode to its STOP, or as far as it gets."""

    root: object  # the value it makes, see `marpack.weights.pickle_machine`; None when it breaks off
    imports: tuple[Global, ...]  # in the order they are met, each once
    calls: int  # REDUCE, NEWOBJ, NEWOBJ_EX, OBJ and INST
    computed: bool  # a name to import is itself computed: no honest pickler writes that
    indirect: bool  # something is called that is no imported name, but the result of another call
    storages: frozenset[str]  # keys of the torch storages it refers to
    payloads: tuple[tuple[int, int], ...]  # begin and length of byte strings that look like files of their own
    codes: frozenset[int]  # the opcodes it uses, by their byte
    opcodes: int  # how many of them it executes
    start: int  # bytes from the file's start
    end: int
    problem: str | None = None  # why it breaks off; what stands before has been executed by then
    too_long: bool = False  # given up at the limit, not at a fault of the pickle's own

    @property
    def has_arrays(self) -> bool:
        """Tell whether joblib wrote it, with raw arrays between the opcodes."""
        return any(item.path == WRAPPER for item in self.imports)

    @property
    def inert(self) -> bool:
        """Tell whether it breaks off before it could do anything: a pickle to no one."""
        return self.problem is not None and not self.too_long and not self.imports and not self.computed


def read_pickle(file: BinaryIO, offset: int = 0, *, limit: int = OPCODE_LIMIT, joblib: bool = False) -> Stream:
    """Read the pickle that starts at `offset`, opcode by opcode; never raises on its content.

    Args:
        file: Seekable.
        offset: Bytes from the file's start.
        limit: How many opcodes are read.
        joblib: Read it as joblib.load does, with raw arrays between the opcodes.
    """
    machine = PickleMachine(ByteStream(file, offset), joblib=joblib)
    used = bytearray(256)
    count, problem = _run(machine, used, limit)
    return Stream(
        root=machine.stack[-1] if problem is None else None,
        imports=tuple(machine.imports),
        calls=machine.calls,
        computed=machine.computed,
        indirect=machine.indirect,
        storages=frozenset(machine.storages),
        payloads=tuple(machine.payloads),
        codes=frozenset(code for code in range(256) if used[code]),
        opcodes=count,
        start=offset,
        end=machine.source.position,
        problem=problem,
        too_long=count >= limit and machine.running,
    )


def _run(machine: PickleMachine, used: bytearray, limit: int) -> tuple[int, str | None]:
    """Execute up to STOP; return the number of opcodes, and what went wrong if anything did."""
    source, actions, count = machine.source, ACTIONS, 0
    try:
        while machine.running and count < limit:
            if source.at >= len(source.data) and not source.fill(1):
                return count, "it ends before its STOP"
            code = source.data[source.at]
            source.at += 1
            count += 1
            used[code] = 1
            actions[code](machine)
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
    return count, f"it has more than {limit:,} opcodes" if machine.running else None
