"""What a handler is given, and what the steps of loading and profiling ask of a handler."""

from collections.abc import Mapping
from typing import Any, Protocol

# Any: a field is bytearray, str or whatever the JSON held (contract §4)
Rows = list[dict[str, Any]]


class HandlerContext(Protocol):
    """What BaseHandler asks of a context: marpack's own, or an author's mock."""

    manifest: Any  # Any: MANIFEST.json as it stands
    metrics: Any  # Any: the contract names methods, not a class

    @property
    def system_properties(self) -> Mapping[str, Any]:  # Any: paths, numbers, flags
        """The model folder, GPU and limits."""

    def get_request_header(self, idx: int, key: str) -> Any:  # Any: form fields map to {"content-type": …}
        """Return one header of a request, or None."""


class DeviceHandler(Protocol):
    """A handler that knows where its model goes."""

    device: Any  # Any: a torch.device once initialised; authors set it as text, too
    map_location: str | None


class LoadableHandler(DeviceHandler, Protocol):
    """What the steps of `initialize` ask of BaseHandler: its attributes, and the methods that authors override."""

    model: Any  # Any: a Module, an ONNX session or a compiled function
    manifest: Any  # Any: MANIFEST.json as it stands
    model_pt_path: str | None
    model_yaml_config: Any  # Any: YAML as it stands
    _marpack_imports_torchvision: bool

    def _load_torchscript_model(self, model_pt_path: str) -> Any: ...  # Any: a ScriptModule

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any: ...  # Any: Module

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Any: ...  # Any: a compiled function

    def _use_torch_export_aot_compile(self) -> bool: ...


class ProfiledHandler(Protocol):
    """What the profiler asks of BaseHandler: its stages, as authors may have overridden them."""

    manifest: Any  # Any: MANIFEST.json as it stands
    profiler_args: dict[str, Any]  # Any: keyword arguments of torch.profiler.profile

    def preprocess(self, data: Rows) -> Any:  # Any: stages hand on what their authors like
        """Make what the model takes of a batch."""

    def inference(self, data: Any) -> Any:  # Any: as above
        """Call the model."""

    def postprocess(self, data: Any) -> Any:  # Any: as above
        """Make answers of the output."""

    def explain_handle(self, data_preprocess: Any, raw_data: Rows) -> Any:  # Any: as above
        """Explain the first answer."""

    def _is_explain(self) -> bool: ...
