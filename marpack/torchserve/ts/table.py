"""Every `ts` name that handlers use, the piece of marpack that it is, and what its module holds besides (contract §8).

A module's names map to `module:attribute`; an attribute is looked up when it is first asked for, so that importing
`ts.context` costs nothing and torch is imported only by a handler that uses it.

Handlers import what a module holds besides, too (`from ts.torch_handler.base_handler import torch`,
`import ts; ts.context.Context`), and `from … import *` takes all of it.
"""

from functools import cache

from marpack.torchserve.stock import BUILT_INS, base_modules, is_standard, names_held

_CONTEXT = "marpack.torchserve.context"
_METRIC = "marpack.torchserve.metrics"
_SYSTEM = "marpack.torchserve.system_metrics"
_CACHE = "marpack.torchserve.metrics_cache"
_STREAMING = "marpack.torchserve.streaming"
_HANDLERS = "marpack.worker.handlers"
_ENVELOPES = "marpack.torchserve.envelopes"

TABLE: dict[str, dict[str, str]] = {
    "ts": {"__version__": f"{_CONTEXT}:SERVER_VERSION", "version": "ts.version"},
    "ts.version": {"__version__": f"{_CONTEXT}:SERVER_VERSION"},
    "ts.context": {
        "Context": f"{_CONTEXT}:Context",
        "RequestProcessor": f"{_CONTEXT}:RequestProcessor",
    },
    "ts.service": {
        "Service": "marpack.torchserve.ts.unit_testing:Service",
        "emit_metrics": "marpack.torchserve.ts.unit_testing:emit_metrics",
        "PREDICTION_METRIC": "marpack.torchserve.ts.unit_testing:PREDICTION_METRIC",
    },
    "ts.model_loader": {
        "ModelLoaderFactory": "marpack.torchserve.ts.unit_testing:ModelLoaderFactory",
        "ModelLoader": "marpack.torchserve.ts.unit_testing:ModelLoader",
        "TsModelLoader": "marpack.torchserve.ts.unit_testing:TsModelLoader",
    },
    "ts.utils": {},
    "ts.utils.util": {
        "PT2Backend": "marpack.torchserve.ts_util:PT2Backend",
        "check_valid_pt2_backend": "marpack.torchserve.ts_util:check_valid_pt2_backend",
        "list_classes_from_module": "marpack.torchserve.ts_util:list_classes_from_module",
        "load_label_mapping": "marpack.torchserve.labels:load_label_mapping",
        "map_class_to_label": "marpack.torchserve.labels:map_class_to_label",
        "PredictionException": "marpack.torchserve.ts_util:PredictionException",
        "get_yaml_config": "marpack.torchserve.model_config:get_yaml_config",
        "deprecated": "marpack.torchserve.ts_util:deprecated",
        "CLEANUP_REGEX": f"{_HANDLERS}.text_pipeline:MARKUP",
    },
    "ts.utils.timeit_decorator": {"timeit": "marpack.torchserve.ts_util:timeit"},
    "ts.protocol": {},
    "ts.protocol.otf_message_handler": {
        "create_predict_response": f"{_STREAMING}:create_predict_response",
        "send_intermediate_predict_response": f"{_STREAMING}:send_intermediate_predict_response",
    },
    "ts.handler_utils": {},
    "ts.handler_utils.utils": {
        "import_class": "marpack.torchserve.ts_util:import_class",
        "create_predict_response": f"{_STREAMING}:create_predict_response",
        "send_intermediate_predict_response": f"{_STREAMING}:send_intermediate_predict_response",
    },
    "ts.handler_utils.timer": {"timed": f"{_HANDLERS}.timing:timed"},
    "ts.handler_utils.micro_batching": {
        "MicroBatching": "marpack.torchserve.micro_batching:MicroBatching",
        "WorkerThread": "marpack.torchserve.micro_batching:WorkerThread",
        "HANDLER_METHODS": "marpack.torchserve.micro_batching:HANDLER_METHODS",
    },
    "ts.handler_utils.text_utils": {
        "get_tokenizer": f"{_HANDLERS}.text_pipeline:get_tokenizer",
        "ngrams_iterator": f"{_HANDLERS}.text_pipeline:ngrams_iterator",
    },
    "ts.handler_utils.hf_batch_streamer": {
        "TextIteratorStreamerBatch": f"{_HANDLERS}.batch_streamer:TextIteratorStreamerBatch"
    },
    "ts.metrics": {},
    "ts.metrics.dimension": {"Dimension": f"{_METRIC}:Dimension"},
    "ts.metrics.metric": {"Metric": f"{_METRIC}:Metric", "MetricUnit": f"{_METRIC}:METRIC_UNIT"},
    "ts.metrics.unit": {"Units": f"{_METRIC}:Units"},
    "ts.metrics.metric_encoder": {"MetricEncoder": f"{_METRIC}:MetricEncoder"},
    "ts.metrics.caching_metric": {"CachingMetric": f"{_METRIC}:CachingMetric"},
    "ts.metrics.metric_type_enum": {"MetricTypes": f"{_METRIC}:MetricTypes"},
    "ts.metrics.metric_abstract": {
        "MetricAbstract": f"{_METRIC}:CachingMetric",
        "MetricUnit": f"{_METRIC}:METRIC_UNIT",
    },
    "ts.metrics.system_metrics": {
        name: f"{_SYSTEM}:{name}"
        for name in (
            "collect_all",
            "cpu_utilization",
            "dimension",
            "disk_available",
            "disk_used",
            "disk_utilization",
            "gpu_utilization",
            "memory_available",
            "memory_used",
            "memory_utilization",
            "system_metrics",
        )
    },
    "ts.metrics.process_memory_metric": {"get_cpu_usage": f"{_SYSTEM}:get_cpu_usage"},
    "ts.metrics.metrics_store": {"MetricsStore": "marpack.torchserve.metrics:MetricsStore"},
    "ts.metrics.metric_cache_yaml_impl": {"MetricsCacheYamlImpl": f"{_CACHE}:MetricsCacheYamlImpl"},
    "ts.metrics.metric_cache_abstract": {"MetricCacheAbstract": f"{_CACHE}:MetricsCacheYamlImpl"},
    "ts.metrics.metric_cache_errors": {
        name: f"{_CACHE}:{name}"
        for name in (
            "GeneralMetricsCacheError",
            "MetricsCacheIOError",
            "MetricsCacheKeyError",
            "MetricsCachePyYamlError",
            "MetricsCacheTypeError",
            "MetricsCacheValueError",
        )
    },
    "ts.torch_handler": {},
    **{row.module: {row.cls: f"{_HANDLERS}.{row.ours}:{row.cls}"} for row in BUILT_INS.values() if row.ours},
    "ts.torch_handler.contractions": {"CONTRACTION_MAP": f"{_HANDLERS}.text_pipeline:CONTRACTION_MAP"},
    "ts.torch_handler.request_envelope": {},
    "ts.torch_handler.request_envelope.base": {"BaseEnvelope": f"{_ENVELOPES}:BaseEnvelope"},
    "ts.torch_handler.request_envelope.body": {"BodyEnvelope": f"{_ENVELOPES}:BodyEnvelope"},
    "ts.torch_handler.request_envelope.json": {"JSONEnvelope": f"{_ENVELOPES}:JSONEnvelope"},
    "ts.torch_handler.request_envelope.kserve": {"KServeEnvelope": f"{_ENVELOPES}:KServeEnvelope"},
    "ts.torch_handler.request_envelope.kservev2": {"KServev2Envelope": f"{_ENVELOPES}:KServev2Envelope"},
    "ts.torch_handler.unit_tests": {},
    "ts.torch_handler.unit_tests.test_utils": {},
    "ts.torch_handler.unit_tests.test_utils.mock_context": {"MockContext": f"{_HANDLERS}.mock_context:MockContext"},
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
    **{
        name: f"marpack.torchserve.ts_util:{name}"
        for name in (
            "IPEX_AVAILABLE",
            "ONNX_AVAILABLE",
            "PROFILER_AVAILABLE",
            "PT230_AVAILABLE",
            "PT2_AVAILABLE",
            "XLA_AVAILABLE",
        )
    },
    "CONTRACTIONS_PATTERN": f"{_HANDLERS}.text_pipeline:CONTRACTIONS_PATTERN",
    "setup_ort_session": "marpack.worker.loaders.onnx:session",
    "ABC": "abc:ABC",
    "ABCMeta": "abc:ABCMeta",
    "Dict": "typing:Dict",
    "F": "torch.nn.functional",
    "Image": "PIL.Image",
    "IntegratedGradients": "captum.attr:IntegratedGradients",
    "JSONEncoder": "json:JSONEncoder",
    "LayerIntegratedGradients": "captum.attr:LayerIntegratedGradients",
    "Optional": "typing:Optional",
    "OrderedDict": "collections:OrderedDict",
    "ProfilerActivity": "torch.profiler:ProfilerActivity",
    "T": "torchvision.transforms",
    "TokenReferenceBase": "captum.attr:TokenReferenceBase",
    "Tuple": "typing:Tuple",
    "abstractmethod": "abc:abstractmethod",
    "b64decode": "base64:b64decode",
    "chain": "itertools:chain",
    "copy": "copy:copy",
    "dataclass": "dataclasses:dataclass",
    "merrors": "ts.metrics.metric_cache_errors",
    "np": "numpy",
    "ort": "onnxruntime",
    "profile": "torch.profiler:profile",
    "record_function": "torch.profiler:record_function",
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
    return base_modules(row.dotted) if row else ()


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
