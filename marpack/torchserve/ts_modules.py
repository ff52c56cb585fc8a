"""The import of `ts` and the modules below it: the names that handlers use, and marpack's objects for them (§8).

A module's names map to `module:attribute`, which is looked up when a handler first uses it, so that only a handler that
needs torch imports it. The worker registers the names of its own modules (`provide`). A module also holds the names
that the server's holds besides its own: handlers write `from ts.torch_handler.base_handler import torch`.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from marpack.torchserve.server_modules import BUILT_INS, classes, has_module, is_standard, names_held

_CONTEXT = "marpack.torchserve.context"
_METRICS = "marpack.torchserve.metrics"
_RESPONSE = "marpack.torchserve.response"
_ENTRY_POINT = "marpack.torchserve.entry_point"


def _in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


_VERSION = {"__version__": f"{_CONTEXT}:SERVER_VERSION"}
_PIECES = _in(_RESPONSE, "create_predict_response", "send_intermediate_predict_response")

TABLE: dict[str, dict[str, str]] = {
    "ts": _VERSION | {"version": "ts.version"},
    "ts.version": _VERSION,
    "ts.context": _in(_CONTEXT, "Context", "RequestProcessor"),
    "ts.utils": {},
    "ts.utils.util": {
        **_in(_ENTRY_POINT, "PT2Backend", "check_valid_pt2_backend", "deprecated", "list_classes_from_module"),
        **_in(_RESPONSE, "PredictionException"),
        **_in("marpack.torchserve.labels", "load_label_mapping", "map_class_to_label"),
        **_in("marpack.torchserve.model_config", "get_yaml_config"),
    },
    "ts.protocol": {},
    "ts.protocol.otf_message_handler": _PIECES,
    "ts.handler_utils": {},
    "ts.handler_utils.utils": _PIECES | _in(_ENTRY_POINT, "import_class"),
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
    "ts.torch_handler.request_envelope.base": _in(_ENTRY_POINT, "BaseEnvelope"),
    "ts.torch_handler.request_envelope.body": _in(_ENTRY_POINT, "BodyEnvelope"),
    "ts.torch_handler.request_envelope.json": _in(_ENTRY_POINT, "JSONEnvelope"),
    "ts.torch_handler.request_envelope.kserve": _in(_ENTRY_POINT, "KServeEnvelope"),
    "ts.torch_handler.request_envelope.kservev2": _in(_ENTRY_POINT, "KServev2Envelope"),
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
    **_in(_ENTRY_POINT, "IPEX_AVAILABLE", "ONNX_AVAILABLE", "PROFILER_AVAILABLE"),
    **_in(_ENTRY_POINT, "PT230_AVAILABLE", "PT2_AVAILABLE", "XLA_AVAILABLE"),
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

_HANDLERS, _REQUESTS = "ts.torch_handler", "ts.torch_handler.request_envelope"
_IMPORTS = {
    f"{_HANDLERS}.base_handler": ("ts.handler_utils.timer",),
    f"{_HANDLERS}.text_handler": (
        f"{_HANDLERS}.base_handler",
        "ts.handler_utils.text_utils",
        f"{_HANDLERS}.contractions",
    ),
    **{f"{_REQUESTS}.{name}": (f"{_REQUESTS}.base",) for name in ("body", "json", "kserve", "kservev2")},
}
_PACKAGES = frozenset({"packaging", "psutil", "torch", "ts", "yaml"})


def provide(names: Mapping[str, Mapping[str, str]], elsewhere: Mapping[str, str]) -> None:
    """Add {module: {name: "module:attribute"}}, and {name: "module:attribute"} that modules hold besides their own."""
    for module, held in names.items():
        TABLE.setdefault(module, {}).update(held)
    _ELSEWHERE.update(elsewhere)
    incidental.cache_clear()


@cache
def incidental(module: str) -> dict[str, str]:
    """Return {name: "module" or "module:attribute"} for the names that a module holds besides its own."""
    held = names_held(module) - TABLE[module].keys() - {"logger"}
    homes = {name: target for names in TABLE.values() for name, target in names.items()} | _ELSEWHERE
    places = {name: name for name in sorted(held) if is_standard(name) or name in _PACKAGES}
    return places | {name: homes[name] for name in sorted(held) if name in homes}


class NotProvidedError(ModuleNotFoundError):
    """TorchServe has this module, and marpack does not."""

    def __init__(self, message: str, *, name: str, hint: str) -> None:
        super().__init__(message, name=name)
        self.hint = hint


class TsFinder(MetaPathFinder, Loader):
    """Finds `ts` and its submodules before an installed torchserve, and makes them: names resolve on first use."""

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
                hint = f"Run this archive on a TorchServe that has {engine}."
                raise NotProvidedError(message, name=fullname, hint=hint)
        if fullname in TABLE:
            return ModuleSpec(fullname, self, is_package=any(name.startswith(f"{fullname}.") for name in TABLE))
        if not has_module(fullname):
            return None
        message = f"marpack does not provide {fullname}, which TorchServe 0.12 has"
        hint = "Run this archive on a TorchServe: marpack provides only the modules that handlers commonly use."
        raise NotProvidedError(message, name=fullname, hint=hint)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module that knows its table."""
        return TsModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Import the modules that the server's module imports, and so binds in their packages; their own follow."""
        name = module.__name__
        row = next((row for row in BUILT_INS.values() if row.module == name), None)
        bases = tuple(base.rpartition(".")[0] for base in classes()[row.dotted].bases.split()) if row else ()
        for each in _IMPORTS.get(name, bases):
            import_module(each)


class TsModule(ModuleType):
    """One `ts` module."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"TorchServe's {name}, provided by marpack.")

    def __getattr__(self, name: str) -> Any:  # Any: a class, a function, a module or a constant
        own = self.__name__
        if name == "__all__":  # the names of the server's module that this environment has
            names = []
            for each in dir(self):
                with suppress(ImportError):  # a package of the server's, such as torchvision
                    if not each.startswith("_") and hasattr(self, each):
                        names.append(each)
            return names
        target = TABLE[own].get(name) or incidental(own).get(name)
        if target is None and f"{own}.{name}" in LOADED:
            target = f"{own}.{name}"
        value: Any  # Any: as above
        if target is not None:
            module, _, attribute = target.partition(":")
            value = getattr(import_module(module), attribute) if attribute else import_module(module)
        elif name == "logger" and "logger" in names_held(own):
            value = logging.getLogger(own)
        else:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        own = self.__name__
        inner = {name.rpartition(".")[2] for name in LOADED if name.rpartition(".")[0] == own}
        logger = {"logger"} & names_held(own)
        return sorted({*super().__dir__(), *TABLE[own], *incidental(own), *inner, *logger})


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
