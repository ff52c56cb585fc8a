"""What a handler is given: its rows, and the context (contract §3 and §4)."""

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from marpack.torchserve.http import Part, Request

if TYPE_CHECKING:
    from marpack.torchserve.metrics import MetricsCacheYamlImpl

SERVER_VERSION = "0.12.0"

Row = dict[str, Any]  # Any: bytearray, str, or decoded JSON
Handle = Callable[[Any, Any], Any]  # Any: (rows | None, Context) → the author's value


class RequestProcessor:
    """One request's headers, and the status and headers of its answer."""

    def __init__(self, request_header: dict[str, Any]) -> None:  # Any: form fields map to {"content-type": …}
        self._request_header = request_header
        self._status_code = 200
        self._reason_phrase: str | None = None
        self._response_header: dict[str, str] = {}

    def get_request_property(self, key: str) -> Any:
        """Return the header of exactly this name, or None."""
        return self._request_header.get(key)

    def get_request_properties(self) -> dict[str, Any]:
        """Return every header of the request."""
        return self._request_header

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Set the answer's status code and reason phrase."""
        self._status_code = code
        self._reason_phrase = reason_phrase

    def get_response_status_code(self) -> int:
        """Return the answer's status code."""
        return self._status_code

    def get_response_status_phrase(self) -> str | None:
        """Return the answer's reason phrase, if one was set."""
        return self._reason_phrase

    def add_response_property(self, key: str, value: str) -> None:
        """Set one header of the answer."""
        self._response_header[key] = value

    def get_response_headers(self) -> dict[str, str]:
        """Return every header of the answer set so far."""
        return self._response_header

    def get_response_header(self, key: str) -> str | None:
        """Return one header of the answer, or None."""
        return self._response_header.get(key)


class Context:
    """The facts of a worker, fixed when the model is loaded, and the requests of a batch, new for every call.

    Handlers set attributes of their own on it, and read those with an underscore, which have the server's names.
    """

    # `vars` shows the server's attributes alone; marpack's settings of the handler are in a slot.
    __slots__ = ("__dict__", "__weakref__", "_marpack_settings")

    cl_socket: Any  # Any: an object with `sendall`; missing before the first request

    def __init__(  # noqa: PLR0913, PLR0917 - the signature is the contract's
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any] | None,
        batch_size: int | None,
        gpu: int | None,
        mms_version: str,
        limit_max_image_pixels: bool = True,
        metrics: "MetricsCacheYamlImpl | None" = None,
        model_yaml_config: dict[str, Any] | None = None,
    ) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self._system_properties = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",
            "server_version": mms_version,
            "limit_max_image_pixels": limit_max_image_pixels,
        }
        self.request_ids: dict[int, str] | None = None
        # While initializing, reading one fails as on the server: None cannot be subscripted.
        self._request_processor: list[RequestProcessor] = None  # type: ignore[assignment]
        self._metrics = metrics
        self._limit_max_image_pixels = True
        self.model_yaml_config = model_yaml_config
        self.stopping_criteria: Any = None  # Any: {index: callable}, set by streaming handlers
        for part in ("id", "start", "end"):  # the contract lets the server's environment rename them
            name = os.environ.get(f"TS_REQUEST_SEQUENCE_{part.upper()}", f"ts_request_sequence_{part}")
            setattr(self, f"header_key_sequence_{part}", name)

    @property
    def system_properties(self) -> dict[str, Any]:
        """The model folder, GPU, batch size and the server's name and version."""
        return self._system_properties

    @property
    def request_processor(self) -> list[RequestProcessor]:
        """The requests of the batch, in its order; None before the first."""
        return self._request_processor

    @request_processor.setter
    def request_processor(self, request_processor: list[RequestProcessor]) -> None:
        self._request_processor = request_processor

    @property
    def metrics(self) -> "MetricsCacheYamlImpl | None":
        """The metrics of the model."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: "MetricsCacheYamlImpl | None") -> None:
        self._metrics = metrics

    def get_request_id(self, idx: int = 0) -> str | None:
        """Return the id of one request of the batch, or None."""
        return None if self.request_ids is None else self.request_ids.get(idx)

    def get_request_header(self, idx: int, key: str) -> Any:
        """Return one header of a request, case-sensitive, or None."""
        return self._request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, Any]:
        """Return every header of a request."""
        return self._request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Set the content type of one answer; without a call the answer has none."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        """Return the content type set for one answer, or None."""
        return self.get_response_headers(idx).get("content-type")

    def get_response_status(self, idx: int) -> tuple[int, str | None]:
        """Return status code and reason phrase of one answer."""
        processor = self._request_processor[idx]
        return processor.get_response_status_code(), processor.get_response_status_phrase()

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Set status code and reason phrase of one answer; does nothing before the first request."""
        if self._request_processor is not None and self._request_processor[idx] is not None:  # type: ignore[redundant-expr]
            self._request_processor[idx].report_status(code, reason_phrase=phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Set status code and reason phrase of every answer of the batch; raises TypeError before the first request."""
        for processor in self._request_processor:
            processor.report_status(code, reason_phrase=phrase)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        """Return the headers set for one answer."""
        return self._request_processor[idx].get_response_headers()

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Set one header of one answer."""
        self._request_processor[idx].add_response_property(key, value)

    def get_sequence_id(self, idx: int) -> Any:
        """Return the sequence that a request belongs to, or None."""
        return self._request_processor[idx].get_request_property(vars(self)["header_key_sequence_id"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # as the server's: equal by value, and mutable


def decode_part(part: Part, *, decode: bool = True) -> Any:
    """Return a part's value as the handler gets it: decoded JSON, `str`, or `bytearray`, never `bytes`.

    `decode` is False where TS_DECODE_INPUT_REQUEST is set to anything but "true".
    """
    raw = bytearray(part.value)
    if not decode:
        return raw
    try:
        if part.content_type == "application/json":
            return json.loads(raw.decode("utf-8"))
        if part.content_type.startswith("text"):
            return raw.decode("utf-8")
    except (ValueError, RecursionError):
        import logging  # noqa: PLC0415 - inspecting reads a model config, and logs nothing

        logger = logging.getLogger(__name__)
        logger.warning("the input is not valid %s; it stays bytes", part.content_type, exc_info=True)
    return raw


def row_of(request: Request, *, decode: bool = True) -> Row:
    """Return the dict of one request; of parts with one name the last wins."""
    return {part.name: decode_part(part, decode=decode) for part in request.parts}


def processor_of(request: Request) -> RequestProcessor:
    """Return a request's headers: one `{field: {"content-type": …}}` per part, its headers, the server's."""
    headers: dict[str, Any] = {part.name: {"content-type": part.content_type} for part in request.parts}
    headers.update(request.headers)
    if request.url_path is not None:
        headers["url_path"] = request.url_path
    if request.explain is not None:
        headers["explain"] = "True" if request.explain else "False"  # a client cannot set it
    return RequestProcessor(headers)
