"""`ts.service` and `ts.model_loader`, which handlers' own tests use."""

import logging
from collections.abc import Mapping
from typing import Any

from marpack.torchserve.context import SERVER_VERSION, Context, Handle, RequestProcessor
from marpack.torchserve.envelopes import envelope_of
from marpack.torchserve.metrics_cache import MetricsCacheYamlImpl
from marpack.torchserve.model_config import get_yaml_config, read_manifest
from marpack.torchserve.streaming import ChunkMessage, create_predict_response
from marpack.torchserve.ts.entry_point import find_entry

PREDICTION_METRIC = "PredictionTime"
logger = logging.getLogger(__name__)


class Service:
    """An entry point with its context, as the model loader returns it."""

    def __init__(  # noqa: PLR0913, PLR0917 - the contract's signature
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any] | None,
        entry_point: Handle,
        gpu: int | None,
        batch_size: int | None,
        limit_max_image_pixels: bool = True,
        metrics_cache: MetricsCacheYamlImpl | None = None,
    ) -> None:
        config_file = ((manifest or {}).get("model") or {}).get("configFile")
        config = get_yaml_config(f"{model_dir}/{config_file}") if config_file else {}
        self._entry_point = entry_point
        self.cl_socket: Any = None  # Any: whatever takes `sendall`
        self._context = Context(
            model_name,
            model_dir,
            manifest,
            batch_size,
            gpu,
            SERVER_VERSION,
            limit_max_image_pixels,
            metrics_cache,
            config,
        )

    @property
    def context(self) -> Context:
        """The context handed to the handler."""
        return self._context

    def set_cl_socket(self, cl_socket: Any) -> None:
        """Set where streaming handlers send their pieces."""
        self.cl_socket = cl_socket

    @staticmethod
    def retrieve_data_for_inference(
        batch: list[dict[str, Any]] | None,
    ) -> tuple[list[RequestProcessor], list[dict[str, Any]], dict[int, str]]:
        """Return the headers, rows and ids of a batch in the server's own form; ValueError for None."""
        if batch is None:
            raise ValueError("there is no batch to take apart")
        ids = {index: request["requestId"].decode("utf-8") for index, request in enumerate(batch)}
        rows = [{part["name"]: part["value"] for part in request["parameters"]} for request in batch]
        return [_processor(request) for request in batch], rows, ids

    def predict(self, batch: list[dict[str, Any]]) -> ChunkMessage:
        """Answer a batch in the server's own form; what the handler raises is raised."""
        context = self._context
        context.request_processor, rows, context.request_ids = self.retrieve_data_for_inference(batch)
        context.cl_socket = self.cl_socket
        answers = self._entry_point(rows, context)
        return create_predict_response(answers, context.request_ids, "Prediction success", 200, context)


def _processor(request: dict[str, Any]) -> RequestProcessor:
    headers: dict[str, Any] = {part["name"]: {"content-type": part["contentType"]} for part in request["parameters"]}
    sent = request.get("headers") or ()
    headers.update({header["name"].decode("utf-8"): header["value"].decode("utf-8") for header in sent})
    return RequestProcessor(headers)


def emit_metrics(metrics: Mapping[str, Any] | list[Any] | None) -> None:
    """Log one line per metric."""
    for metric in metrics or ():
        logger.info("[METRICS]%s", metric)


class ModelLoader:
    """Loads a model folder that is on `sys.path`."""

    def load(  # noqa: PLR0913, PLR0917 - the contract's signature
        self,
        model_name: str,
        model_dir: str,
        handler: str | None = None,
        gpu_id: int | None = None,
        batch_size: int | None = None,
        envelope: str | None = None,
        limit_max_image_pixels: bool | None = True,
        metrics_cache: MetricsCacheYamlImpl | None = None,
    ) -> Service:
        """Return a service whose handler is initialised; raises whatever the handler raises."""
        entry = find_entry(str(handler))
        service = Service(
            model_name,
            model_dir,
            _manifest(model_dir),
            envelope_of(envelope, entry.handle),
            gpu_id,
            batch_size,
            bool(limit_max_image_pixels),
            metrics_cache,
        )
        entry.initialize(service.context)
        return service


class TsModelLoader(ModelLoader):
    """The one kind of loader there is."""


class ModelLoaderFactory:
    """Where the server gets its loader from."""

    @staticmethod
    def get_model_loader() -> TsModelLoader:
        """Return a loader."""
        return TsModelLoader()


def _manifest(model_dir: str) -> dict[str, Any] | None:
    try:
        return read_manifest(model_dir)
    except FileNotFoundError:
        return None
