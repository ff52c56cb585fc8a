"""What else the server's modules hold: names that they import themselves, and modules that come along with others.

Handlers import those, too (`from ts.torch_handler.base_handler import torch`, `import ts; ts.context.Context`), and
`from … import *` takes all of them.
"""

from marpack.compat.table import TABLE

# Names that are not the server's own, and no module of that name.
_ELSEWHERE = {
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

_HELD = {
    "ts.context": "Dict Optional Tuple os",
    "ts.service": """
        Context PredictionException RequestProcessor create_predict_response get_yaml_config logging os time ts
    """,
    "ts.model_loader": """
        ABCMeta MetricsCacheYamlImpl Optional Service abstractmethod importlib json list_classes_from_module logging os
        uuid
    """,
    "ts.utils.util": "enum inspect itertools json logging os re warn wraps yaml",
    "ts.utils.timeit_decorator": "time wraps",
    "ts.protocol.otf_message_handler": "deprecated io json logging os struct sys time torch",
    "ts.handler_utils.utils": "Context importlib os",
    "ts.handler_utils.timer": "time torch",
    "ts.handler_utils.micro_batching": "Dict copy dataclass os queue threading time",
    "ts.handler_utils.text_utils": "re",
    "ts.metrics.metric": "CachingMetric MetricTypes OrderedDict Units socket time",
    "ts.metrics.caching_metric": "Dimension MetricAbstract MetricTypes logging socket time",
    "ts.metrics.metric_abstract": "MetricTypes Units abc",
    "ts.metrics.metric_type_enum": "enum",
    "ts.metrics.metric_encoder": "Dimension JSONEncoder Metric json",
    "ts.metrics.metrics_store": "Dimension Metric",
    "ts.metrics.system_metrics": "Dimension Metric logging psutil types",
    "ts.metrics.process_memory_metric": "logging psutil",
    "ts.metrics.metric_cache_abstract": "Dimension MetricAbstract MetricTypes abc merrors os",
    "ts.metrics.metric_cache_yaml_impl": "CachingMetric MetricCacheAbstract MetricTypes logging merrors yaml",
    "ts.metrics.metric_cache_errors": "yaml",
    "ts.torch_handler.base_handler": """
        ProfilerActivity abc check_valid_pt2_backend importlib list_classes_from_module load_label_mapping logging ort
        os packaging profile psutil record_function time timed torch
    """,
    "ts.torch_handler.vision_handler": "ABC BaseHandler Image IntegratedGradients base64 io timed torch",
    "ts.torch_handler.image_classifier": "F VisionHandler map_class_to_label timed torch transforms",
    "ts.torch_handler.image_segmenter": "T VisionHandler torch",
    "ts.torch_handler.object_detector": "VisionHandler map_class_to_label torch torchvision_version transforms version",
    "ts.torch_handler.densenet_handler": "importlib inspect io logging os time torch",
    "ts.torch_handler.text_handler": """
        ABC BaseHandler CLEANUP_REGEX CONTRACTION_MAP F LayerIntegratedGradients get_tokenizer logging os re string
        torch unicodedata
    """,
    "ts.torch_handler.text_classifier": """
        F TextHandler TokenReferenceBase logging map_class_to_label ngrams_iterator torch
    """,
    "ts.torch_handler.request_envelope.base": "ABC abstractmethod",
    "ts.torch_handler.request_envelope.body": "BaseEnvelope",
    "ts.torch_handler.request_envelope.json": "BaseEnvelope b64decode chain json",
    "ts.torch_handler.request_envelope.kserve": "BaseEnvelope json logging",
    "ts.torch_handler.request_envelope.kservev2": "BaseEnvelope json logging np",
    "ts.torch_handler.unit_tests.test_utils.mock_context": "MetricsStore get_yaml_config os torch uuid",
}

# Modules with a `logger` of their own.
LOGGERS = frozenset(
    """
    ts.metrics.caching_metric ts.metrics.metric_cache_yaml_impl ts.service ts.torch_handler.base_handler
    ts.torch_handler.densenet_handler ts.torch_handler.request_envelope.kserve
    ts.torch_handler.request_envelope.kservev2 ts.torch_handler.text_classifier ts.torch_handler.text_handler
    ts.utils.util
    """.split()  # noqa: SIM905 - a list of one a line says no more
)

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

_BASE = ("ts.handler_utils.timer", "ts.torch_handler.base_handler")
_TEXT = (*_BASE, "ts.handler_utils.text_utils", "ts.torch_handler.contractions")
_PICTURES = (*_BASE, "ts.torch_handler.vision_handler")

# Module → those that importing it imports, and so binds in their packages.
BRINGS: dict[str, tuple[str, ...]] = {
    "ts.torch_handler.base_handler": ("ts.handler_utils.timer",),
    "ts.torch_handler.vision_handler": _BASE,
    "ts.torch_handler.image_classifier": _PICTURES,
    "ts.torch_handler.image_segmenter": _PICTURES,
    "ts.torch_handler.object_detector": _PICTURES,
    "ts.torch_handler.text_handler": _TEXT,
    "ts.torch_handler.text_classifier": (*_TEXT, "ts.torch_handler.text_handler"),
} | {
    f"ts.torch_handler.request_envelope.{name}": ("ts.torch_handler.request_envelope.base",)
    for name in ("body", "json", "kserve", "kservev2")
}


_HOMES = {name: target for names in TABLE.values() for name, target in names.items()} | _ELSEWHERE

# As TABLE: module → name → where it is, "module" or "module:attribute".
INCIDENTAL = {module: {name: _HOMES.get(name, name) for name in held.split()} for module, held in _HELD.items()}
