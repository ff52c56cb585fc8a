"""The modules, names and handler classes that torchserve 0.12.0 has, as data read off the installed package."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

BASE = "ts.torch_handler.base_handler.BaseHandler"
# Their `initialize` loads the model as BaseHandler's does; the others' load by engines of their own.
_BASE_LOADERS = frozenset(
    {
        BASE,
        "ts.torch_handler.vision_handler.VisionHandler",
        "ts.torch_handler.object_detector.ObjectDetector",
        "ts.torch_handler.text_handler.TextHandler",
        "ts.torch_handler.dali_handler.DALIHandler",
    }
)
# Names of ts.torch_handler that a manifest may give as handlers, and the class that answers.
HANDLERS = {
    name: f"ts.torch_handler.{name}.{cls}"
    for name, cls in {
        "base_handler": "BaseHandler",
        "image_classifier": "ImageClassifier",
        "image_segmenter": "ImageSegmenter",
        "object_detector": "ObjectDetector",
        "text_classifier": "TextClassifier",
        "vision_handler": "VisionHandler",
        "text_handler": "TextHandler",
        "densenet_handler": "DenseNetHandler",
        "dali_handler": "DALIHandler",
        "dali_image_classifier": "DALIImageClassifier",
        "vllm_handler": "VLLMHandler",
        "trt_llm_handler": "TRTLLMHandler",
        "distributed.base_pippy_handler": "BasePippyHandler",
        "distributed.base_deepspeed_handler": "BaseDeepSpeedHandler",
    }.items()
}


class ServerModule(Struct, frozen=True):
    """One module of the server's."""

    names: str  # what it binds, submodules apart
    needs: str | None = None  # a package that a stock server lacks


class _Class(Struct, frozen=True):
    bases: str  # among the handler classes, dotted
    methods: str


class _Facts(Struct, frozen=True):
    modules: dict[str, ServerModule]
    classes: dict[str, _Class]


def has_module(module: str) -> bool:
    """Say whether `ts` or `ts.…` is a module of the server's."""
    return module in modules()


def modules() -> Mapping[str, ServerModule]:
    """Return every module by its dotted name."""
    return _facts().modules


def names_of(module: str) -> frozenset[str]:
    """Return what can be imported from a module of the server's: its names and its submodules."""
    inner = (name.removeprefix(f"{module}.") for name in modules() if name.startswith(f"{module}."))
    return frozenset(modules()[module].names.split()) | {name for name in inner if "." not in name}


def needs_of(module: str) -> str | None:
    """Return the package that a module needs and a stock server lacks, if any."""
    return modules()[module].needs if module in modules() else None


def handler_class(name: str) -> str | None:
    """Return the dotted name of the server's handler class of this name, if there is one."""
    return next((dotted for dotted in _facts().classes if dotted.rpartition(".")[2] == name), None)


def bases_of(dotted: str) -> list[str]:
    """Return a handler class's bases among the server's handler classes."""
    return _facts().classes[dotted].bases.split()


def methods_of(dotted: str) -> frozenset[str]:
    """Return the methods that a handler class defines itself."""
    return frozenset(_facts().classes[dotted].methods.split())


def loads_as_base(dotted: str) -> bool:
    """Say whether the `initialize` that this class itself defines loads the model as BaseHandler's does."""
    return dotted in _BASE_LOADERS


@cache
def _facts() -> _Facts:
    return msgspec.json.decode(Path(__file__).with_name("torchserve_names.json").read_bytes(), type=_Facts)
