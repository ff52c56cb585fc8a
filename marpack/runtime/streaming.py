"""Answers in pieces: what a streaming handler sends before it returns (contract §5)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from marpack.runtime.context import Context
from marpack.runtime.frontend import error_response
from marpack.runtime.messages import MAX_BODY, Piece, Response
from marpack.runtime.respond import NEXT, check_sizes, response_of


class PieceMessage(bytearray):
    """An encoded answer, as handlers see it: bytes to hand to the socket. What it says is in `piece`."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(b"".join(response.body for response in piece.responses.values()))
        self.piece = piece


class PieceSocket:
    """Stands where the server keeps its socket (`context.cl_socket`), and remembers what was sent."""

    def __init__(self, send: Callable[[Piece], None], *, limit: int = MAX_BODY) -> None:
        """Take what passes a piece on, and how many bytes of an answer the frontend takes at once."""
        self._send = send
        self._limit = limit
        self.sent: list[Piece] = []
        self.places: Sequence[int] | None = None  # where the rows at hand stand in the batch; None: where they are

    def sendall(self, message: PieceMessage) -> None:
        """Pass one intermediate answer on."""
        responses = message.piece.responses
        if self.places is not None:
            responses = {self.places[index]: response for index, response in responses.items()}
        self.pass_on(Piece(responses))

    def pass_on(self, piece: Piece) -> None:
        """Remember one piece and pass it on; raises AnswerTooLarge."""
        check_sizes(piece.responses.values(), self._limit)
        self.sent.append(piece)
        self._send(piece)


def create_predict_response(
    ret: Sequence[Any] | None,
    req_id_map: Mapping[int, str],
    message: str,
    code: int,
    context: Context | None = None,
    ts_stream_next: bool = False,
) -> PieceMessage:
    """Return the answers of a batch as one message for `context.cl_socket.sendall`.

    Args:
        ret: One value per request, or None for an error.
        req_id_map: {index: request id}, as `context.request_ids`.
        message: The error's text, if `ret` is None.
        code: The status of an error.
        context: Where status and headers of each answer were set.
        ts_stream_next: True while more is to come.

    Raises Unserialisable and WorkerDeath, as the final answer does.
    """
    if context is None:
        return PieceMessage(Piece({index: error_response(code, message) for index in req_id_map}))
    values = dict.fromkeys(req_id_map, "error") if ret is None else ret
    return PieceMessage(
        Piece({index: response_of(index, values[index], context, stream_next=ts_stream_next) for index in req_id_map})
    )


def send_intermediate_predict_response(
    ret: Sequence[Any], req_id_map: Mapping[int, str], message: str, code: int, context: Context
) -> None:
    """Send one piece of every answer of the batch to its client; the handler's final return ends them."""
    context.cl_socket.sendall(create_predict_response(ret, req_id_map, message, code, context, True))


def joined(pieces: Sequence[Piece], index: int, last: Response) -> Response:
    """Return what the client of one request saw in the end: the first piece's status and headers, every piece's bytes.

    An error after the first piece cannot be told any more: the connection is reset.
    """
    answers = [piece.responses[index] for piece in pieces if index in piece.responses] if pieces else ()
    if not answers:
        return _unstarted(last) if last.headers else last
    first = answers[0]
    if first.status >= 400:
        # The frontend cannot stream under such a status: after the head it breaks off.
        return replace(first, body=b"", reset=True)
    failed = last.failed
    bodies = tuple(answer.body for answer in answers) + (() if failed else (last.body,))
    return replace(first, pieces=bodies, body=b"".join(bodies), reset=failed)


def _unstarted(last: Response) -> Response:
    """Return an answer that no piece came before; one that claims to end a stream is never delivered."""
    if dict(last.headers).get(NEXT) == "false":
        return Response(status=0, phrase="no answer: the client waits for a stream that never began", body=b"")
    if dict(last.headers).get(NEXT) == "true":
        return replace(last, pieces=(last.body,), reset=True)  # the server waits for more until its response timeout
    return last
