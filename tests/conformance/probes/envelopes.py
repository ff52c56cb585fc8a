"""Envelopes, which only the server's own settings can ask for (contract §9)."""

import json
from typing import Any

from conformance.probe import Batch, Call, Field, Form, Probe

JSON = "application/json"

_SHOW = """
def handle(data, context):
    return None if data is None else [f"{type(row).__name__} {row!r}" for row in data]
"""

_PASS = """
def handle(data, context):
    if data is not None:
        print("seen:", repr(data))
    return data
"""

_ROWS = {
    "instances": '{"instances": [[1, 2], [3]]}',
    "objects": '{"instances": [{"a": 1}, {"a": 2}]}',
    "base64": '{"instances": [{"b64": "aGk="}]}',
    "base64-inside": '{"instances": [{"a": {"b64": "aGk="}, "c": 1}, {"a": 2}]}',
    "base64-second-only": '{"instances": [1, {"b64": "aGk="}]}',
    "base64-first-only": '{"instances": [{"b64": "aGk="}, 1]}',
    "none": '{"instances": []}',
    "text": '{"instances": "abc"}',
    "null": '{"instances": null}',
    "no-instances": '{"data": [1]}',
    "list": "[1, 2]",
    "broken": '{"instances": ',
    "data-key": '{"data": {"instances": [1]}}',
}


def _asked(rows: dict[str, str]) -> tuple[Call, ...]:
    untyped = (Call("untyped", next(iter(rows.values()))),)
    empty = (Call("empty", ""), Call("empty-json", "", JSON))
    return (*(Call(name, body, JSON) for name, body in rows.items()), *untyped, *empty)


def _form(name: str, value: str) -> Call:
    return Call(name, Form(fields=(Field("data", value.encode(), "a.json", JSON),)))


_COUNT = """
def handle(data, context):
    return None if data is None else [repr(row) for row in data]
"""


def _v2(*inputs: tuple[str, list[int], str, list[Any]], **more: Any) -> str:
    keys = ("name", "shape", "datatype", "data")
    return json.dumps({"inputs": [dict(zip(keys, one, strict=True)) for one in inputs], **more})


_V2 = """
def handle(data, context):
    return None if data is None else [row["data"] for row in data]
"""

_V2_ROWS = {
    "floats": _v2(("a", [2, 2], "FP32", [1.0, 2.5, 3.0, 4.0]), id="mine"),
    "integers": _v2(("a", [4], "INT64", [1, 2, 3, 4]), id="mine"),
    "integers-as-floats": _v2(("a", [2], "FP32", [1, 2]), id="mine"),
    "booleans": _v2(("a", [2], "BOOL", [True, False]), id="mine"),
    "bytes": _v2(("a", [2], "BYTES", ["caf\u00e9", "second"]), id="mine"),
    "bytes-none": _v2(("a", [0], "BYTES", []), id="mine"),
    "two-inputs": _v2(("a", [1], "INT32", [1]), ("b", [1], "FP64", [0.5]), id="mine"),
    "wrong-shape": _v2(("a", [3], "FP32", [1, 2]), id="mine"),
    "unknown-type": _v2(("a", [1], "COMPLEX", [1]), id="mine"),
    "mixed": _v2(("a", [2], "FP32", [1, "x"]), id="mine"),
    "nested-data": _v2(("a", [2, 1], "FP32", [[1.5], [2.5]]), id="mine"),
    "no-inputs": '{"inputs": [], "id": "mine"}',
    "no-key": "{}",
    "parameters": _v2(("a", [1], "FP32", [1.0]), id="mine", parameters={"p": 1}),
    "not-json": "x",
}


def _probe(name: str, source: str, *steps: Call | Batch) -> Probe:
    """Return a probe of the envelope that its name begins with; of batches, if it has any."""
    size = 2 if any(isinstance(step, Batch) for step in steps) else 1
    envelope = name.partition("-")[0]
    return Probe(name=f"envelope-{name}", files={"handler.py": source}, envelope=envelope, batch_size=size, steps=steps)


_FIRST, _SECOND = Call("first", '{"instances": [1]}', JSON), Call("second", '{"instances": [2]}', JSON)

PROBES = (
    _probe(
        *("body", _SHOW, *_asked(_ROWS), _form("form", "[1]")),
        Call("other-field", Form(fields=(Field("x", b"1"),))),
        Call("plain-text", "hi", "text/plain"),
    ),
    _probe("body-batch", _SHOW, Batch("two", (Call("first", "a", "text/plain"), Call("second", "2", JSON)))),
    _probe("json", _COUNT, *_asked(_ROWS), _form("form", '{"instances": [5]}')),
    _probe(
        *("json-batch", _COUNT),
        Batch("two", (Call("first", '{"instances": [1, 2]}', JSON), Call("second", '{"instances": ["\u00e9"]}', JSON))),
        Batch("one-broken", (Call("sound", '{"instances": [1]}', JSON), Call("broken", "{}", JSON))),
    ),
    _probe(
        *("kserve", _PASS, *_asked(_ROWS), _form("form", '{"instances": [5]}')),
        Call("explained", '{"instances": [[1, 2]]}', JSON, route="explanations"),
    ),
    _probe("kserve-batch", _PASS, Batch("two", (_FIRST, _SECOND))),
    _probe(
        *("kservev2", _V2),
        *(Call(name, body, JSON) for name, body in _V2_ROWS.items()),
        Call("untyped", _V2_ROWS["floats"]),
        _form("form", _V2_ROWS["floats"]),
        Call("explained", _V2_ROWS["floats"], JSON, route="explanations"),
    ),
    _probe(
        "kservev2-batch",
        _V2,
        Batch("two", (Call("first", _V2_ROWS["floats"], JSON), Call("second", _V2_ROWS["integers"], JSON))),
    ),
    Probe(  # neither the manifest's key nor the model config's has any effect on the server
        name="envelope-in-manifest",
        files={"handler.py": _SHOW, "model-config.yaml": "envelope: kserve\nservice_envelope: kserve\n"},
        model={"envelope": "kserve", "configFile": "model-config.yaml"},
        steps=(Call("instances", _ROWS["instances"], JSON),),
    ),
)
