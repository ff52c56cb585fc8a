"""Answers in pieces: what a streaming handler sends before it returns (contract §5)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.torchserve.context import Context
from marpack.torchserve.http import MAX_BODY, Response, ResponseChunk, error_response, no_answer
from marpack.torchserve.response import (
    NEXT,
    UNSERIALISABLE,
    FrontendRefusal,
    Unserialisable,
    WorkerDeath,
    check_sizes,
    checked_error,
    response_of,
)

_OK = 200


class ChunkMessage(bytearray):
    """An encoded answer, as handlers see it: bytes to hand to the socket. What it says is in `piece`."""

    def __init__(self, piece: ResponseChunk) -> None:
        super().__init__(b"".join(response.body for response in piece.responses.values()))
        self.piece = piece


class ChunkSocket(Struct, eq=False):
    """Stands where the server keeps its socket (`context.cl_socket`), and remembers what was sent."""

    passes: Callable[[ResponseChunk], None]  # a piece on
    limit: int = MAX_BODY  # bytes of an answer that the frontend takes at once
    sent: list[ResponseChunk] = []
    over: bool = False  # the batch is answered: what a thread of the handler's still sends reaches nobody
    places: Sequence[int] | None = None  # where the rows at hand stand in the batch; None: where they are

    def sendall(self, message: ChunkMessage) -> None:
        """Pass one intermediate answer on."""
        responses = message.piece.responses
        if self.places is not None:
            responses = {self.places[index]: response for index, response in responses.items()}
        self.pass_on(ResponseChunk(responses))

    send = sendall

    def pass_on(self, piece: ResponseChunk) -> None:
        """Remember one piece and pass it on; raises AnswerTooLarge."""
        if self.over:
            return
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

    What cannot be encoded raises what the encoding raises: in the handler's own hands it is an exception like any
    other. Raises FrontendRefusal for what only the frontend finds impossible.
    """
    try:
        return ChunkMessage(_piece(ret, req_id_map, message, code, context, stream_next=ts_stream_next is True))
    except FrontendRefusal:
        raise
    except WorkerDeath as death:
        raise (death.__cause__ or death) from None


def _piece(
    ret: Sequence[Any] | None,
    ids: Mapping[int, str],
    message: str,
    code: int,
    context: Context | None,
    *,
    stream_next: bool,
) -> ResponseChunk:
    status, text = checked_error(code, message)
    for request_id in ids.values():
        request_id.encode("utf-8")  # raises AttributeError for what is no text
    known = getattr(context, "request_ids", None) or ids
    if context is None or status != _OK:  # whatever else it says, it is an error, and for the whole batch
        return _error_of_all(known, status, text)
    if not set(ids.values()) <= set(known.values()):
        raise FrontendRefusal("the answer names a request that is not of this batch")
    values = dict.fromkeys(ids, "error") if ret is None else ret
    try:
        return ResponseChunk(
            {index: response_of(index, values[index], context, stream_next=stream_next) for index in ids}
        )
    except Unserialisable:
        return _error_of_all(known, 503, UNSERIALISABLE)


def _error_of_all(ids: Iterable[int], status: int, message: str) -> ResponseChunk:
    return ResponseChunk({index: error_response(status, message) for index in ids})


def send_intermediate_predict_response(
    ret: Sequence[Any], req_id_map: Mapping[int, str], message: str, code: int, context: Context
) -> None:
    """Send one piece of every answer of the batch to its client; the handler's final return ends them."""
    context.cl_socket.sendall(create_predict_response(ret, req_id_map, message, code, context, True))


def assemble(pieces: Sequence[ResponseChunk], index: int, last: Response) -> Response:
    """Return what the client of one request saw in the end: the first piece's status and headers, every piece's bytes.

    An error after the first piece cannot be told any more: the connection is reset.
    """
    answers = [piece.responses[index] for piece in pieces if index in piece.responses] if pieces else ()
    if not answers:
        return _unstarted(last) if last.headers else last
    first = answers[0]
    if is_final(first):
        return first  # that was the whole answer: whatever the handler sends after it reaches nobody
    if first.status >= 400:
        # The frontend cannot stream under such a status: after the head it breaks off.
        return replace(first, body=b"", reset=True)
    good = tuple(takewhile(lambda answer: not answer.failed, answers))
    failed = last.failed or len(good) < len(answers)
    bodies = (*(answer.body for answer in good), *(() if failed else (last.body,)))
    chunks = tuple(filter(None, bodies))  # an empty one is none: no client can tell that it was sent
    return replace(first, pieces=chunks, body=b"".join(chunks), reset=failed)


def is_final(piece: Response) -> bool:
    """Say whether the frontend takes what was sent ahead for the last it gets: an error, or a plain answer."""
    return piece.failed or dict(piece.headers).get(NEXT) != "true"


def _unstarted(last: Response) -> Response:
    """Return an answer that no piece came before; one that claims to end a stream is never delivered."""
    if dict(last.headers).get(NEXT) not in {None, "true"}:
        return no_answer("the client waits for a stream that never began")
    if dict(last.headers).get(NEXT) == "true":
        # The server waits for more until its response timeout.
        return replace(last, pieces=(last.body,) if last.body else (), reset=True)
    return last
