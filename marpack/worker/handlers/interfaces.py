"""What a handler is given, and what the steps of loading ask of a handler."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

# Any: a field is bytearray, str or whatever the JSON held (contract §4)
Rows = list[dict[str, Any]]
Value = Any  # Any: authors' stages hand on what they like
Document = Any  # Any: JSON and YAML as they stand
Model = Any  # Any: a Module, an ONNX Runtime session or a compiled function


class HandlerContext(Protocol):
    """What BaseHandler asks of a context: marpack's own, or an author's mock."""

    manifest: Document
    metrics: Any  # Any: the contract names methods, not a class

    @property
    def system_properties(self) -> Mapping[str, Any]:  # Any: paths, numbers, flags
        """The model folder, GPU and limits."""

    def get_request_header(self, idx: int, key: str) -> Any:  # Any: form fields map to {"content-type": …}
        """Return one header of a request, or None."""


class DeviceHandler(Protocol):
    """A handler that knows where its model goes."""

    device: "torch.device | str | None"  # authors set it as text, too
    map_location: str | None


class LoadableHandler(DeviceHandler, Protocol):
    """What the steps of `initialize` ask of BaseHandler: its attributes, and the methods that authors override."""

    model: Model
    manifest: Document
    model_pt_path: str | None
    model_yaml_config: Document
    _marpack_imports_torchvision: bool

    def _load_torchscript_model(self, model_pt_path: str) -> Model: ...

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Model: ...

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Model: ...

    def _use_torch_export_aot_compile(self) -> bool: ...
