"""The `json` envelope: TensorFlow Serving's `{"instances": […]}` → `{"predictions": […]}`."""

import base64
import itertools
import json
from typing import Any

from marpack.runtime.envelopes.base import BaseEnvelope, payload


class JSONEnvelope(BaseEnvelope):
    """Joins the instances of all requests into one batch for the handler, and shares its answers out again."""

    _lengths: list[int] = []  # noqa: RUF012 - replaced, never changed

    def parse_input(self, data: Any) -> Any:
        """Return every instance of every request, `{"b64": …}` decoded to bytes."""
        groups = [_instances(row) for row in data]
        self._lengths = [len(group) for group in groups]
        return list(itertools.chain.from_iterable(groups))

    def format_output(self, data: Any) -> Any:
        """Return one JSON text per request."""
        ends = list(itertools.accumulate(self._lengths))
        starts = [0, *ends]
        return [json.dumps({"predictions": data[start:end]}) for start, end in zip(starts, ends, strict=False)]


def _instances(row: Any) -> Any:
    instances = (payload(row) or row)["instances"]
    # Only the first tells whether they are objects, as on the server: a mixture fails there, and here.
    return [_decoded_instance(item) for item in instances] if isinstance(instances[0], dict) else instances


def _decoded_instance(instance: Any) -> Any:
    if list(instance.keys()) == ["b64"]:
        return base64.b64decode(instance["b64"])
    return {key: _decoded(value) for key, value in instance.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, dict) and list(value) == ["b64"]:
        return base64.b64decode(value["b64"])
    return value
