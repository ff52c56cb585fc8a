"""The messages between parent and worker, the pipe that carries them, and the notes that a worker collects for them.

Parent → child: `Load`, then any number of `Predict`. Child → parent: `Loaded` or `LoadFailed`, then for each
`Predict` any number of `ResponseChunk` and one `Answered` or `Dying`. Exceptions never cross the boundary: they are
flattened to `Trouble`.
"""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from marpack.protocol.targets import Target
from marpack.torchserve import MAX_BODY
from marpack.torchserve.http import Request, Response, ResponseChunk

DATA = "[DATA]"  # begins a line of `--show-data`
METRICS = "[METRICS]"  # begins a metric's line
MAX_MESSAGE = 256 << 20  # bytes of a message to the parent besides its responses
_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16  # bytes read at once
_GONE = (BrokenPipeError, ConnectionResetError)
_MAX_COUNT = 100  # of notes and outputs: a handler may be called a million times between two drains
R = TypeVar("R")


class Frame(Struct, frozen=True):
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""
    user: bool = False  # in the archive's own files


class Trouble(Struct, frozen=True, kw_only=True):
    """The reason for a response, reported to the author with it."""

    kind: str  # the exception's class, or a word such as "diagnostic"
    message: str
    stage: str | None = None  # import, construct, initialize, preprocess, inference, postprocess, handle, respond
    frames: tuple[Frame, ...] = ()  # outermost first
    hint: str | None = None
    notes: tuple[str, ...] = ()
    only_here: bool = False  # not on the server, which has the missing module
    code_fault: bool = False  # a NameError, ImportError or SyntaxError: no request is the cause of it


class Access(StrEnum):
    """How something outside of an archive is touched."""

    READ = "read"
    WRITE = "write"
    CONNECT = "connect"  # host:port, or a socket's path
    LISTEN = "listen"  # host:port, or a socket's path
    RESOLVE = "resolve"  # a host's name
    RUN = "run"  # a program
    LOAD = "load"  # a library, by ctypes
    UNKNOWN = "unknown"  # not known


class Touched(Struct, frozen=True):
    """Something outside of its archive that a handler touched, so that it needs it."""

    kind: Access
    target: str
    stage: str  # import, initialize, handle


UNSEEN = Touched(Access.UNKNOWN, "whatever a worker touched that died before it could tell", "handle")
UNAVAILABLE = "device-unavailable"  # kind of a Trouble: torch cannot use the device that `Load` names


class Load(Struct, frozen=True, kw_only=True, tag=True):
    """Load the model in a folder and initialize its handler once."""

    model_dir: str
    model_name: str | None = None  # None: the manifest's
    handler: str | None = None  # None: the manifest's
    target: Target = Target.TORCHSERVE
    batch_size: int | None = None  # None: the model config's, else 1
    gpu_id: int | None = None
    device: str | None = None  # that torch must be able to use, such as "cuda:1"; None: any
    envelope: str | None = None  # None: the manifest's
    metrics_config: str | None = None  # the full path of the server's setting of that name; None: the server's own file
    limit_max_image_pixels: bool = True
    torchserve: bool = False  # use the installed torchserve's `ts`, not ours
    compile: bool = True  # False: leave torch.compile out, whatever the config says
    trust_pickle: bool = False  # load weights that need more than `weights_only` allows
    show_data: bool = False  # print what the handler gets, before it is called
    max_response_size: int = MAX_BODY  # bytes of one answer: the server's setting
    required: tuple[str, ...] = ()  # distributions that the archive's requirements name
    trace: bool = False  # report what the handler touches outside of its archive


class Predict(Struct, frozen=True, tag=True, gc=False):
    """Handle one batch."""

    requests: tuple[Request, ...]


class Loaded(Struct, frozen=True, kw_only=True, tag=True):
    """The handler is ready."""

    handler: str  # "digits_handler.DigitsHandler", or module:function
    stages: dict[str, float]  # ms: start, import, initialize
    pid: int | UnsetType = UNSET  # the process that the handler runs in, for the parent alone
    troubles: tuple[Trouble, ...] = ()  # steps that were skipped silently, as on the server
    device: str | None = None
    loses_answers: bool = False  # the server forgets the requests of a worker that ends: asyncCommunication
    touched: tuple[Touched, ...] = ()


class LoadFailed(Struct, frozen=True, kw_only=True, tag=True):
    """The handler could not be loaded or initialized; the worker ends."""

    trouble: Trouble
    status: int = 503  # what a client of the server gets meanwhile
    touched: tuple[Touched, ...] = ()


class Dying(Struct, frozen=True, tag=True):
    """The worker is about to end, as the real one would; the parent then sees the process end."""

    trouble: Trouble
    responses: tuple[Response, ...] = ()  # of the rows before the one it dies of
    touched: tuple[Touched, ...] = ()


class ModelOutput(Struct, frozen=True):
    """What was seen of a model's output that is a tensor [N, K]."""

    width: int  # K
    classes: bool = False  # what took it is a classifier, to which they are classes


class Answered(Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The batch's answers, in its order."""

    responses: tuple[Response, ...]
    stages: dict[str, float]  # ms: preprocess, inference, postprocess, handle
    troubles: tuple[Trouble, ...] = ()
    outputs: frozenset[ModelOutput] = frozenset()  # of the model, reported for the first time
    metrics: tuple[str, ...] = ()  # lines that were left to be written at the end of the batch
    touched: tuple[Touched, ...] = ()  # for the first time


class ForeignBytesError(Exception):
    """What came out of a worker's socket was not written by marpack; private to the parent."""


ToWorker = Load | Predict
FromWorker = Loaded | LoadFailed | ResponseChunk | Answered | Dying


class Pipe:
    """One end of a connected stream socket, which carries whole messages."""

    def __init__(self, sock: socket.socket, expects: Any, limit: int | None = None) -> None:  # Any: a union is no type
        """Take the union of the message types that arrive at this end, and the bytes that one may have (None: any)."""
        self._sock = sock
        self.limit = limit
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(expects).decode
        self._arrived = bytearray()
        self._leaving = bytearray()

    def fileno(self) -> int:
        """Return the socket's descriptor, for polling."""
        return self._sock.fileno()

    def send(self, message: object) -> None:
        """Send one message whole, waiting as long as it takes; OSError if the other end is gone."""
        payload = self._encode(message)
        self._sock.sendall(_LENGTH.pack(len(payload)) + payload)

    def post(self, message: object) -> None:
        """Queue one message, to be sent by `flush` (the socket must not block)."""
        payload = self._encode(message)
        self._leaving += _LENGTH.pack(len(payload)) + payload

    def flush(self) -> bool:
        """Send what can be sent of the queue; True once it is empty."""
        # The reader notices a closed end, with its reason.
        with suppress(BlockingIOError, *_GONE):
            while self._leaving:
                with memoryview(self._leaving) as view:
                    sent = self._sock.send(view)
                del self._leaving[:sent]
        return not self._leaving

    def receive(self) -> Any:
        """Wait for one message; None once the other end is closed."""
        while (message := self.arrived()) is None:
            if not self.fill():
                return None
        return message

    def fill(self) -> bool:
        """Read the bytes that have arrived; False at the end of the stream."""
        try:
            piece = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return True
        except _GONE:
            return False
        self._arrived += piece
        return bool(piece)

    def arrived(self) -> Any:
        """Return a message that has arrived whole, or None. Raises ForeignBytesError for other bytes."""
        if len(self._arrived) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._arrived)
        if self.limit is not None and length > self.limit:
            raise ForeignBytesError(f"a message of {length:,} bytes exceeds the limit of {self.limit:,} bytes")
        end = _LENGTH.size + length
        if len(self._arrived) < end:
            return None
        try:
            with memoryview(self._arrived) as view:
                message = self._decode(view[_LENGTH.size : end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ForeignBytesError(f"invalid message: {str(error).partition(chr(10))[0]}") from None
        del self._arrived[:end]
        return message


_notes: list[Trouble] = []
_explained: list[Trouble] = []  # of the notes, those that explain an exception
_spent: dict[str, float] = {}
_outputs: dict[tuple[int, bool], bool] = {}  # (width, whether they are classes) → whether it is not reported yet


def note(kind: str, message: str, *, stage: str | None = None, hint: str | None = None) -> None:
    """Add a note to the current response; the same note is kept once. See `Trouble`."""
    trouble = Trouble(kind=kind, message=message, stage=stage, hint=hint)
    if len(_notes) < _MAX_COUNT and trouble not in _notes:
        _notes.append(trouble)


def drain_notes() -> tuple[Trouble, ...]:
    """Return the notes since the last call."""
    notes = tuple(_notes)
    _notes.clear()
    _explained.clear()
    return notes


def explained(trouble: Trouble) -> Trouble:
    """Return the trouble of an exception with the notes that explain it; `drain_notes` returns those as well."""
    if not _explained:
        return trouble
    notes, hint = (each.message for each in _explained), _explained[-1].hint
    return replace(trouble, hint=trouble.hint or hint, notes=(*notes, *trouble.notes))


def add_timing(what: str, milliseconds: float) -> None:
    """Add time to the total of `what`, such as "compile"."""
    _spent[what] = _spent.get(what, 0.0) + milliseconds


def drain_timings() -> dict[str, float]:
    """Return the times since the last call."""
    spent = dict(_spent)
    _spent.clear()
    return spent


def record_output(output: object, *, classes: bool = False) -> None:
    """Record the width of a model's output [N, K], and whether its columns are classes; ignore any other output."""
    shape = getattr(output, "shape", None)  # a torch.Size is a tuple
    if isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int) and len(_outputs) < _MAX_COUNT:
        _outputs.setdefault((shape[1], classes), True)


def drain_outputs() -> frozenset[ModelOutput]:
    """Return the outputs that no earlier call has returned."""
    if not any(_outputs.values()):
        return frozenset()
    news = frozenset(ModelOutput(*known) for known, is_new in _outputs.items() if is_new)
    _outputs.update(dict.fromkeys(_outputs, False))
    return news


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def explain(error: Exception, how: Callable[[Exception], None]) -> None:
    """Call a function that notes the reason for an exception, and remember that its notes explain this exception."""
    before = len(_notes)
    how(error)
    _explained.extend(_notes[before:])


class Explained:
    """Calls `explain` with an exception that leaves the `with` block, and lets it pass."""

    def __init__(self, how: Callable[[Exception], None]) -> None:
        self._how = how

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            explain(error, self._how)


def attempt(call: Callable[[], R]) -> R | Exception:
    """Return a call's value or its exception: for code of authors and libraries that must not end the worker."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the caller examines it
        return error
