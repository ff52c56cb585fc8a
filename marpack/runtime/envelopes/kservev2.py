"""The `kservev2` envelope: the v2 inference protocol's `inputs` → `outputs`, first request only."""

import json
from typing import Any

import numpy as np

from marpack.runtime.envelopes.base import BaseEnvelope, payload

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "byte": "BYTES",
    "object": "BYTES",
    "U": "BYTES",
}


class KServev2Envelope(BaseEnvelope):
    """Hands the first request's tensors to the handler, one row each; output types follow numpy, not the request."""

    def parse_input(self, data: Any) -> Any:
        """Return the inputs of the first request, their data in the shape asked for; of BYTES the first element."""
        bodies = [payload(row) for row in data]
        if isinstance(bodies[0], bytes | bytearray):
            bodies = [json.loads(body.decode("utf8")) for body in bodies]
        inputs = bodies[0]["inputs"]
        for tensor in inputs:
            tensor["data"] = _shaped(tensor)
        self.context.input_names = [tensor["name"] for tensor in inputs]
        request_id = bodies[0].get("id")
        if request_id and request_id.strip():
            self.context.input_request_id = request_id
        return [body.get("inputs") for body in bodies][0]  # noqa: RUF015 - every body is looked at, as on the server

    def format_output(self, data: Any) -> Any:
        """Return one v2 answer, whatever the batch's size."""
        model = self.context.manifest.get("model")
        answer = {
            "id": self._request_id(),
            "model_name": model.get("modelName"),
            "model_version": model.get("modelVersion"),
        }
        names = self.context.input_names
        del self.context.input_names
        answer["outputs"] = [_output(item, names[index]) for index, item in enumerate(data)]
        return [answer]

    def _request_id(self) -> Any:
        if not hasattr(self.context, "input_request_id"):
            return self.context.get_request_id(0)
        request_id = self.context.input_request_id
        del self.context.input_request_id
        return request_id


def _shaped(tensor: Any) -> Any:
    if tensor["datatype"] == "BYTES":
        return tensor["data"][0]
    return np.array(tensor["data"]).reshape(tuple(tensor["shape"])).tolist()


def _output(item: Any, name: str) -> dict[str, Any]:
    flat = np.array(item).flatten()
    known = str(flat.dtype) if str(flat.dtype) in _DATATYPES else flat.dtype.kind
    return {"name": name, "datatype": _DATATYPES[known], "data": flat.tolist(), "shape": flat.shape}
