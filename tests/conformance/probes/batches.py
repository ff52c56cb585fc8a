"""Batches: requests that the server groups before the handler sees them (contract §4, §5)."""

from dataclasses import replace

from conformance.probe import Batch, Call, Probe, asked, handler


def _batch(name: str, *sources: str) -> Batch:
    calls = (Call(f"{name}-{row}", f"answer = 'row {row} of ' + str(len(data))\n{s}") for row, s in enumerate(sources))
    return Batch(name, tuple(calls))


_STEPS = (
    _batch("plain", "", "", ""),
    _batch("partial", "", ""),
    _batch("one", ""),
    _batch(
        "each-its-own",
        "context.set_response_status(201, 'A', idx); context.set_response_header(idx, 'x', 'y')",
        "answer = {'a': 1}",
        "context.set_response_status(404, 'N', idx); context.set_response_content_type(idx, 'a/b')",
    ),
    _batch("all-statuses", "context.set_all_response_status(202, 'all')", "", ""),
    _batch("one-overrides", "context.set_all_response_status(202, 'all')", "context.set_response_status(201, '', 1)"),
    _batch("prediction-exception", "", "raise PredictionException('m', 418)", ""),
    _batch("prediction-exception-200", "", "raise PredictionException('m', 200)"),
    _batch("exception", "", "1 / 0", ""),
    _batch("unserialisable", "context.set_response_status(201, 'A', idx)", "answer = {1}", ""),
    _batch("too-short", "", "", "answers = answers[:2]; del answer"),
    _batch("too-long", "", "answers = [*answers, 1]"),
    _batch("mixed-types", "answer = b'\\x00'", "answer = None", "answer = [float('nan')]"),
    _batch("ids", "answer = sorted(context.request_ids)", "answer = len(set(context.request_ids.values()))"),
    _batch("headers", "answer = sorted(context.get_all_request_header(1))", "", ""),
    _batch("batch-size", "answer = context.system_properties['batch_size']", ""),
    _batch("stream-all", "", "", "send(['a', 'b', 'c'])"),
    _batch("stream-one", "", "send({1: 'only'}, {1: context.request_ids[1]})", ""),
    _batch("impossible-status", "", "context.set_response_status(-1, '', idx)", ""),
    _batch("dies", "", "os._exit(1)", ""),
    _batch("alive-again", "", ""),
)

BATCHES = Probe(name="batches", files={"handler.py": handler("evaluate")}, batch_size=3, steps=_STEPS)

_BREAK = "context.set_response_header(idx, 'a', 'b\\r\\nc')"
_IMPOSSIBLE = "context.set_response_status(-1, '', idx)"
_ACCENT = "context.set_response_status(201, 'caf\\u00e9', idx)"

# Which of several faults decides, and who is answered all the same.
_FAULTS = (
    _batch("line-break", "", _BREAK, ""),
    _batch("line-break-first", _BREAK, "", ""),
    _batch("phrase-number", "", "context.set_response_status(200, 5, idx)", ""),
    _batch("impossible-then-unserialisable", _IMPOSSIBLE, "answer = {1}", ""),
    _batch("impossible-then-header-number", _IMPOSSIBLE, "context.set_response_header(idx, 'a', 1)", ""),
    _batch("impossible-then-type-none", "", _IMPOSSIBLE, "context.set_response_content_type(idx, None)"),
    _batch("impossible-last", "", "", _IMPOSSIBLE),
    _batch("colon-in-name", "", "context.set_response_header(idx, 'a:b', 'c')", ""),
    _batch("alive-after-refusals", "", ""),
    _batch("accent-in-phrase", "", _ACCENT, ""),
    _batch("alive-after-accent", "", "", ""),
    _batch("accent-in-last-phrase", "", "", _ACCENT),
    _batch("alive-after-last-accent", "", "", ""),
    _batch(
        "statuses",
        "context.set_response_status(500, 'a', 0)",
        "context.set_response_status(304, '', 1)",
        "context.set_response_status(0, 'z', 2)",
    ),
    _batch("stream-all-then-exception", "", "send(['a', 'b', 'c'])", "1 / 0"),
    _batch("stream-all-then-unserialisable", "", "send(['a', 'b', 'c'])", "answer = {1}"),
    _batch("stream-one-then-exception", "", "send({1: 'only'}, {1: context.request_ids[1]})", "1 / 0"),
    _batch(
        "streams-of-different-lengths",
        "ids = context.request_ids",
        "ids = context.request_ids; send({0: 'a'}, {0: ids[0]}); send({0: 'a2', 1: 'b'}, {0: ids[0], 1: ids[1]})",
        "ids = context.request_ids; send({2: 'c'}, {2: ids[2]}); send({0: 'a3'}, {0: ids[0]})",
    ),
    _batch("alive-at-last", "", ""),
)

FAULTS = replace(BATCHES, name="batch-faults", settled=True, steps=_FAULTS)

# What a response's head may hold: one request at a time, for what the frontend refuses ends the worker.
_HEADS = {
    "phrase-zero": "context.set_response_status(404, 0); answer = 'a'",
    "phrase-empty-bytes": "context.set_response_status(404, b''); answer = 'a'",
    "impossible-and-unserialisable": "context.set_response_status(-1, ''); answer = {1}",
    "line-break-and-unserialisable": "context.set_response_header(0, 'a', 'b\\r\\nc'); answer = {1}",
    **{
        f"name-{name!r}": f"context.set_response_header(0, {name!r}, 'c'); answer = 'a'"
        for name in ("a:b", "a=b", "a,b", "a;b", "a(b)/c@", "\xe9", "a\x7fb")
    },
    **{
        f"value-{value!r}": f"context.set_response_header(0, 'a', {value!r}); answer = 'a'"
        for value in ("b\0c", "b\x0bc", "b\x0cc", "b\nc", "b\x7f\x01c")
    },
    "tensor-unsaveable": "import torch, threading; answer = torch.ones(1); answer.x = threading.Lock()",
    "alive-after-all": "answer = 'a'",
}

PROBES = (BATCHES, FAULTS, asked("response-heads", handler("evaluate"), _HEADS, settled=True))
