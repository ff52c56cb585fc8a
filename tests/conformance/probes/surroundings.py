"""What a handler finds around it: modules, search path, environment, the context's inside, itself (contract §2, §8)."""

from pathlib import Path
from typing import Any

from conformance.probe import Batch, Call, Probe, asked, handler

# What is evaluated with the names of handlers/names.py; errors are told by their kind.
_NAMES = {
    "star-base": "exec('from ts.torch_handler.base_handler import *', got := {}); "
    "answer = sorted({'torch', 'os', 'BaseHandler', 'logger', 'XLA_AVAILABLE', 'timed', 'abc'} & got.keys())",
    "star-util": "exec('from ts.utils.util import *', got := {}); "
    "answer = sorted(n for n, v in got.items() if n[0] != '_')",
    "star-text": "exec('from ts.torch_handler.text_handler import *', got := {}); "
    "answer = sorted({'BaseHandler', 'F', 're', 'CLEANUP_REGEX', 'CONTRACTIONS_PATTERN'} & got.keys())",
    "flags": "import ts.torch_handler.base_handler as b; "
    "answer = b.PT2_AVAILABLE, b.PT230_AVAILABLE, b.PROFILER_AVAILABLE, b.XLA_AVAILABLE, b.IPEX_AVAILABLE",
    "logger": "answer = util.logger.name, ts.torch_handler.base_handler.logger.name",
    "base-of-text": "from ts.torch_handler.text_handler import BaseHandler as B; answer = B.__name__",
    "cleanup": "answer = util.CLEANUP_REGEX.sub('', 'a <b>c</b> &amp; &#65; d')",
    "contractions": "from ts.torch_handler.text_handler import CONTRACTIONS_PATTERN as P; "
    "answer = P.findall(\"I'd say it isn't\"), P.flags",
    "not-bound": "answer = hasattr(ts.torch_handler, 'text_handler'), hasattr(ts.handler_utils, 'micro_batching')",
    "no-such-module": "import ts.nothing_of_this_name",
    "find-spec": "import importlib.util; answer = importlib.util.find_spec('ts.nothing_of_this_name')",
    "backend-list": "answer = util.check_valid_pt2_backend(['eager'])",
    "ngrams-of-a-tuple": "answer = list(ts.handler_utils.text_utils.ngrams_iterator(('a', 'b', 'c'), 2))",
    "ngrams-of-a-dict": "answer = list(ts.handler_utils.text_utils.ngrams_iterator({'a': 1, 'b': 2}, 2))",
    "environment": "names = 'DECODE_INPUT_REQUEST', 'IPEX_ENABLE', 'IPEX_GPU_ENABLE'; "
    "answer = [os.environ[f'TS_{n}'] for n in names]",
    "private": "answer = context._request_processor is context.request_processor, context._metrics is context.metrics, "
    "context._limit_max_image_pixels, context._request_processor[0]._status_code",
    "psutil": "import psutil; answer = psutil.cpu_count() > 0",
}

_LOADING = """
import sys
from ts.context import Context

told = []


def tell(what):
    try:
        told.append(repr(what()))
    except Exception as error:
        told.append(type(error).__name__)


class Handler:
    def initialize(self, context):
        tell(lambda: context.cl_socket)
        tell(lambda: context.set_all_response_status(201))
        tell(lambda: context.set_response_status(201))
        tell(lambda: context.request_processor)

    def handle(self, data, context):
        return [" ".join(told)] * len(data)
"""

_TAKES = """
def handle(data, context):
    if data is None:
        return None
    word = bytes(data[0]["body"]).decode()
    if word == "pop":
        data.pop()
        return []
    if word == "pop-one":
        data.pop()
        return ["one"] * len(data)
    if word == "add":
        data.append({})
        return ["a"] * len(data)
    if word == "add-and-answer":
        data.append({})
        return ["a"]
    return [word] * len(data)
"""

_NUMBERS = """
import numpy as np
import torch
from ts.utils.util import PredictionException


class Text(str):
    def __str__(self):
        return "another"


def handle(data, context):
    if data is None:
        return None
    word = bytes(data[0]["body"]).decode()
    if word == "numpy":
        context.set_response_status(np.int64(201))
    if word == "tensor":
        context.set_response_status(torch.tensor(202))
    if word == "bool":
        context.set_response_status(True)
    if word == "float":
        context.set_response_status(201.0)
    if word == "text":
        context.set_response_status(404, np.str_("gone"))
        context.set_response_header(0, Text("X-A"), Text("b"))
        context.set_response_content_type(0, np.str_("text/plain"))
    if word == "raise":
        raise PredictionException(np.str_("no"), np.int32(418))
    return [word]
"""

_SELF = """
import copy

from ts.torch_handler.vision_handler import VisionHandler


class Handler(VisionHandler):
    def handle(self, data, context):
        word = bytes(data[0]["body"]).decode()
        if word == "vars":
            return [sorted(vars(self))]
        if word == "copied":
            return [sorted(vars(copy.copy(self)))]
        Handler.inference = lambda self, data: "patched"
        return [self.inference(None)]
"""

_WITHOUT_INIT = """
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def __init__(self):
        pass

    def preprocess(self, data):
        import torch

        return torch.tensor([[1.0, 2.0]] * len(data))
"""

_CHILDREN = """
import multiprocessing
import subprocess
import sys

from helper import work


def handle(data, context):
    if data is None:
        return None
    if bytes(data[0]["body"]) == b"spawn":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return [str(pool.map(work, [1, 2]))]
    code = "import helper, ts.context; print(helper.work(3), ts.context.Context.__name__)"
    return [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout]
"""

_HELPER = "from ts.utils.util import PredictionException\n\n\ndef work(number):\n    return number + 1\n"


_STDIN = """
import sys


def handle(data, context):
    if data is None:
        return None
    word = bytes(data[0]["body"])
    if word == b"input":
        return [input()]
    if word == b"breakpoint":
        breakpoint()
    if word == b"read":
        return [sys.stdin.read()]
    return [word]
"""


def _weights(folder: Path) -> dict[str, Path]:
    from conformance import nets  # torch is not imported to collect tests

    return {"w.pt": nets.script(nets.Affine(), folder / "w.pt")}


_MODEL: dict[str, Any] = {"make": _weights, "model": {"serializedFile": "w.pt"}}


def _plain(name: str, source: str, *calls: str, **options: Any) -> Probe:
    return asked(name, source, {call: call.encode() for call in calls}, **options)


# A module at the root: does the worker come up, and whose is found?
_FATAL = ("random", "types", "json", "torch", "yaml", "queue", "select")
_HARMLESS = ("calendar", "secrets", "decimal", "resource", "PIL")
_WHOSE = """
def handle(data, context):
    import {name}

    return [getattr({name}, "WHOSE", "another's")] * len(data or [1])
"""


def _shadow(name: str) -> Probe:
    files = {"handler.py": _WHOSE.format(name=name), f"{name}.py": "WHOSE = 'mine'\n"}
    return Probe(name=f"shadow-{name}", files=files, steps=(Call("whose", "x"),), settled=True)


_GO = "def go(data, context):\n    return [{}]\n"


def _in_folder(name: str, **files: str) -> Probe:
    return Probe(
        name=f"entry-in-{name}",
        files={member.replace("__", "/") + ".py": source for member, source in files.items()},
        model={"handler": "sub/file.py:go"},
        steps=(Call("ask", "x"),),
    )


_FOLDERS = (
    _in_folder("folder", sub__file="import beside\n\n\n" + _GO.format("beside.WHERE"), sub__beside="WHERE = 'sub'\n"),
    _in_folder("both", sub__file=_GO.format("'sub'"), file=_GO.format("'root'")),
)


def _configured(name: str, config: str, source: str, *calls: str) -> Probe:
    return Probe(
        name=f"config-{name}",
        files={"handler.py": source, "c.yaml": config},
        model={"configFile": "c.yaml"},
        steps=tuple(Call(call, call) for call in calls),
    )


_ANSWERS = "def handle(data, context):\n    return [{}]\n"
_CONFIGS = (
    _configured("number-key", "1: a\n", _ANSWERS.format("'x'"), "a"),
    _configured("torchrun-number-key", "torchrun: {1: 1}\n", _ANSWERS.format("'x'"), "a"),
    _configured("on-key", "on: a\n", _ANSWERS.format("'x'"), "a"),
    _configured("async-as-text", 'asyncCommunication: "true"\n', _ANSWERS.format("'x'"), "a"),
    _configured("batch-true", "batchSize: true\n", _ANSWERS.format("context.system_properties['batch_size']"), "a"),
    _configured(
        "batch-huge", "batchSize: 3000000000\n", _ANSWERS.format("context.system_properties['batch_size']"), "a"
    ),
    _configured(
        "sequences",
        "sequenceBatching: true\nsequenceMaxIdleMSec: 6000\nmaxNumSequence: 20\n",
        _ANSWERS.format(
            "context.request_ids is None or [context.get_sequence_id(0)[:7], len(context.get_sequence_id(0)), "
            "context.get_request_header(0, 'ts_request_sequence_start')]"
        ),
        "a",
    ),
    _configured("sequences-without-idle-time", "sequenceBatching: true\n", _ANSWERS.format("'x'")),
    _configured(
        "torchrun",
        "parallelType: pp\ntorchrun: {nproc-per-node: 1}\n",
        "import os\n" + _ANSWERS.format("[os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR')]"),
        "a",
    ),
)

PROBES = (
    asked("surroundings", handler("names"), {name: code.encode() for name, code in _NAMES.items()}),
    _plain("while-loading", _LOADING, "ask"),
    _plain(*("stdin", _STDIN, "input", "breakpoint", "read", "alive"), options={"response_timeout": 2}, settled=True),
    Probe(
        name="rows-taken",
        files={"handler.py": _TAKES},
        batch_size=2,
        steps=tuple(
            Batch(word, tuple(Call(f"{word}-{place}", word.encode()) for place in "ab"))
            for word in ("pop", "pop-one", "add", "add-and-answer", "plain")
        ),
    ),
    _plain("numbers-of-numpy", _NUMBERS, "numpy", "tensor", "bool", "float", "text", "raise", "plain"),
    _plain("handler-itself", _SELF, "vars", "copied", "patched", **_MODEL),
    asked("handler-without-init", _WITHOUT_INIT, {"ask": "x", "again": "x"}, **_MODEL),
    Probe(
        name="children",
        files={"handler.py": _CHILDREN, "helper.py": _HELPER},
        steps=(Call("spawn", b"spawn"), Call("process", b"process")),
        settled=True,
    ),
    *map(_shadow, (*_FATAL, *_HARMLESS)),
    *_FOLDERS,
    *_CONFIGS,
)
