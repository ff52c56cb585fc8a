"""The import of `ts` and everything below it: every name that handlers use, and the piece of marpack that it is (§8).

A module's names map to `module:attribute`; an attribute is looked up when a handler first uses it, so that importing
`ts.context` costs nothing and torch is imported only by a handler that needs it. The worker registers the names that
its own modules have (`provide`). A module also holds the names that the server's holds besides its own: handlers write
`from ts.torch_handler.base_handler import torch`, `import ts; ts.context.Context` and `from … import *`.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from marpack.torchserve.server_modules import BUILT_INS, bases_of, has_module, is_standard, names_held

_CONTEXT = "marpack.torchserve.context"
_METRICS = "marpack.torchserve.metrics"
_ENVELOPES = "marpack.torchserve.envelopes"
_RESPONSE = "marpack.torchserve.response"
_UTIL = "marpack.torchserve.entry_point"


def _in(module: str, *names: str) -> dict[str, str]:
    """Return where names are that one module holds."""
    return {name: f"{module}:{name}" for name in names}


_VERSION = {"__version__": f"{_CONTEXT}:SERVER_VERSION"}
_PIECES = _in(_RESPONSE, "create_predict_response", "send_intermediate_predict_response")

TABLE: dict[str, dict[str, str]] = {
    "ts": _VERSION | {"version": "ts.version"},
    "ts.version": _VERSION,
    "ts.context": _in(_CONTEXT, "Context", "RequestProcessor"),
    "ts.utils": {},
    "ts.utils.util": {
        **_in(_UTIL, "PT2Backend", "check_valid_pt2_backend", "deprecated", "list_classes_from_module"),
        **_in(_RESPONSE, "PredictionException"),
        **_in("marpack.torchserve.labels", "load_label_mapping", "map_class_to_label"),
        **_in("marpack.torchserve.model_config", "get_yaml_config"),
    },
    "ts.protocol": {},
    "ts.protocol.otf_message_handler": _PIECES,
    "ts.handler_utils": {},
    "ts.handler_utils.utils": _PIECES | _in(_UTIL, "import_class"),
    "ts.handler_utils.timer": _in("marpack.worker.stages", "timed"),
    "ts.metrics": {},
    "ts.metrics.dimension": _in(_METRICS, "Dimension"),
    "ts.metrics.metric": _in(_METRICS, "Metric"),
    "ts.metrics.caching_metric": _in(_METRICS, "CachingMetric"),
    "ts.metrics.metric_type_enum": _in(_METRICS, "MetricTypes"),
    "ts.metrics.metric_abstract": {"MetricAbstract": f"{_METRICS}:CachingMetric"},
    "ts.metrics.system_metrics": {
        **_in(_METRICS, "cpu_utilization", "dimension", "disk_available", "disk_used", "disk_utilization"),
        **_in(_METRICS, "memory_available", "memory_used", "memory_utilization", "system_metrics"),
    },
    "ts.metrics.process_memory_metric": _in(_METRICS, "check_process_mem_usage", "get_cpu_usage"),
    "ts.metrics.metrics_store": _in(_METRICS, "MetricsStore"),
    "ts.metrics.metric_cache_yaml_impl": _in(_METRICS, "MetricsCacheYamlImpl"),
    "ts.metrics.metric_cache_abstract": {"MetricCacheAbstract": f"{_METRICS}:MetricsCacheYamlImpl"},
    "ts.metrics.metric_cache_errors": {
        **_in(_METRICS, "GeneralMetricsCacheError", "MetricsCacheIOError", "MetricsCacheKeyError"),
        **_in(_METRICS, "MetricsCachePyYamlError", "MetricsCacheTypeError", "MetricsCacheValueError"),
    },
    "ts.torch_handler.request_envelope": {},
    "ts.torch_handler.request_envelope.base": _in(_ENVELOPES, "BaseEnvelope"),
    "ts.torch_handler.request_envelope.body": _in(_ENVELOPES, "BodyEnvelope"),
    "ts.torch_handler.request_envelope.json": _in(_ENVELOPES, "JSONEnvelope"),
    "ts.torch_handler.request_envelope.kserve": _in(_ENVELOPES, "KServeEnvelope"),
    "ts.torch_handler.request_envelope.kservev2": _in(_ENVELOPES, "KServev2Envelope"),
}

# Modules that need an engine of their own: importing one says which.
ENGINES = {
    **{row.module: row.engine for row in BUILT_INS.values() if row.engine},
    "ts.torch_handler.distributed": "a distributed launcher (torchrun) with DeepSpeed or PiPPy",
    "ts.handler_utils.distributed": "a distributed launcher (torchrun) with DeepSpeed or PiPPy",
    "ts.handler_utils.preprocess": "NVIDIA DALI",
}
# Names that are not the server's own, and no module of that name.
_ELSEWHERE: dict[str, str] = {
    **_in(_UTIL, "IPEX_AVAILABLE", "ONNX_AVAILABLE", "PROFILER_AVAILABLE"),
    **_in(_UTIL, "PT230_AVAILABLE", "PT2_AVAILABLE", "XLA_AVAILABLE"),
    **_in("abc", "ABC", "ABCMeta", "abstractmethod"),
    **_in("captum.attr", "IntegratedGradients", "LayerIntegratedGradients", "TokenReferenceBase"),
    **_in("torch.profiler", "ProfilerActivity", "profile", "record_function"),
    **_in("typing", "Dict", "Optional", "Tuple"),
    "F": "torch.nn.functional",
    "Image": "PIL.Image",
    "JSONEncoder": "json:JSONEncoder",
    "OrderedDict": "collections:OrderedDict",
    "T": "torchvision.transforms",
    "b64decode": "base64:b64decode",
    "chain": "itertools:chain",
    "copy": "copy:copy",
    "dataclass": "dataclasses:dataclass",
    "merrors": "ts.metrics.metric_cache_errors",
    "np": "numpy",
    "ort": "onnxruntime",
    "torchvision_version": "torchvision:__version__",
    "transforms": "torchvision.transforms",
    "version": "packaging.version",
    "warn": "warnings:warn",
    "wraps": "functools:wraps",
}

# What the server's worker has loaded before it loads a handler: `import ts` is enough to reach these.
LOADED = frozenset(
    """
    ts.context ts.handler_utils ts.handler_utils.utils ts.metrics ts.metrics.caching_metric ts.metrics.dimension
    ts.metrics.metric ts.metrics.metric_abstract ts.metrics.metric_cache_abstract ts.metrics.metric_cache_errors
    ts.metrics.metric_cache_yaml_impl ts.metrics.metric_type_enum ts.metrics.metrics_store
    ts.metrics.system_metrics ts.protocol ts.protocol.otf_message_handler
    ts.utils ts.utils.util ts.version
    """.split()  # noqa: SIM905 - as above
)

_BROUGHT = {
    "ts.torch_handler.base_handler": ("ts.handler_utils.timer",),
    "ts.torch_handler.text_handler": (
        "ts.torch_handler.base_handler",
        "ts.handler_utils.text_utils",
        "ts.torch_handler.contractions",
    ),
} | {
    f"ts.torch_handler.request_envelope.{name}": ("ts.torch_handler.request_envelope.base",)
    for name in ("body", "json", "kserve", "kservev2")
}
_PACKAGES = frozenset({"packaging", "psutil", "torch", "ts", "yaml"})


def provide(names: Mapping[str, Mapping[str, str]], elsewhere: Mapping[str, str]) -> None:
    """Add names of the server's modules.

    Args:
        names: {module: {name: "module:attribute"}}.
        elsewhere: {name: "module:attribute"} of names that modules hold besides their own.
    """
    for module, held in names.items():
        TABLE.setdefault(module, {}).update(held)
    _ELSEWHERE.update(elsewhere)
    incidental.cache_clear()


def brought_by(module: str) -> tuple[str, ...]:
    """Return the modules that importing this one imports, and so binds in their packages; their own follow."""
    if module in _BROUGHT:
        return _BROUGHT[module]
    row = next((row for row in BUILT_INS.values() if row.module == module), None)
    return tuple(base.rpartition(".")[0] for base in bases_of(row.dotted)) if row else ()


@cache
def incidental(module: str) -> dict[str, str]:
    """Return where the names are that the server's module holds besides its own: those that have a place here.

    As in TABLE: name → "module" or "module:attribute".
    """
    held = names_held(module) - TABLE[module].keys() - {"logger"}
    homes = {name: target for names in TABLE.values() for name, target in names.items()} | _ELSEWHERE
    places = {name: name for name in sorted(held) if is_standard(name) or name in _PACKAGES}
    return places | {name: homes[name] for name in sorted(held) if name in homes}


def has_logger(module: str) -> bool:
    """Return whether the server's module has a `logger` of its own."""
    return "logger" in names_held(module)


class NotProvidedError(ModuleNotFoundError):
    """TorchServe has this module, and marpack does not."""

    def __init__(self, message: str, *, name: str, hint: str) -> None:
        super().__init__(message, name=name)
        self.hint = hint


class TsFinder(MetaPathFinder):
    """Finds `ts` and its submodules before any installed torchserve is looked for."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a `ts` module, None where TorchServe has none of that name.

        Raises NotProvidedError for what TorchServe has and marpack does not, such as a module that needs an engine.
        """
        if fullname != "ts" and not fullname.startswith("ts."):
            return None
        for module, engine in ENGINES.items():
            if fullname == module or fullname.startswith(f"{module}."):
                message = f"{fullname} needs {engine}, which marpack does not replace"
                hint = f"try this archive on a TorchServe that has {engine}"
                raise NotProvidedError(message, name=fullname, hint=hint)
        if fullname not in TABLE:
            if has_module(fullname):
                message = f"marpack does not provide {fullname}, which TorchServe 0.12 has"
                hint = "try this archive on a server; marpack provides what handlers use as a rule"
                raise NotProvidedError(message, name=fullname, hint=hint)
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in TABLE)
        return ModuleSpec(fullname, TsLoader(), is_package=is_package)


class TsLoader(Loader):
    """Makes a module whose names are marpack's own objects, looked up on first use."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module that knows its table."""
        return TsModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Import the modules that the server's module imports; names are looked up on demand."""
        for name in brought_by(module.__name__):
            import_module(name)


class TsModule(ModuleType):
    """One `ts` module."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"TorchServe's {name}, provided by marpack.")

    def __getattr__(self, name: str) -> Any:  # Any: a class, a function, a module or a constant
        if name == "__all__":
            # What `import *` takes: of what the server's module holds, what this environment has.
            return [each for each in dir(self) if not each.startswith("_") and self._has(each)]
        value = self._find(name)
        setattr(self, name, value)
        return value

    def _find(self, name: str) -> Any:  # Any: as above
        target = TABLE[self.__name__].get(name) or incidental(self.__name__).get(name)
        if target is None and f"{self.__name__}.{name}" in LOADED:
            target = f"{self.__name__}.{name}"
        if target is not None:
            module, _, attribute = target.partition(":")
            return getattr(import_module(module), attribute) if attribute else import_module(module)
        if name == "logger" and has_logger(self.__name__):
            return logging.getLogger(self.__name__)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def _has(self, name: str) -> bool:
        try:
            getattr(self, name)
        except ImportError:  # a package of the server's, as torchvision
            return False
        return True

    def __dir__(self) -> list[str]:
        inner = {name.rpartition(".")[2] for name in LOADED if name.rpartition(".")[0] == self.__name__}
        logger = {"logger"} if has_logger(self.__name__) else set()
        return sorted({*super().__dir__(), *TABLE[self.__name__], *incidental(self.__name__), *inner, *logger})


def install(*, installed_torchserve: bool = False) -> None:
    """Make `import ts` work in this process; the installed torchserve, if any, is used only when asked for."""
    if installed_torchserve:
        uninstall()
    elif not any(isinstance(finder, TsFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TsFinder())


def uninstall() -> None:
    """Undo `install`, and forget the `ts` modules made by it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TsFinder)]
    for name in [name for name, module in sys.modules.items() if isinstance(module, TsModule)]:
        del sys.modules[name]
