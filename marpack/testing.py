"""Tools for the tests of handlers: a real Context, and `import ts` without TorchServe.

from marpack.testing import context, install

install()                              # from here on `import ts` works in this process
from handler import DigitsHandler

def test_preprocess():
handler = DigitsHandler()
handler.initialize(context("."))
assert handler.preprocess([{"body": open("7.png", "rb").read()}]).shape == (1, 1, 8, 8)
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marpack.protocol.targets import HandlerSettings, Target, keep_settings
from marpack.torchserve.context import SERVER_VERSION, Context, RequestProcessor
from marpack.torchserve.metrics import SERVERS_OWN, MetricsCacheYamlImpl
from marpack.torchserve.model_config import get_yaml_config
from marpack.worker.ts_names import install

__all__ = ["context", "install"]


def context(
    model_dir: str | Path,
    *,
    model: Mapping[str, Any] | None = None,
    requests: int = 1,
    headers: Mapping[str, str] | None = None,
    gpu_id: int | None = None,
    batch_size: int = 1,
    target: str = "torchserve",
) -> Context:
    """Return the Context that a handler gets, with a batch of requests in it.

    Args:
        model_dir: The folder with the weights and labels.
        model: The manifest's `model` object, such as `{"serializedFile": "digits.pt", "configFile": "config.yaml"}`.
        requests: The number of requests in the batch.
        headers: The headers of each request.
        gpu_id: The number of the GPU, or None.
        batch_size: The batch size in `system_properties`.
        target: The server whose behavior applies: "torchserve" or "marpack".
    """
    described = {"modelName": "test", "modelVersion": "1.0", "handler": "handler.py", **(model or {})}
    config_file = described.get("configFile")
    config = get_yaml_config(str(Path(model_dir, str(config_file)))) if config_file else {}
    metrics = MetricsCacheYamlImpl(SERVERS_OWN)
    metrics.initialize_cache()
    metrics.model_name = str(described["modelName"])
    manifest = {"runtime": "python", "model": described}
    made = Context(
        str(described["modelName"]), str(model_dir), manifest, batch_size, gpu_id, SERVER_VERSION, True, metrics, config
    )
    keep_settings(made, HandlerSettings(Target(target)))
    made.request_ids = {index: f"test-{index}" for index in range(requests)}
    made.request_processor = [RequestProcessor({"explain": "False", **(headers or {})}) for _ in range(requests)]
    metrics.request_ids = made.request_ids
    return made
