"""MockContext: the smallest context that initializes a handler, for its author's own tests (contract §8)."""

import os
import uuid
from typing import Any

import torch

from marpack.torchserve.metrics import MetricsStore
from marpack.torchserve.model_config import get_yaml_config


class MockContext:
    """A context without a server: manifest, model folder, GPU, metrics and model config."""

    def __init__(
        self,
        model_pt_file: str | None = "model.pt",
        model_dir: str = "ts/torch_handler/unit_tests/models/tmp",
        model_file: str | None = "model.py",
        gpu_id: str | int | None = "0",
        model_name: str = "mnist",
        model_yaml_config_file: str | None = None,
    ) -> None:
        model = {"serializedFile": model_pt_file, "modelFile": model_file}
        self.manifest = {"model": {key: name for key, name in model.items() if name}}
        self.system_properties: dict[str, Any] = {"model_dir": model_dir}  # Any: paths and numbers
        if torch.cuda.is_available() and gpu_id:
            self.system_properties["gpu_id"] = gpu_id
        self.explain = False
        self.metrics = MetricsStore(uuid.uuid4(), model_name)
        self.model_yaml_config: Any = {}  # Any: YAML as it stands
        if model_yaml_config_file:
            path = os.path.join(model_dir, model_yaml_config_file)  # noqa: PTH118 - authors pass any kind of path
            self.model_yaml_config = get_yaml_config(path)

    def get_request_header(self, idx: int, exp: str) -> bool:
        """Return `explain` for every header of every row but the first, as the server's mock does."""
        return bool(idx and exp and self.explain)
