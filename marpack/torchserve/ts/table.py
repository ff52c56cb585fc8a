"""Every `ts` name that handlers use, the piece of marpack that it is, and what its module holds besides (contract §8).

A module's names map to `module:attribute`; an attribute is looked up when it is first asked for, so that importing
`ts.context` costs nothing and torch is imported only by a handler that uses it.

Handlers import what a module holds besides, too (`from ts.torch_handler.base_handler import torch`,
`import ts; ts.context.Context`), and `from … import *` takes all of it.
"""

from functools import cache

from marpack.torchserve.stock import BUILT_INS, bases_of, is_standard, names_held

_CONTEXT = "marpack.torchserve.context"
_METRICS = "marpack.torchserve.metrics"
_SYSTEM = "marpack.torchserve.system_metrics"
_CACHE = "marpack.torchserve.metrics_cache"
_ENVELOPES = "marpack.torchserve.envelopes"
_UTIL = "marpack.torchserve.ts_util"
_TESTS = "marpack.torchserve.ts.unit_testing"
_HANDLERS = "marpack.worker.handlers"


def _in(module: str, *names: str) -> dict[str, str]:
    """Return where names are that one module holds."""
    return {name: f"{module}:{name}" for name in names}


_VERSION = {"__version__": f"{_CONTEXT}:SERVER_VERSION"}
_UNIT = {"MetricUnit": f"{_METRICS}:METRIC_UNIT"}
_PIECES = _in("marpack.torchserve.streaming", "create_predict_response", "send_intermediate_predict_response")

TABLE: dict[str, dict[str, str]] = {
    "ts": _VERSION | {"version": "ts.version"},
    "ts.version": _VERSION,
    "ts.context": _in(_CONTEXT, "Context", "RequestProcessor"),
    "ts.service": _in(_TESTS, "Service", "emit_metrics", "PREDICTION_METRIC"),
    "ts.model_loader": _in(_TESTS, "ModelLoaderFactory", "ModelLoader", "TsModelLoader"),
    "ts.utils": {},
    "ts.utils.util": {
        **_in(_UTIL, "PT2Backend", "check_valid_pt2_backend", "list_classes_from_module"),
        **_in(_UTIL, "PredictionException", "deprecated"),
        **_in("marpack.torchserve.labels", "load_label_mapping", "map_class_to_label"),
        **_in("marpack.torchserve.model_config", "get_yaml_config"),
        "CLEANUP_REGEX": f"{_HANDLERS}.text:MARKUP",
    },
    "ts.utils.timeit_decorator": _in(_UTIL, "timeit"),
    "ts.protocol": {},
    "ts.protocol.otf_message_handler": _PIECES,
    "ts.handler_utils": {},
    "ts.handler_utils.utils": _PIECES | _in(_UTIL, "import_class"),
    "ts.handler_utils.timer": _in("marpack.worker.stages", "timed"),
    "ts.handler_utils.micro_batching": _in(
        "marpack.worker.handlers.micro_batching", "MicroBatching", "WorkerThread", "HANDLER_METHODS"
    ),
    "ts.handler_utils.text_utils": _in(f"{_HANDLERS}.text", "get_tokenizer", "ngrams_iterator"),
    "ts.handler_utils.hf_batch_streamer": _in(f"{_HANDLERS}.batch_streamer", "TextIteratorStreamerBatch"),
    "ts.metrics": {},
    "ts.metrics.dimension": _in(_METRICS, "Dimension"),
    "ts.metrics.metric": _in(_METRICS, "Metric") | _UNIT,
    "ts.metrics.unit": _in(_METRICS, "Units"),
    "ts.metrics.metric_encoder": _in(_METRICS, "MetricEncoder"),
    "ts.metrics.caching_metric": _in(_METRICS, "CachingMetric"),
    "ts.metrics.metric_type_enum": _in(_METRICS, "MetricTypes"),
    "ts.metrics.metric_abstract": {"MetricAbstract": f"{_METRICS}:CachingMetric"} | _UNIT,
    "ts.metrics.system_metrics": {
        **_in(_SYSTEM, "collect_all", "cpu_utilization", "dimension", "disk_available", "disk_used"),
        **_in(_SYSTEM, "disk_utilization", "gpu_utilization", "memory_available", "memory_used"),
        **_in(_SYSTEM, "memory_utilization", "system_metrics"),
    },
    "ts.metrics.process_memory_metric": _in(_SYSTEM, "get_cpu_usage"),
    "ts.metrics.metrics_store": _in(_METRICS, "MetricsStore"),
    "ts.metrics.metric_cache_yaml_impl": _in(_CACHE, "MetricsCacheYamlImpl"),
    "ts.metrics.metric_cache_abstract": {"MetricCacheAbstract": f"{_CACHE}:MetricsCacheYamlImpl"},
    "ts.metrics.metric_cache_errors": {
        **_in(_CACHE, "GeneralMetricsCacheError", "MetricsCacheIOError", "MetricsCacheKeyError"),
        **_in(_CACHE, "MetricsCachePyYamlError", "MetricsCacheTypeError", "MetricsCacheValueError"),
    },
    "ts.torch_handler": {},
    **{row.module: _in(f"{_HANDLERS}.{row.ours}", row.cls) for row in BUILT_INS.values() if row.ours},
    "ts.torch_handler.contractions": _in(f"{_HANDLERS}.text", "CONTRACTION_MAP"),
    "ts.torch_handler.request_envelope": {},
    "ts.torch_handler.request_envelope.base": _in(_ENVELOPES, "BaseEnvelope"),
    "ts.torch_handler.request_envelope.body": _in(_ENVELOPES, "BodyEnvelope"),
    "ts.torch_handler.request_envelope.json": _in(_ENVELOPES, "JSONEnvelope"),
    "ts.torch_handler.request_envelope.kserve": _in(_ENVELOPES, "KServeEnvelope"),
    "ts.torch_handler.request_envelope.kservev2": _in(_ENVELOPES, "KServev2Envelope"),
    "ts.torch_handler.unit_tests": {},
    "ts.torch_handler.unit_tests.test_utils": {},
    "ts.torch_handler.unit_tests.test_utils.mock_context": _in(f"{_HANDLERS}.mock_context", "MockContext"),
}

# Modules that need an engine of their own: importing one says which.
ENGINES = {
    **{row.module: row.engine for row in BUILT_INS.values() if row.engine},
    "ts.torch_handler.distributed": "a distributed launcher (torchrun) with DeepSpeed or PiPPy",
    "ts.handler_utils.distributed": "a distributed launcher (torchrun) with DeepSpeed or PiPPy",
    "ts.handler_utils.preprocess": "NVIDIA DALI",
}
# Names that are not the server's own, and no module of that name.
_ELSEWHERE = {
    **_in(_UTIL, "IPEX_AVAILABLE", "ONNX_AVAILABLE", "PROFILER_AVAILABLE"),
    **_in(_UTIL, "PT230_AVAILABLE", "PT2_AVAILABLE", "XLA_AVAILABLE"),
    **_in(f"{_HANDLERS}.text", "CONTRACTIONS_PATTERN"),
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
    "setup_ort_session": "marpack.worker.loaders.formats:open_session",
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
    ts.metrics.metric_cache_yaml_impl ts.metrics.metric_encoder ts.metrics.metric_type_enum ts.metrics.metrics_store
    ts.metrics.system_metrics ts.metrics.unit ts.model_loader ts.protocol ts.protocol.otf_message_handler ts.service
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


def brought_by(module: str) -> tuple[str, ...]:
    """Return the modules that importing this one imports, and so binds in their packages; their own follow."""
    if module in _BROUGHT:
        return _BROUGHT[module]
    row = next((row for row in BUILT_INS.values() if row.ours and row.module == module), None)
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
    """Say whether the server's module has a `logger` of its own."""
    return "logger" in names_held(module)
