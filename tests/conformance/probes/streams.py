"""Streams: answers sent in pieces (contract §5)."""

from dataclasses import replace

from conformance.probe import Batch, Call, Probe, asked, handler

_STREAMS = {
    "texts": "send(['a']); send(['b']); answer = 'c'",
    "types": "send([{'a': 1}]); send([b'\\x00\\xff']); send([bytearray(b'x')]); answer = [1]",
    "none-in-it": "send([None]); answer = None",
    "empty-piece": "send(['']); send(['b']); answer = ''",
    "empty-all": "send(['']); answer = ''",
    "one": "send(['a']); answer = ''",
    "many": "[send([str(i)]) for i in range(50)]; answer = 'end'",
    "large": "send(['x' * 70_000]); answer = 'y' * 66_000",
    "text-for-list": "send('a'); answer = 'b'",
    "dict-for-list": "send({0: 'a'}); answer = 'b'",
    "none-for-list": "send(None); answer = 'b'",
    "headers": (
        "context.set_response_header(0, 'x-a', '1'); context.set_response_content_type(0, 'text/a');"
        "context.set_response_status(201, 'P'); send(['a']);"
        "context.set_response_header(0, 'x-b', '2'); context.set_response_status(202, 'Q'); answer = 'z'"
    ),
    "deprecated-name": (
        "from ts.protocol.otf_message_handler import send_intermediate_predict_response as old\n"
        "old(['a'], context.request_ids, 'ok', 200, context); answer = 'b'"
    ),
    "tensor": "import torch; send([torch.tensor([1.0])]); answer = 'end'",
    "read-back": "send(['a']); answer = context.get_response_headers(0)",
    "too-short": "send([]); answer = 'b'",
    "without-context": (
        "from ts.protocol.otf_message_handler import send_intermediate_predict_response as old\n"
        "old(['a'], context.request_ids, 'ok', 200); answer = 'b'"
    ),
    "status-204": "context.set_response_status(204, ''); send(['a']); answer = 'b'",
    "status-299": "context.set_response_status(299, 'P'); send(['a']); answer = 'b'",
    "status-301": "context.set_response_status(301, ''); send(['a']); answer = 'b'",
    "status-500": "context.set_response_status(500, ''); send(['a']); answer = 'b'",
    "status-404": "context.set_response_status(404, ''); send(['a']); answer = 'b'",
    "then-exception": "send(['a']); raise ValueError",
    "then-prediction-exception": "send(['a']); raise PredictionException('m', 404)",
    "then-no-list": "send(['a']); answers = None",
    "then-unserialisable": "send(['a']); answer = {1}",
    "then-exit": "send(['a']); import time; time.sleep(0.2); os._exit(1)",
    "criteria-none": "context.stopping_criteria = {0: lambda value: None}; answer = 'b'",
    "criteria-kept": "answer = 'b'",
    "criteria-removed": "context.stopping_criteria = None; answer = 'c'",
    "criteria-after-pieces": ("context.stopping_criteria = {0: lambda value: True}; send(['a']); answer = 'b'"),
    "criteria-raises": "context.stopping_criteria = {0: lambda value: 1 / 0}; answer = 'b'",
    "alive-again": "context.stopping_criteria = None; answer = 'alive'",
}

STREAMS = asked("streams", handler("evaluate"), _STREAMS)

_COUNTED = """
class Stop:
    def __init__(self, limit):
        self.left = limit

    def __call__(self, value):
        self.left -= 1
        return self.left <= 0


def handle(data, context):
    if data is None:
        return None
    context.stopping_criteria = {}
    context.cache = getattr(context, "cache", {})
    answers = []
    for idx, row in enumerate(data):
        if row:
            limit = int(row["body"])
            context.cache[context.get_request_id(idx)] = [0, Stop(limit), limit]
        seen = context.cache[context.get_request_id(idx)]
        seen[0] += 1
        context.stopping_criteria[idx] = seen[1]
        names = sorted(set(context.get_all_request_header(idx)) - {"Host", "Content-Length"})
        answers.append(f"{seen[0]} of {seen[2]}: {sorted(row)} {names} {idx};")
    return answers
"""

# A request that has not stopped is handed to the handler again and again, without its body.
CONTINUOUS = Probe(
    name="continuous-batching",
    files={
        "handler.py": _COUNTED,
        "model-config.yaml": "continuousBatching: true\nbatchSize: 2\nmaxBatchDelay: 1000\nresponseTimeout: 10\n",
    },
    model={"configFile": "model-config.yaml"},
    steps=(Call("three-times", "3"), Call("again", "2", "text/plain", (("X-A", "b"),))),
)

CONTINUOUS_BATCH = replace(
    CONTINUOUS,
    name="continuous-batching-of-two",
    batch_size=2,
    steps=(
        Batch("two", (Call("short", "2"), Call("long", "4"))),
        Batch("other", (Call("longer", "3"), Call("shorter", "2"))),
    ),
)

_MADE = "from ts.protocol.otf_message_handler import create_predict_response as made\n"
_SEND_MADE = f"{_MADE}context.cl_socket.sendall(made(['a'], context.request_ids, 'm', 200, context{{}})); answer = 'z'"

# What cannot be sent is an exception in the handler's own hands.
_UNSENDABLE = {
    "code-none": "send(['a'], code=None); answer = 'z'",
    "message-none": "send(['a'], message=None); answer = 'z'",
    "header-number": "context.set_response_header(0, 'a', 1); send(['a']); answer = 'z'",
    "header-number-caught": (
        "context.set_response_header(0, 'a', 1)\n"
        "try: send(['a'])\n"
        "except Exception as e: context.get_response_headers(0).clear(); answer = repr(e)"
    ),
    "surrogate": "send(['\\ud800']); answer = 'z'",
    "circular": "x = []; x.append(x); send([x]); answer = 'z'",
    "status-text": "context.set_response_status('200', ''); send(['a']); answer = 'z'",
    "content-type-none": "context.set_response_content_type(0, None); send(['a']); answer = 'z'",
    "id-none": "send(['a'], {0: None}); answer = 'z'",
    "send-for-sendall": _SEND_MADE.replace("sendall", "send").format(", True"),
    "transfer-encoding": "context.set_response_header(0, 'Transfer-Encoding', 'gzip'); send(['a']); answer = 'z'",
}

_AFTER = "answer = 'one'"
# What ends the answer while the handler goes on: its return is then taken for the answer to the next request.
_ENDED_EARLY = {
    "code-500": "send(['a'], code=500); answer = 'z'",
    "code-201": "send(['a'], code=201); answer = 'z'",
    "code-404-with-message": "send(['a'], message='mine', code=404); answer = 'z'",
    "code-500-later": "send(['a']); send(['b'], code=500, message='mine'); answer = 'z'",
    "unserialisable": "send([{1}]); answer = 'z'",
    "unserialisable-caught": "try: send([{1}])\nexcept Exception: answer = 'caught'\nelse: answer = 'not raised'",
    "unserialisable-later": "send(['a']); send([{1}]); answer = 'z'",
    "nothing-more": _SEND_MADE.format(""),
    "next-is-1": _SEND_MADE.format(", 1"),
    "error-made": f"{_MADE}context.cl_socket.sendall(made(None, context.request_ids, 'mine', 418)); answer = 'z'",
}

_FOREIGN = {"stream": "send(['a'], {0: 'nope'}); answer = 'z'"}

PROBES = (
    STREAMS,
    CONTINUOUS,
    CONTINUOUS_BATCH,
    asked("streams-unsendable", handler("evaluate"), _UNSENDABLE, settled=True),
    *(
        asked(f"streams-ended-early-{name}", handler("evaluate"), {"stream": source, "after": _AFTER}, settled=True)
        for name, source in _ENDED_EARLY.items()
    ),
    asked("streams-foreign-id", handler("evaluate"), _FOREIGN, settled=True),
)
