"""The messages between parent and worker, and the pipe that carries them.

Parent → child: `Load`, then any number of `Predict`. Child → parent: `Loaded` or `LoadFailed`, then for each
`Predict` any number of `ResponseChunk` and one `Answered` or `Dying`. Exceptions never cross the boundary: they are
flattened to `Trouble`.
"""

import socket
import struct
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from marpack.protocol.targets import Target
from marpack.torchserve import MAX_BODY
from marpack.torchserve.http import Request, Response, ResponseChunk

DATA = "[DATA]"  # begins a line of `--show-data`
METRICS = "[METRICS]"  # begins a metric's line
MAX_MESSAGE = 256 << 20  # bytes of a message to the parent besides its responses
_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16  # bytes read at once
_GONE = (BrokenPipeError, ConnectionResetError)


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
