"""DenseNetHandler, the oldest of the server's handlers: tensors in, as `torch.save` writes them, and a tensor out.

One class, as the server requires of a handler's module.
"""

import io
import time
from functools import partial
from pathlib import Path

import torch

from marpack.protocol.targets import settings_for
from marpack.worker.handlers.base import Document, HandlerContext, Model, Rows, Value, read_state
from marpack.worker.loaders import eager, formats


class DenseNetHandler:
    """Stacks the tensors of a batch's requests, and responds to all of them with one."""

    def __init__(self) -> None:
        self.model: Model = None
        self.device: torch.device | str | None = None
        self.initialized = False
        self.context: HandlerContext = None
        self.manifest: Document = None
        self.map_location: str | None = None

    def initialize(self, context: HandlerContext) -> None:
        """Load TorchScript, or the model file's one class.

        Raises RuntimeError without weights, and whatever torch raises on loading.
        """
        gpu_id = context.system_properties.get("gpu_id")
        on_gpu = torch.cuda.is_available() and gpu_id is not None
        self.map_location = "cuda" if on_gpu else "cpu"
        self.device = torch.device(f"cuda:{gpu_id}" if on_gpu else "cpu")
        self.manifest = context.manifest
        model_dir = str(context.system_properties["model_dir"])
        weights = str(Path(model_dir, self.manifest["model"]["serializedFile"]))
        if not Path(weights).is_file():
            raise RuntimeError("Missing the model.pt file")
        model_file = self.manifest["model"].get("modelFile", "")
        if model_file:
            self.model = self._load_pickled_model(model_dir, model_file, weights)
        else:
            self.model = self._load_torchscript_model(weights)
        self.model.to(self.device)
        self.model.eval()
        self.initialized = True

    def _load_torchscript_model(self, model_pt_path: str) -> Model:
        return formats.load_torchscript(model_pt_path, torch.device(self.map_location or "cpu"))

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str) -> Model:
        return eager.load(model_dir, model_file, partial(read_state, model_pt_path, self.device, settings_for(self)))

    def inference(self, data: Value, *args: Value, **kwargs: Value) -> Value:
        """Call the model with the batch on its device, without autograd."""
        batch = data.to(self.device)
        with torch.no_grad():
            return self.model(batch, *args, **kwargs)

    def handle(self, data: Rows, context: HandlerContext) -> list[Value]:
        """Respond to one batch with one tensor, whatever its size: the server takes that for one request only.

        Adds the metric HandlerTime in ms.
        """
        start = time.time()
        self.context = context
        metrics = context.metrics
        tensors = [torch.load(io.BytesIO(row.get("data") or row.get("body"))) for row in data]  # type: ignore[arg-type]
        output = self.inference(torch.stack(tensors))
        metrics.add_time("HandlerTime", round((time.time() - start) * 1000, 2), None, "ms")
        return [output]
