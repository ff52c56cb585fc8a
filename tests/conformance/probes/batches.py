"""Batches: requests that the server groups before the handler sees them (contract §4, §5)."""

from __future__ import annotations

from conformance.probe import Batch, Call, Probe, handler


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

PROBES = (BATCHES,)
