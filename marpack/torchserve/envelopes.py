"""Request envelopes: another protocol's requests → a handler's rows, and its answers back (contract §9)."""

import base64
import itertools
import json
from abc import ABC, abstractmethod
from typing import Any

from marpack.torchserve.context import Handle

# numpy's names, or its letters for kinds → the protocol's
_DATATYPES = {"bool": "BOOL", "byte": "BYTES", "object": "BYTES", "U": "BYTES"}
_DATATYPES |= {f"{kind}{bits}": f"{kind}{bits}".upper() for kind in ("uint", "int") for bits in (8, 16, 32, 64)}
_DATATYPES |= {f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)}


class BaseEnvelope(ABC):
    """Stands between the server and a handler's entry point.

    Rows and answers are `Any` throughout: they are whatever clients sent and handlers returned, and what does not fit
    must fail where and as it fails on the server.
    """

    answers_one = False  # the first request of a batch alone

    def __init__(self, handle_fn: Handle) -> None:
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: Any, context: Any) -> Any:
        """Answer one batch; an empty batch and an empty answer pass untouched."""
        self.context = context
        answers = self._handle_fn(self.parse_input(data) if data else data, context)
        return self.format_output(answers) if answers else answers

    @abstractmethod
    def parse_input(self, data: Any) -> Any:
        """Return the handler's rows."""

    @abstractmethod
    def format_output(self, data: Any) -> Any:
        """Return the answers in the protocol's form."""


def payload(row: Any) -> Any:
    """Return what a row carries: its `data`, else its `body`."""
    return row.get("data") or row.get("body")


class BodyEnvelope(BaseEnvelope):
    """Unwraps each row to its `data` or `body`; answers pass untouched."""

    def parse_input(self, data: Any) -> Any:
        """Return one payload per row."""
        return [payload(row) for row in data]

    def format_output(self, data: Any) -> Any:
        """Return the answers as they are."""
        return data


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
        bounds = itertools.pairwise(itertools.accumulate(self._lengths, initial=0))
        return [json.dumps({"predictions": data[start:end]}) for start, end in bounds]


def _instances(row: Any) -> Any:
    instances = (payload(row) or row)["instances"]
    if not isinstance(instances[0], dict):  # only the first counts, as on the server: a mixture fails there, and here
        return instances
    return [
        base64.b64decode(item["b64"])
        if list(item.keys()) == ["b64"]
        else {key: _decoded(value) for key, value in item.items()}
        for item in instances
    ]


def _decoded(value: Any) -> Any:
    is_base64 = isinstance(value, dict) and list(value) == ["b64"]
    return base64.b64decode(value["b64"]) if is_base64 else value


class KServeEnvelope(BaseEnvelope):
    """Hands the first request's instances to the handler; the others of a batch are lost, as on the server."""

    answers_one = True

    def parse_input(self, data: Any) -> Any:
        """Return the instances of the first request."""
        body = [payload(row) for row in data][0]  # noqa: RUF015 - every row is looked at, as on the server
        if isinstance(body, bytes | bytearray):
            body = json.loads(body.decode())
        return body.get("instances")

    def format_output(self, data: Any) -> Any:
        """Return one answer, whatever the batch's size."""
        explains = self.context and self.context.get_request_header(0, "explain") == "True"
        return [{"explanations" if explains else "predictions": data}]


class KServev2Envelope(BaseEnvelope):
    """Hands the first request's tensors to the handler, one row each; output types follow numpy, not the request."""

    answers_one = True

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
        if hasattr(self.context, "input_request_id"):
            request_id = self.context.input_request_id
            del self.context.input_request_id
        else:
            request_id = self.context.get_request_id(0)
        answer = {
            "id": request_id,
            "model_name": model.get("modelName"),
            "model_version": model.get("modelVersion"),
        }
        names = self.context.input_names
        del self.context.input_names
        answer["outputs"] = [_output(item, names[index]) for index, item in enumerate(data)]
        return [answer]


def _shaped(tensor: Any) -> Any:
    if tensor["datatype"] == "BYTES":
        return tensor["data"][0]
    import numpy as np  # noqa: PLC0415 - few archives have this envelope

    return np.array(tensor["data"]).reshape(tuple(tensor["shape"])).tolist()


def _output(item: Any, name: str) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    flat = np.array(item).flatten()
    known = str(flat.dtype) if str(flat.dtype) in _DATATYPES else flat.dtype.kind
    return {"name": name, "datatype": _DATATYPES[known], "data": flat.tolist(), "shape": flat.shape}


ENVELOPES: dict[str, type[BaseEnvelope]] = {
    "base": BaseEnvelope,  # type: ignore[type-abstract]  # as on the server: making one fails
    "body": BodyEnvelope,
    "json": JSONEnvelope,
    "kserve": KServeEnvelope,
    "kservev2": KServev2Envelope,
}


def envelope_of(name: str | None, handle: Handle) -> Handle:
    """Return an entry point wrapped in the envelope of that name; unchanged without a name.

    Raises ModuleNotFoundError for a name that the server does not know either.
    """
    if not name:
        return handle
    if name not in ENVELOPES:
        known = ", ".join(sorted(set(ENVELOPES) - {"base"}))
        raise ModuleNotFoundError(f"there is no envelope named {name!r}; the server knows {known}")
    return ENVELOPES[name](handle).handle


def loses_requests(handle: Handle) -> str | None:
    """Return the name of the envelope around an entry point, if it answers the first request of a batch alone."""
    envelope = getattr(handle, "__self__", None)
    if not isinstance(envelope, BaseEnvelope) or not envelope.answers_one:
        return None
    return next(name for name, kind in ENVELOPES.items() if kind is type(envelope))
