"""How large a request and an answer may be: the server's max_request_size and max_response_size, as they come."""

from conformance.probe import Batch, Call, Field, Form, Probe
from conformance.requests import multipart

from marpack.torchserve import MAX_BODY

_HANDLER = """
from ts.handler_utils.utils import send_intermediate_predict_response


class Handler:
    def initialize(self, context):
        self.calls = 0

    def handle(self, data, context):
        self.calls += 1
        bodies = [bytes(row.get("body") or row.get("data")) for row in data]
        if any(body.startswith(b"piece ") for body in bodies):
            pieces = [b"p" * int(body.split()[1]) for body in bodies]
            send_intermediate_predict_response(pieces, context.request_ids, "more", 200, context)
        return [self.answer(body) for body in bodies]

    def answer(self, body):
        return b"x" * int(body.split()[1]) if body.startswith(b"give ") else f"{self.calls} {len(body)}"
"""
_FILES = {"handler.py": _HANDLER}


def _form(size: int) -> Form:
    """Return a form whose body has so many bytes."""
    around = len(multipart((Field("data", b""),)))
    return Form(fields=(Field("data", b"z" * (size - around)),))


REFUSED = Probe(
    name="refused-sizes",
    files=_FILES,
    steps=(
        Call("one-byte-more", b"z" * (MAX_BODY + 1)),
        Call("twice-as-much", b"z" * (2 * MAX_BODY), "text/plain"),
        Call("form", _form(MAX_BODY + 1)),
        Call("explanation", b"z" * (MAX_BODY + 1), route="explanations"),
    ),
)
PROBES = (
    Probe(
        name="sizes",
        files=_FILES,
        steps=(
            Call("request-at-the-limit", b"z" * MAX_BODY),
            Call("form-at-the-limit", _form(MAX_BODY)),
            Call("answer-beyond-the-limit", b"give %d" % (MAX_BODY + 1)),
            Call("after-that", b"x"),
            Call("piece-beyond-the-limit", b"piece %d" % (MAX_BODY + 1)),
            Call("after-that-too", b"x"),
        ),
    ),
    Probe(
        name="sizes-in-a-batch",
        files=_FILES,
        batch_size=2,
        steps=(
            Batch("one-beyond", (Call("small", b"give 3"), Call("large", b"give %d" % (MAX_BODY + 1)))),
            Batch("after", (Call("one", b"x"), Call("two", b"x"))),
        ),
    ),
)
