"""Scripts as authors write them, and the requests to each: what AWS's toolkit and marpack's handler are compared by."""

import base64
import io

import numpy

JSON, CSV, NPY, NPZ = "application/json", "text/csv", "application/x-npy", "application/x-npz"


def request(body, content_type=JSON, accept=None, **headers):
    """Return one request; without a content type or `accept`, it has no such header."""
    sent = {"Content-Type": content_type, "Accept": accept, **headers}
    data = body if isinstance(body, bytes) else body.encode()
    return {"body": base64.b64encode(data).decode(), "headers": {k: v for k, v in sent.items() if v is not None}}


def npy(array, **options):
    """Return an array in NumPy's format."""
    file = io.BytesIO()
    numpy.save(file, array, **options)
    return file.getvalue()


_MODEL_FN = "def model_fn(model_dir):\n    return lambda x: x\n"
_ECHO = _MODEL_FN + """
def input_fn(body, content_type):
    return body, content_type

def predict_fn(data, model):
    return data

def output_fn(prediction, accept):
    import json
    body, content_type = prediction
    # The text of JSON may be written again on the way.
    body = json.loads(body) if content_type == "application/json" else repr(body)
    return json.dumps([body, content_type, accept])
"""
_CONTEXT = """
import json

def model_fn(model_dir, context):
    return context.system_properties["model_dir"] == model_dir

def input_fn(body, content_type, context):
    return json.loads(body), context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")

def predict_fn(data, model, context):
    return [data, model]

def output_fn(prediction, accept, context):
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "seen=1")
    return json.dumps(prediction)
"""
_TRANSFORM = _MODEL_FN + """
def transform_fn(model, body, content_type, accept):
    if body == '"fail"':
        raise KeyError("no such key")
    if body == '"text"':
        return "plain"
    return body[::-1].encode(), "text/reversed"
"""
_TRANSFORM_CONTEXT = """
def model_fn(model_dir):
    return 3

def transform_fn(model, body, content_type, accept, context):
    return {"model": model, "id": context.get_request_header(0, "X-Id"), "accept": accept}
"""
_RAISES = _MODEL_FN + """
try:
    from sagemaker_inference.errors import BaseInferenceToolkitError
except ImportError:
    class BaseInferenceToolkitError(Exception):
        def __init__(self, status_code, message, phrase):
            self.status_code, self.message, self.phrase = status_code, message, phrase

class TeapotError(BaseInferenceToolkitError):
    pass

class SilentError(Exception):
    pass

def input_fn(body, content_type):
    kind = body.strip('"')
    if kind == "teapot":
        raise TeapotError(418, "short and stout", "I am a\\r\\nteapot")
    if kind == "value":
        raise ValueError("first line\\nsecond line")
    raise SilentError

def predict_fn(data, model, more, evenmore):
    return data
"""
_OUTPUTS = _MODEL_FN + """
import numpy
import torch

def input_fn(body, content_type):
    return body.strip('"')

def predict_fn(data, model):
    return {
        "tensor": torch.tensor([[1.5, 2.0]]),
        "tuple": (1, 2, 3),
        "numpy": numpy.arange(4).reshape(2, 2),
        "dict": {"a": numpy.float32(0.5), "b": torch.ones(2)},
        "list": ["a", "b"],
        "none": None,
        "set": {1},
        "nan": float("nan"),
        "parameter": torch.nn.Parameter(torch.ones(1)),
    }[data]
"""
_VALUES = _MODEL_FN + """
def input_fn(body, content_type):
    return body.strip('"')

def predict_fn(data, model):
    return data

def output_fn(prediction, accept):
    return {
        "dict": {"a": [1]},
        "bytes": b"\\x00\\xff",
        "pair": (b"raw", "application/x-raw"),
        "three": ("text", "text/plain", "more"),
        "number": 7,
    }[prediction]
"""
_ENVIRONMENT = """
import os
import sys

import beside

def model_fn(model_dir):
    code = os.path.join(model_dir, "code")
    return {
        "path": code in sys.path,
        "children": code in os.environ["PYTHONPATH"].split(os.pathsep),
        "beside": beside.NAME,
        "folder": os.path.realpath(os.getcwd()) == os.path.realpath(model_dir),
    }

def transform_fn(model, body, content_type, accept):
    import json
    return json.dumps(model)
"""
_HOOKS = """
STEPS = []

def pre_model_fn(model_dir):
    STEPS.append("before")

def model_fn(model_dir):
    STEPS.append("load")
    return STEPS

def model_warmup_fn(model_dir, model):
    model.append("after")

def transform_fn(model, body, content_type, accept):
    import json
    return json.dumps(model)
"""

_NUMBERS = [
    request("[1, 2.5]"),
    request("[[1, 2], [3, 4]]", accept=CSV),
    request("[[1, 2], [3, 4]]", accept=NPY),
    request("[1, 2.5]", accept="text/csv , application/json"),
    request("[1]", accept="image/png, application/json"),
    request("[1]", accept="*/*"),
    request("[1]", accept="image/png"),
    request("3"),
    request('["a"]'),
    request("[1, [2]]"),
    request("[1"),
    request(""),
    request("[1]", "application/json; charset=utf-8"),
    request("[1]", "text/plain"),
    request("[1]", None),
    request("1,2\n3,4", CSV),
    request("1.5,2\n", CSV, accept=CSV),
    request("a,2\n", CSV),
    request("", CSV),
    request(b"\xff\xfe", CSV),
    request(npy(numpy.float32([[1, 2]])), NPY),
    request(npy(numpy.arange(3)), NPY, accept=NPY),
    request(b"not npy", NPY),
    request(b"PK", NPZ),
]

# name → the files of the model folder, the environment, and the requests; "model.pt" doubles and adds one.
CASES = {
    "defaults": ({"code/inference.py": "", "model.pt": None}, {}, _NUMBERS),
    "JSON object": (
        {"code/inference.py": _MODEL_FN + "def predict_fn(data, model):\n    return [data['inputs']]\n"},
        {},
        [request('{"inputs": "text"}')],
    ),
    "one .pth": ({"code/inference.py": "", "other.pth": None}, {}, [request("[1]")]),
    "default accept": (
        {"code/inference.py": "", "model.pt": None},
        {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": CSV},
        [request("[[1, 2]]"), request("[1]", accept=JSON), request("[[1, 2]]", accept="*/*")],
    ),
    "bodies": (
        {"code/inference.py": _ECHO},
        {},
        [
            request('{"b": [1, "ä"], "a": null}'),
            request('"text"'),
            request("null"),
            request("a,b\n", CSV, accept="x/y"),
            request("plain ä", "text/plain"),
            request('{"a": 1}', "application/vnd.api+json"),
            request(b"\x00\xff", "application/octet-stream"),
            request("x", None),
        ],
    ),
    "lower-case headers": (
        {"code/inference.py": _ECHO},
        {},
        [{**request("[1]", None), "headers": {"content-type": JSON, "accept": "a/b"}}],
    ),
    "context": (
        {"code/inference.py": _CONTEXT},
        {},
        [request("[1]", **{"X-Amzn-SageMaker-Custom-Attributes": "trace=7"}), request("[2]")],
    ),
    "transform": ({"code/inference.py": _TRANSFORM}, {}, [request("[1, 2]"), request('"fail"'), request('"text"')]),
    "transform with context": (
        {"code/inference.py": _TRANSFORM_CONTEXT},
        {},
        [request("{}", accept="a/b", **{"X-Id": "9"})],
    ),
    "exceptions": ({"code/inference.py": _RAISES}, {}, [request('"teapot"'), request('"value"'), request('"x"')]),
    "wrong number of parameters": (
        {"code/inference.py": _RAISES.replace("raise SilentError", "return body")},
        {},
        [request('"x"')],
    ),
    "predictions": (
        {"code/inference.py": _OUTPUTS},
        {},
        [
            request(f'"{kind}"', accept=accept)
            for kind in ("tensor", "tuple", "numpy", "dict", "list", "none", "set", "nan", "parameter")
            for accept in (JSON, CSV)
        ],
    ),
    "return values": (
        {"code/inference.py": _VALUES},
        {},
        [request(f'"{kind}"') for kind in ("dict", "bytes", "pair", "three", "number", "missing")],
    ),
    "environment": ({"code/inference.py": _ENVIRONMENT, "code/beside.py": "NAME = 'b'"}, {}, [request("{}")]),
    "program": (
        {"code/inference.py": "raise SystemExit", "code/serve.py": _HOOKS},
        {"SAGEMAKER_PROGRAM": "serve.py"},
        [request("{}")],
    ),
    "hooks": ({"code/inference.py": _HOOKS}, {}, [request("{}")]),
    "transform_fn and predict_fn": ({"code/inference.py": _TRANSFORM + "predict_fn = print"}, {}, []),
    "model_fn without parameters": ({"code/inference.py": "def model_fn():\n    pass"}, {}, []),
    "import fails": ({"code/inference.py": "import no_such_module_anywhere"}, {}, []),
    "model_fn fails": ({"code/inference.py": "def model_fn(model_dir):\n    raise LookupError('x')"}, {}, []),
    "two models": ({"code/inference.py": "", "a.pt": None, "b.pth": None}, {}, []),
    "no model": ({"code/inference.py": ""}, {}, []),
}
