"""Libraries that take long to import, imported when a test first uses them and not when pytest collects tests."""

import sys
from importlib import import_module
from typing import Any

# pytest reads these attributes of every name in a test module.
_COLLECTION = ("__bases__", "__test__", "__wrapped__", "_mock_name")


class LazyModule:
    """A module that is imported when one of its attributes is read or set."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, attribute: str) -> Any:
        if attribute in _COLLECTION:
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)

    def __setattr__(self, attribute: str, value: object) -> None:
        setattr(import_module(self._name), attribute, value)

    def __delattr__(self, attribute: str) -> None:
        delattr(import_module(self._name), attribute)


# jsonschema imports this if it is installed, which makes a parser of addresses: a second, for what no schema here has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
jsonschema = LazyModule("jsonschema")
model_signing = LazyModule("model_signing")
nn = LazyModule("torch.nn")
onnx = LazyModule("onnx")
openapi_spec_validator = LazyModule("openapi_spec_validator")
pa = LazyModule("pyarrow")
pd = LazyModule("pandas")
pq = LazyModule("pyarrow.parquet")
torch = LazyModule("torch")
