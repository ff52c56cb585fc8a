"""Handlers with nothing wrong, in many styles: no check may have anything against them."""

import io
from typing import Any

import numpy as np
from gate.archives import HANDLER
from PIL import Image

TEXTS = {"a.txt": "a first text", "b.txt": "another, which is longer", "c.txt": "no"}
JSONS = {"a.json": "[1, 2, 3]", "b.json": "[4, 5, 6]", "c.json": "[-7.5, 8, 9]"}


def function(body: str, *, before: str = "", answer: str = "answer(text)") -> str:
    """Return a handler that is one function, with `answer` or whatever is given for each text."""
    return f"""
import json, os
{before}

def text_of(row):
    body = row.get("data") or row.get("body")
    return body if isinstance(body, str) else bytes(body).decode()

def answer(text):
{body}

def handle(data, context):
    if data is None:
        return None
    return [{answer} for index, text in enumerate(map(text_of, data))]
"""


def returning(expression: str, **options: str) -> str:
    return function(f"    return {expression}\n", **options)


def method(body: str, *, before: str = "") -> str:
    """Return a class whose `one(row, context, index)` has this body."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"""
import json, os
{before}

class Handler:
    def initialize(self, context):
        self.context = context

    def handle(self, data, context):
        return [self.one(row, context, index) for index, row in enumerate(data)]

    def one(self, row, context, index):
{lines}
"""


def picture(color: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), color).save(buffer, "PNG")
    return buffer.getvalue()


def array(*values: float) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(values))
    return buffer.getvalue()


PICTURES = {"red.png": picture("red"), "blue.png": picture("blue"), "green.png": picture("green")}
ARRAYS = {"a.npy": array(1, 2), "b.npy": array(3, 4.5), "c.npy": array(-1, 0)}
CLASSIFIER = """
import base64, io
from PIL import Image


class Handler:
    def initialize(self, context): ...

    def preprocess(self, data):
        for row in data:
            picture = row.get("data") or row.get("body")
            if isinstance(picture, str):
                picture = base64.b64decode(picture)
            yield Image.open(io.BytesIO(picture)).convert("RGB")

    def handle(self, data, context):
        return [dict(zip("rgb", image.getpixel((0, 0)), strict=True)) for image in self.preprocess(data)]
"""
STREAM = """
from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return
    if not all(isinstance(row.get("body"), str) for row in data):
        raise TypeError("text, please")
    words = [row["body"].split() for row in data]
    for number in range(2):
        pieces = [text[number % len(text)] + " " for text in words]
        send_intermediate_predict_response(pieces, context.request_ids, "next", 200, context)
    return [text[-1] for text in words]
"""
LEGACY = """
_service = None


class Service:
    def __init__(self):
        self.ready = False

    def initialize(self, context):
        self.ready = True

    def handle(self, data, context):
        return [{"size": len(row.get("data") or row.get("body"))} for row in data]


def handle(data, context):
    global _service
    if _service is None:
        _service = Service()
        _service.initialize(context)
    if data is None:
        return None
    return _service.handle(data, context)
"""

COROUTINE = """
class Handler:
    def initialize(self, context): ...

    async def handle(self, data, context):
        return [len(row["body"]) for row in data]
"""
BESIDE = """
from words import answer


def handle(data, context):
    if data is not None:
        return [answer(row["body"]) for row in data]
"""
MET = """
# ours
numpy>=1
click[extra] ; python_version > '3'
nobody ; python_version < '3'
"""

# name → handler, samples, more of the project
HEALTHY: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a class": (HANDLER, TEXTS, {}),
    "a function": (returning("{'length': len(text)}"), TEXTS, {}),
    "a service behind a function": (LEGACY, TEXTS, {}),
    "a top-k": (
        function("    scores = {l: text.count(l) / len(text) for l in 'aeiou'}\n"
                 "    return dict(sorted(scores.items(), key=lambda pair: -pair[1])[:3])\n"), TEXTS, {},
    ),
    "JSON": (method('return sum(row["body"])'), JSONS, {}),
    "JSON however it comes": (
        method('body = row.get("data") or row.get("body")\n'
               "return sum(json.loads(body) if isinstance(body, (bytes, bytearray)) else body)"), JSONS, {},
    ),
    "refusals by status": (
        method('if "no" in str(row):\n    context.set_response_status(400, "no", index)\n    return "not this"\n'
               'return len(row.get("data") or row["body"])'),
        TEXTS, {"expect": {"c.txt": {"status": 400, "text": "not this"}, "b.txt": {"status": 400}}},
    ),
    "refusals by exception": (
        method('from ts.utils.util import PredictionException\n'
               'if len(row.get("data") or row["body"]) < 3: raise PredictionException("too short", 422)\n'
               'return 1'),
        TEXTS, {"expect": {"c.txt": {"status": 422, "json": {"message": "too short"}}}},
    ),
    "answers by id": (
        """
def handle(data, context):
    if data is None:
        return
    found = {context.get_request_id(index): len(row.get("data") or row["body"]) for index, row in enumerate(data)}
    return [found[context.get_request_id(index)] for index in range(len(data))]
""", TEXTS, {},
    ),
    "pictures in every form": (CLASSIFIER, PICTURES, {}),
    "arrays": (
        method('return np.load(io.BytesIO(row["body"])).tolist()', before="import io\nimport numpy as np"), ARRAYS, {},
    ),
    "a process of its own": (
        function('    return subprocess.run(["cat"], input=text.encode(), capture_output=True).stdout.decode()\n',
                 before="import subprocess"), TEXTS, {},
    ),
    "a stream": (STREAM, TEXTS, {"config": None}),
    "coroutines": (
        COROUTINE, TEXTS, {"config": {"asyncCommunication": True, "batchSize": 2}},
    ),
    "modules beside it": (
        BESIDE, TEXTS, {"files": {"words.py": "def answer(text):\n    return len(text)\n"}},
    ),
    "one sample": (HANDLER, {"a.txt": "alone"}, {}),
    "requirements that are met": (
        HANDLER, TEXTS,
        {"files": {"requirements.txt": MET}, "requirements": "requirements.txt"},
    ),
    "every kind of expectation": (
        returning("{'vowel': 0.5, 'other': 0.5}"), TEXTS,
        {"expect": {"a.txt": {"status": 200, "json": {"vowel": {"min": 0.4, "max": 0.6}, "other": 0.5}},
                    "b.txt": {"text": {"contains": ["vowel", "0.5"], "regex": r"\{.*\}|^\{"}},
                    "c.txt": {"json": {"vowel": {"approx": 0.5001, "tolerance": 0.001}}}}},
    ),
}  # fmt: skip
