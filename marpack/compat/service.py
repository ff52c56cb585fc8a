"""`ts.service`: the names that handlers and their tests import from it."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from marpack.runtime.config import get_yaml_config
from marpack.runtime.context import SERVER_VERSION, Context

PREDICTION_METRIC = "PredictionTime"
logger = logging.getLogger(__name__)


class Service:
    """An entry point with its context, as the model loader returns it."""

    def __init__(  # noqa: PLR0913, PLR0917 - the contract's signature
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any] | None,
        entry_point: Callable[[Any, Any], Any],
        gpu: int | None,
        batch_size: int | None,
        limit_max_image_pixels: bool = True,
        metrics_cache: Any = None,
    ) -> None:
        config_file = ((manifest or {}).get("model") or {}).get("configFile")
        config = get_yaml_config(f"{model_dir}/{config_file}") if config_file else {}
        self._entry_point = entry_point
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


def emit_metrics(metrics: Mapping[str, Any] | list[Any] | None) -> None:
    """Log one line per metric."""
    for metric in metrics or ():
        logger.info("[METRICS]%s", metric)
