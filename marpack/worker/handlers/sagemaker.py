"""A TorchServe handler that calls the functions of SageMaker's `code/inference.py`.

marpack adds this file to an archive as `sagemaker_handler.py`. It imports only NumPy and torch, so it works on any
TorchServe. Its behavior is that of AWS's PyTorch inference toolkit, 2.0.25.
"""

import importlib
import importlib.util
import inspect
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"


class SageMakerHandler:
    """Calls `model_fn` once; for each request `transform_fn`, or `input_fn`, `predict_fn` and `output_fn`."""

    def initialize(self, context: Any) -> None:  # Any: the server's Context
        """Import the script and load the model; raises the author's exceptions."""
        model_dir = str(context.system_properties["model_dir"])
        code = str(Path(model_dir, "code"))
        sys.path.insert(0, code)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))
        os.environ.setdefault("SM_MODEL_DIR", model_dir)
        os.environ.setdefault("SAGEMAKER_SUBMIT_DIRECTORY", code)
        program = os.environ.setdefault("SAGEMAKER_PROGRAM", "inference.py").removesuffix(".py")
        self._script = importlib.import_module(program) if importlib.util.find_spec(program) else None
        steps = [name for name in ("input_fn", "predict_fn", "output_fn") if hasattr(self._script, name)]
        if hasattr(self._script, "transform_fn") and steps:
            raise ValueError(
                f"{program}.py defines transform_fn and {steps[0]}; remove one, as SageMaker accepts only one"
            )
        self._call("pre_model_fn", context, model_dir)
        self._model = self._call("model_fn", context, model_dir, default=load_model)
        self._call("model_warmup_fn", context, model_dir, self._model)

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:  # Any: bodies, Context, responses
        """Return the response of each request; an exception becomes a response with its traceback, as on SageMaker."""
        responses: list[Any] = []
        for index, row in enumerate(data):
            try:
                responses.append(self._respond(row, index, context))
            except Exception as error:  # noqa: BLE001 - as on SageMaker
                known: Any = error  # Any: the toolkit's own error is not imported; its subclasses choose the status
                is_own = any(kind.__name__ == "BaseInferenceToolkitError" for kind in type(error).__mro__)
                message = known.message if is_own else str(error) or "Invalid Request"
                status, phrase = (known.status_code, known.phrase) if is_own else (500, message)
                phrase = re.sub("[\r\n]", " ", phrase).encode("ascii", "replace").decode()  # others end the worker
                context.set_response_status(status, phrase, index)
                responses.append(f"{message}\n{traceback.format_exc()}")
        return responses

    def _respond(self, row: dict[str, Any], index: int, context: Any) -> Any:  # Any: as above
        headers = {name.lower(): value for name, value in context.get_all_request_header(index).items()}
        content_type = headers.get("content-type", headers.get("contenttype"))
        accept = headers.get("accept")
        if not accept or accept == "*/*":
            accept = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", JSON)
        body = encode_body(row.get("body", row.get("data")), content_type)
        if hasattr(self._script, "transform_fn"):
            result = self._call("transform_fn", context, self._model, body, content_type, accept)
        else:
            inputs = self._call("input_fn", context, body, content_type, default=read_input)
            prediction = self._call("predict_fn", context, inputs, self._model, default=predict)
            result = self._call("output_fn", context, prediction, accept, default=write_output)
        if isinstance(result, tuple):
            result, accept = result[:2]
        context.set_response_content_type(index, accept)
        return result

    def _call(self, name: str, context: Any, *arguments: Any, default: Callable[..., Any] | None = None) -> Any:
        """Call the script's function, with the context if it has a parameter for it, otherwise the default, if any."""
        function = getattr(self._script, name, None)
        if function is None:
            return default(*arguments) if default else None
        count = len(inspect.signature(function).parameters)
        if count == len(arguments) + 1:
            arguments = (*arguments, context)
        elif count != len(arguments):
            raise TypeError(
                f"{name} has {count} parameters; SageMaker passes {len(arguments)}, and the context to one more"
            )
        return function(*arguments)


def encode_body(value: Any, content_type: str | None) -> Any:  # Any: what the server decoded, and text or bytes
    """Return a body as on SageMaker: text for JSON and CSV, otherwise bytes. TorchServe may have decoded it."""
    if not isinstance(value, bytes | bytearray):
        is_plain = isinstance(value, str) and str(content_type).startswith("text")
        value = bytearray((value if is_plain else json.dumps(value)).encode())
    return value.decode() if content_type in (JSON, CSV) else value


# The defaults of the author's functions.


def load_model(model_dir: str) -> Any:  # Any: a ScriptModule, whose methods are not typed
    """Load model.pt, otherwise the only .pt or .pth file, as TorchScript."""
    files = [path for path in Path(model_dir).iterdir() if path.suffix in {".pt", ".pth"} and path.is_file()]
    files = [path for path in files if path.name == "model.pt"] or files
    if len(files) != 1:
        raise ValueError(f"define model_fn, or pack exactly one .pt or .pth file: the archive has {len(files)}")
    return torch.jit.load(str(files[0]), map_location=DEVICE)  # type: ignore[no-untyped-call]


def read_input(body: Any, content_type: str) -> Any:  # Any: a tensor, or a JSON object
    """Return a tensor of JSON, CSV (both as float32) or NPY; a JSON object as a dict, as AWS's Hugging Face images do.

    Unlike the toolkit, this never unpickles, and a single number is not the size of a tensor of uninitialized memory.
    """
    value: Any = json.loads(body) if content_type == JSON else None  # Any: JSON
    if isinstance(value, dict):
        return value
    if content_type == JSON:
        tensor: torch.Tensor = torch.FloatTensor(np.atleast_1d(value))
    elif content_type == CSV:
        tensor = torch.FloatTensor(np.atleast_1d(np.genfromtxt(io.StringIO(body), dtype=None, delimiter=",")))
    elif content_type == NPY:
        tensor = torch.from_numpy(np.load(io.BytesIO(body), allow_pickle=False))
    else:
        raise ValueError(f"without input_fn, requests of content type {content_type} are not supported")
    return tensor.to(DEVICE)


def predict(inputs: torch.Tensor, model: Any) -> Any:  # Any: the author's model, and its output
    """Return the model's output, computed without gradients."""
    with torch.no_grad():
        model = model.to(DEVICE)
        model.eval()
        return model(inputs.to(DEVICE))


def write_output(prediction: Any, accept: str) -> str | bytes:  # Any: the author's value
    """Return a prediction in the first content type of `accept` that is JSON, CSV or NPY."""
    if type(prediction) is torch.Tensor:
        prediction = prediction.detach().cpu().numpy().tolist()
    for kind in accept.replace(" ", "").split(","):
        if kind == JSON:
            return json.dumps(prediction, default=lambda value: value.tolist())  # of arrays and tensors
        if kind == CSV:
            text = io.StringIO()
            np.savetxt(text, prediction, delimiter=",", fmt="%s")
            return text.getvalue().encode()
        if kind == NPY:
            data = io.BytesIO()
            np.save(data, prediction)
            return data.getvalue()
    raise ValueError(f"without output_fn, responses of content type {accept} are not supported")
