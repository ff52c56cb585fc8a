"""A handler's return value → the response that the client receives (contract §5).

The server's worker encodes the answers of a batch in one message, and its frontend turns each into HTTP. A value that
the encoding does not expect, such as a status that is not a number, ends the worker: here by `WorkerDeath`.
"""

import io
import json
import operator
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.torchserve import MAX_BODY, http
from marpack.torchserve.context import Context
from marpack.torchserve.http import Response, ResponseChunk, error_response

_INT32 = 1 << 31
_OK, _TOO_LARGE = 200, 413
_NOT_IN_A_VALUE = set("\0\n\x0b\x0c\r")
NEXT = "ts_stream_next"  # the header that says whether more pieces are to come
UNSERIALISABLE = "Unsupported model output data type."  # the error of a batch with an `Unserialisable`


class PredictionException(Exception):  # noqa: N818 - the contract's name
    """Fail every row of the batch with a status code and message of the handler's choice."""

    def __init__(self, message: Any, error_code: Any = 500) -> None:  # Any: handlers pass what they like
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


class WorkerDeath(BaseException):
    """The real worker process would end here; its cause is what the server's encoding raises."""

    kind = "unencodable-answer"
    hint = "Set statuses to integers of 0 or more, and header values, phrases and content types to str."


class FrontendRefusal(WorkerDeath):
    """An answer that the worker can encode and the frontend cannot read: only the rows before it are answered."""

    answered: tuple[Response, ...] = ()


class BrokenFrame(FrontendRefusal):
    """A text that the worker counts in characters and the frontend in bytes: the whole batch is lost."""


class AnsweredTwice(WorkerDeath):
    """The frontend takes this response for that of the next request: the next response is one too many."""

    kind = "answered-twice"
    hint = "Send nothing after an error, or after a piece without ts_stream_next=True."


class AnswerTooLarge(FrontendRefusal):
    """An answer that the frontend cannot take in: the whole batch is lost."""

    kind = "answer-too-large"
    hint = (
        "Return less, or raise max_response_size in the server's config.properties, and here with --max-response-size."
    )


def check_sizes(responses: Iterable[Response], limit: int) -> None:
    """Raise AnswerTooLarge if one of a batch's answers has more than `limit` bytes."""
    for response in responses:
        if len(response.body) > limit:
            size = f"{len(response.body):,}"
            raise AnswerTooLarge(f"a response has {size} bytes, more than the {limit:,} bytes that the server allows")


class Unserialisable(TypeError):  # noqa: N818 - names the value, not the failure
    """A returned value that JSON cannot hold."""


def encode_value(value: Any) -> bytes:
    """Return the body of one answer; raises Unserialisable, which fails the whole batch with 503, and WorkerDeath."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        torch = sys.modules.get("torch")  # a handler without torch cannot return a tensor
        if torch is not None and isinstance(value, torch.Tensor):
            buffer = io.BytesIO()
            torch.save(value, buffer)
            return buffer.getvalue()
        return _as_json(value)
    except Unserialisable:
        raise
    except Exception as error:  # the value is the author's, and so is what its encoding raises
        raise WorkerDeath(f"encoding the response raised {type(error).__name__}: {error}") from error


def _as_json(value: Any) -> bytes:
    """Return the bytes of `json.dumps(value, indent=2)`, which Python's own encoder makes without its C part."""
    try:
        if _json_parts() != _OWN_JSON_PARTS:
            return json.dumps(value, indent=2).encode("utf-8")
        compact = json.dumps(value).encode("ascii")
        try:
            return msgspec.json.format(compact, indent=2)
        except msgspec.DecodeError:  # NaN, Infinity and lone surrogates, which only Python takes for JSON
            return json.dumps(value, indent=2).encode("ascii")
    except TypeError as error:
        raise Unserialisable(str(error)) from error


def _json_parts() -> tuple[object, ...]:
    """Return the parts of `json` that handlers replace, to keep accents or to take arrays."""
    encoder = json.JSONEncoder
    return json.dumps, encoder, encoder.__init__, encoder.encode, encoder.iterencode, encoder.default


_OWN_JSON_PARTS = _json_parts()


def checked_error(code: Any, message: Any) -> tuple[int, str]:
    """Return the code and message of a PredictionException as clients get them; raises WorkerDeath."""
    number = _number(code, "the error code")
    # The frontend takes a worker's 413 for a sign of too little memory.
    return 507 if number == _TOO_LARGE else number, _text(message, "the error message")


def response_of(idx: int, value: Any, context: Context, *, stream_next: bool = False) -> Response:
    """Return one answer of a batch, with the handler's status, phrase and headers; Unserialisable, WorkerDeath."""
    given = context.get_response_headers(idx)
    if stream_next:
        context.set_response_header(idx, NEXT, "true")
    elif context.stopping_criteria:
        stop = context.stopping_criteria[idx](value)
        if stop is not None:
            context.set_response_header(idx, NEXT, "false" if stop else "true")
    elif given and given.get(NEXT) == "true":
        context.set_response_header(idx, NEXT, "false")
    status: Any  # Any: handlers set what they like
    status, phrase = context.get_response_status(idx)
    try:
        headers, content_type = _headers(given) if given else ((), None)
        code = _number(_OK if status is None else status, "the response status")
        phrase = "" if phrase is None else _wire_text(phrase, "the reason phrase")
    except FrontendRefusal:
        encode_value(value)  # the worker goes on, and may find before the frontend that the value is no JSON
        raise
    body = encode_value(value)
    if code != _OK:
        body = http.sendable_body(code, body)
    return Response(status=code, phrase=phrase, content_type=content_type, headers=headers, body=body)


def _headers(given: dict[str, Any]) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """Return the handler's headers as the client gets them, and the content type among them."""
    texts = {}
    for key, text in given.items():
        name, value = _text(key, "a header's name"), _text(text, f"the header {key}")
        if not http.is_header_name(name) or set(value) & _NOT_IN_A_VALUE:
            raise FrontendRefusal(f"the header {name!r}: {value!r} is not valid in HTTP")
        texts[name] = value
    headers = http.sendable_headers(texts)
    content_type = next((headers.pop(name) for name in list(headers) if name.lower() == "content-type"), None)
    return tuple(headers.items()), None if content_type is None else _wire_text(content_type, "the content type")


def _number(value: Any, what: str) -> int:
    try:
        number = operator.index(value)  # also numpy's, and a tensor's with nothing but one
    except TypeError:
        number = _INT32
    if not -_INT32 <= number < _INT32:
        cause = struct.error("required argument is not an integer")
        raise WorkerDeath(f"{what} is {value!r}, not an integer of 0 or more") from cause
    if number < 0:
        raise FrontendRefusal(f"{what} is {number}, less than 0")
    return number


def _wire_text(value: Any, what: str) -> str:
    """Return a line of HTTP's head, which the worker and the frontend must count alike: ASCII without line ends."""
    text = _text(value, what)
    if not text.isascii():
        raise BrokenFrame(f"{what} is {text!r}, which is not ASCII")
    if set(text) & set("\r\n"):
        raise FrontendRefusal(f"{what} is {text!r}, which has a line end")
    return text


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        kind = type(value).__name__
        cause = AttributeError(f"{kind!r} object has no attribute 'encode'")
        raise WorkerDeath(f"{what} is {value!r}, a {kind} instead of a str") from cause
    try:
        return value.encode("utf-8").decode("utf-8")  # of a subclass, as numpy's, the plain text
    except UnicodeEncodeError as error:
        raise WorkerDeath(f"{what} is not valid text: {error}") from error


class ChunkMessage(bytearray):
    """An encoded answer, as handlers see it: bytes for the socket. `piece` holds its content."""

    def __init__(self, piece: ResponseChunk) -> None:
        super().__init__(b"".join(response.body for response in piece.responses.values()))
        self.piece = piece


class ChunkSocket(Struct, eq=False):
    """Replaces the socket of the server (`context.cl_socket`) and records the pieces that are sent."""

    passes: Callable[[ResponseChunk], None]  # a piece on
    limit: int = MAX_BODY  # bytes of an answer that the frontend takes at once
    sent: list[ResponseChunk] = []
    over: bool = False  # the batch is answered: later pieces of a handler's thread are dropped
    places: Sequence[int] | None = None  # the current rows' places in the batch; None: unchanged

    def sendall(self, message: ChunkMessage) -> None:
        """Pass one intermediate answer on."""
        responses = message.piece.responses
        if self.places is not None:
            responses = {self.places[index]: response for index, response in responses.items()}
        self.pass_on(ResponseChunk(responses))

    send = sendall

    def pass_on(self, piece: ResponseChunk) -> None:
        """Remember one piece and pass it on; raises AnswerTooLarge."""
        if not self.over:
            check_sizes(piece.responses.values(), self.limit)
            self.sent.append(piece)
            self.passes(piece)


def create_predict_response(
    ret: Sequence[Any] | None,
    req_id_map: Mapping[int, str],
    message: str,
    code: int,
    context: Context | None = None,
    ts_stream_next: bool = False,
) -> ChunkMessage:
    """Return the answers of a batch as one message for `context.cl_socket.sendall`.

    Args:
        ret: One value per request, or None for an error.
        req_id_map: {index: request id}, as `context.request_ids`.
        message: The error's text, if `ret` is None.
        code: The status of an error.
        context: Where status and headers of each answer were set.
        ts_stream_next: True while more is to come.

    Raises FrontendRefusal for content that only the frontend refuses, and otherwise the exception of the encoding.
    """
    try:
        status, text = checked_error(code, message)
        for request_id in req_id_map.values():
            request_id.encode("utf-8")  # raises AttributeError for anything but text
        known = getattr(context, "request_ids", None) or req_id_map
        if context is not None and status == _OK:
            if not set(req_id_map.values()) <= set(known.values()):
                raise FrontendRefusal("the response has the id of a request that is not in this batch")
            values = dict.fromkeys(req_id_map, "error") if ret is None else ret
            more = ts_stream_next is True
            try:
                answers = {each: response_of(each, values[each], context, stream_next=more) for each in req_id_map}
                return ChunkMessage(ResponseChunk(answers))
            except Unserialisable:
                status, text = 503, UNSERIALISABLE
        # Whatever else it says, it is an error, and for the whole batch.
        return ChunkMessage(ResponseChunk({index: error_response(status, text) for index in known}))
    except FrontendRefusal:
        raise
    except WorkerDeath as death:
        raise (death.__cause__ or death) from None


def send_intermediate_predict_response(
    ret: Sequence[Any], req_id_map: Mapping[int, str], message: str, code: int, context: Context
) -> None:
    """Send one piece of every answer of the batch to its client; the handler's final return ends them."""
    context.cl_socket.sendall(create_predict_response(ret, req_id_map, message, code, context, True))


def assemble(pieces: Sequence[ResponseChunk], index: int, last: Response) -> Response:
    """Return the whole response to one request: the first piece's status and headers, every piece's bytes."""
    answers = [piece.responses[index] for piece in pieces if index in piece.responses] if pieces else ()
    if not answers:
        # What claims to end a stream that never began is not delivered; after `true` the server waits for more.
        marker = dict(last.headers).get(NEXT)
        if marker == "true":
            return replace(last, pieces=(last.body,) if last.body else (), reset=True)
        return last if marker is None else http.no_answer("the client waits for a stream that never began")
    first = answers[0]
    if is_final(first):
        return first  # the whole response: later pieces are dropped
    if first.status >= 400:
        # The frontend cannot stream under such a status: after the head it breaks off.
        return replace(first, body=b"", reset=True)
    good = tuple(takewhile(lambda answer: not answer.failed, answers))
    failed = last.failed or len(good) < len(answers)
    bodies = (*(answer.body for answer in good), *(() if failed else (last.body,)))
    chunks = tuple(filter(None, bodies))  # clients do not see empty chunks
    return replace(first, pieces=chunks, body=b"".join(chunks), reset=failed)


def is_final(piece: Response) -> bool:
    """Return whether the frontend takes a piece for the whole response: an error, or one without ts_stream_next."""
    return piece.failed or dict(piece.headers).get(NEXT) != "true"
