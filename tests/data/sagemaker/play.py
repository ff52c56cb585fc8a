"""Play the cases: `python play.py toolkit|HANDLER.py OUTPUT.json [decoded]`, each in a process of its own.

`toolkit` is AWS's, from sagemaker-pytorch-inference. `decoded`: bodies as a TorchServe with decode_input_request=true
gives them.
"""

import base64
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy  # before the fork
import torch  # noqa: F401
from cases import CASES


class Processor:
    """One request, as in a context of TorchServe."""

    def __init__(self, headers):
        self.headers, self.status, self.phrase, self.response_headers = headers, 200, None, {}

    def get_request_properties(self):
        return self.headers

    def get_request_property(self, key):
        return self.headers.get(key)


class Context:
    """The part of TorchServe's context that the handlers use."""

    def __init__(self, model_dir):
        self.system_properties = {"model_dir": model_dir, "gpu_id": None}
        self.request_processor = []

    def get_request_header(self, index, key):
        return self.request_processor[index].headers.get(key)

    def get_all_request_header(self, index):
        return self.request_processor[index].headers

    def set_response_header(self, index, key, value):
        self.request_processor[index].response_headers[key] = value

    def set_response_content_type(self, index, value):
        self.set_response_header(index, "content-type", value)

    def set_response_status(self, code=200, phrase="", idx=0):
        self.request_processor[idx].status, self.request_processor[idx].phrase = code, phrase


def make_handler(which):
    """Return an instance of the toolkit's service or of the handler in a file."""
    if which == "toolkit":
        from sagemaker_pytorch_serving_container.handler_service import HandlerService

        return HandlerService()
    spec = importlib.util.spec_from_file_location("sagemaker_handler", which)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SageMakerHandler()


def decode(body, content_type):
    """Return a body as TorchServe's worker decodes it."""
    kind = (content_type or "").split(";")[0].strip()
    try:
        if kind == "application/json":
            return json.loads(body.decode())
        if kind.startswith("text"):
            return body.decode()
    except ValueError:
        pass
    return body


def play(which, case, decoded):
    """Return what a case gives: the type of the error that keeps it from loading, or its responses."""
    files, environment, requests = case
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.write_bytes(MODEL)
            else:
                path.write_text(text)
        os.chdir(folder)
        os.environ.update(environment)
        if which == "toolkit":  # as its start script does
            code = f"{folder}/code"
            os.environ["PYTHONPATH"] = code
            sys.path.insert(0, code)
        context, handler = Context(folder), make_handler(which)
        try:
            handler.initialize(context)
        except Exception as error:
            return {"load": type(error).__name__}
        return {"responses": [respond(handler, context, each, decoded) for each in requests]}


def respond(handler, context, request, decoded):
    """Return the response to one request, encoded as TorchServe does; of a failed one the first line."""
    body = bytearray(base64.b64decode(request["body"]))
    processor = Processor(request["headers"])
    context.request_processor = [processor]
    content_type = request["headers"].get("Content-Type") or request["headers"].get("content-type")
    (value,) = handler.handle([{"body": decode(body, content_type) if decoded else body}], context)
    data = value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value, indent=2)).encode()
    found = {"status": processor.status, "headers": processor.response_headers}
    if processor.status == 200:
        return {**found, "body": base64.b64encode(data).decode()}
    return {**found, "phrase": processor.phrase, "first line": data.decode().split("\n")[0]}


MODEL = Path(__file__).with_name("model.pt").read_bytes()  # doubles and adds one

if __name__ == "__main__":
    which, output = sys.argv[1], Path(sys.argv[2]).absolute()
    which = which if which == "toolkit" else os.path.abspath(which)
    found = {}
    sys.stdout.flush()
    for name, case in CASES.items():
        reader, writer = os.pipe()
        if not os.fork():
            try:
                text = json.dumps(play(which, case, "decoded" in sys.argv[3:]))
            except BaseException as error:
                text = json.dumps({"broken": repr(error)})
            os.write(writer, text.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found[name] = json.loads(pipe.read())
        os.wait()
    output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
