"""Entry points: which function or class of a handler file the server runs, and what it refuses (contract §2)."""

from dataclasses import replace

from conformance.probe import Call, Probe

_ASK = (Call("ask", "x"),)

_CLASS = """
class Handler:
    def initialize(self, context):
        self.said = "class"

    def handle(self, data, context):
        return [self.said] * len(data)
"""

_STATIC = """
class Handler:
    initialize = staticmethod(print)
    handle = staticmethod(lambda data, context: ["static"])
"""

_OBJECT = """
class _Entry:
    def __call__(self, data, context):
        return ["object"]


handle = _Entry()
"""

_PARTIAL = """
from functools import partial


def _answer(text, data, context):
    return [text]


handle = partial(_answer, "partial")
"""

_COUNTING = """
calls = []


def handle(data, context):
    calls.append(data)
    return [f"{calls[0]!r} {len(calls)}"]
"""

_BESIDE = f"""{_CLASS}
def handle(data, context):
    return ["function"]
"""

_BASE = "from ts.torch_handler.base_handler import BaseHandler\n"

_TWO = """
def go(data, context):
    return ["go"]


def handle(data, context):
    return ["handle"]
"""


def _probe(name: str, source: str, **model: object) -> Probe:
    return Probe(name=f"entry-{name}", files={"handler.py": source}, model=model, steps=_ASK)


_WORKING = (
    _probe("class", _CLASS),
    _probe("function", _TWO),
    _probe("named-function", _TWO, handler="handler.py:go"),
    _probe("named-without-py", _TWO, handler="handler:go"),
    _probe("named-but-absent", _CLASS, handler="handler.py:go"),
    _probe("function-beside-class", _BESIDE),
    _probe("imported-classes", f"{_BASE}from abc import ABC\n{_CLASS}"),
    _probe("subclass", _BASE + _CLASS.replace(":", "(BaseHandler):", 1)),
    _probe("base-in-another-file", _CLASS.replace("class Handler:", "from base import Base\nclass Handler(Base):")),
    _probe("async-function", "async def handle(data, context):\n    return ['x']\n"),
    _probe("static", _STATIC),
    _probe("callable-object", _OBJECT),
    _probe("partial", _PARTIAL),
    _probe("called-at-start", _COUNTING),
)

_ASYNCHRONOUS = """
import asyncio


class Handler:
    def initialize(self, context):
        pass

    async def handle(self, data, context):
        await asyncio.sleep(0)
        context.set_response_header(0, "x-a", "b")
        return ["later"]
"""

_WAITED = "asyncCommunication: true\n"

_ASYNCHRONOUS_FAILURES = """
import asyncio

from ts.handler_utils.utils import send_intermediate_predict_response
from ts.utils.util import PredictionException


class Handler:
    def initialize(self, context):
        self.calls = 0
        self.loop = asyncio.get_event_loop()

    async def handle(self, data, context):
        self.calls += 1
        context.calls = getattr(context, "calls", 0) + 1
        return await getattr(self, bytes(data[0]["body"]).decode())(context)

    async def counts(self, context):
        return [f"{self.calls} {context.calls} {self.loop is asyncio.get_running_loop()}"]

    async def raises(self, context):
        raise ValueError("no")

    async def memory(self, context):
        raise MemoryError

    async def cuda(self, context):
        raise RuntimeError("CUDA error")

    async def chosen(self, context):
        raise PredictionException("bad", 400)

    async def no_list(self, context):
        return "x"

    async def too_many(self, context):
        return ["x", "y"]

    async def unserialisable(self, context):
        return [{1}]

    async def teapot(self, context):
        context.set_response_status(418, "tea", 0)
        return ["short"]

    async def streams(self, context):
        send_intermediate_predict_response(["a"], context.request_ids, "more", 200, context)
        return ["b"]
"""
_WORDS = (
    *("counts", "raises", "memory", "cuda", "chosen", "no_list", "too_many", "unserialisable", "teapot", "streams"),
    "counts",
)

_ASYNC = tuple(
    Probe(
        name=f"entry-asynchronous-{name}",
        files={"handler.py": source, "model-config.yaml": _WAITED},
        model={"configFile": "model-config.yaml"},
        steps=steps,
        settled=True,  # the server's asynchronous worker now and then forgets to answer
    )
    for name, source, steps in (
        ("class", _ASYNCHRONOUS, _ASK),
        ("function", "async def handle(data, context):\n    return None if data is None else ['later']\n", _ASK),
        ("failures", _ASYNCHRONOUS_FAILURES, tuple(Call(f"{i}-{word}", word) for i, word in enumerate(_WORDS))),
    )
)

_REFUSED = (
    _probe("syntax-error", "def handle(:\n"),
    _probe("import-error", "import no_such_module\ndef handle(data, context):\n    return ['x']\n"),
    _probe("raises-on-import", "1 / 0\n"),
    _probe("no-handler-file", _CLASS, handler="other.py"),
    _probe("unknown-built-in", _CLASS, handler="no_such_handler"),
    _probe("two-classes", f"{_CLASS}\nclass Other:\n    pass\n"),
    _probe("private-second-class", f"class _Other:\n    pass\n{_CLASS}"),
    _probe("no-class", "x = 1\n"),
    _probe("no-handle", "class Handler:\n    def initialize(self, context):\n        pass\n"),
    _probe("no-initialize", "class Handler:\n    def handle(self, data, context):\n        return ['x']\n"),
    _probe("constructor-arguments", f"{_CLASS}\n    def __init__(self, x):\n        pass\n"),
    _probe("handle-not-callable", "handle = 5\n"),
    _probe("initialize-raises", _CLASS.replace('self.said = "class"', "raise ValueError('x')")),
    _probe("initialize-runtime-error", _CLASS.replace('self.said = "class"', "raise RuntimeError('x')")),
    _probe("initialize-memory", _CLASS.replace('self.said = "class"', "raise MemoryError('x')")),
    _probe("initialize-cuda", _CLASS.replace('self.said = "class"', "raise RuntimeError('CUDA error')")),
    _probe("initialize-cuda-value-error", _CLASS.replace('self.said = "class"', "raise ValueError('CUDA error')")),
    _probe("initialize-exits", _CLASS.replace('self.said = "class"', "raise SystemExit(0)")),
    _probe("initialize-kills", _CLASS.replace('self.said = "class"', "import os; os.kill(os.getpid(), 9)")),
    _probe("function-raises-at-start", "def handle(data, context):\n    return [len(data)]\n"),
    _probe("named-like-stdlib", _CLASS, handler="json.py"),
    _probe("in-a-folder", _CLASS, handler="inner/handler2.py"),
)

_FILES = {
    "entry-base-in-another-file": {"base.py": "class Base:\n    pass\n"},
    "entry-named-like-stdlib": {"json.py": _CLASS},
    "entry-in-a-folder": {"inner/handler2.py": _CLASS},
}


def _with_files(probe: Probe) -> Probe:
    return replace(probe, files={**probe.files, **_FILES.get(probe.name, {})})


PROBES = (*map(_with_files, _WORKING), *(replace(_with_files(probe), settled=True) for probe in _REFUSED), *_ASYNC)
