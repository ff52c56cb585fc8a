"""Every `ts` name that handlers import, and the piece of marpack that it is (contract §8).

A module's names map to `module:attribute`; an attribute is looked up when it is first asked for, so that importing
`ts.context` costs nothing and torch is imported only by a handler that uses it.
"""

_CONTEXT = "marpack.runtime.context"
_METRIC = "marpack.runtime.metrics.metric"
_SYSTEM = "marpack.runtime.metrics.system"
_ERRORS = "marpack.runtime.metrics.errors"
_STREAMING = "marpack.runtime.streaming"
_HANDLERS = "marpack.handlers"
_ENVELOPES = "marpack.runtime.envelopes"

# Built-in handlers: name in a manifest → class in ts.torch_handler.<name>.
BUILT_INS = {
    "base_handler": "BaseHandler",
    "vision_handler": "VisionHandler",
    "image_classifier": "ImageClassifier",
    "image_segmenter": "ImageSegmenter",
    "object_detector": "ObjectDetector",
    "text_handler": "TextHandler",
    "text_classifier": "TextClassifier",
    "densenet_handler": "DenseNetHandler",
}

TABLE: dict[str, dict[str, str]] = {
    "ts": {"__version__": f"{_CONTEXT}:SERVER_VERSION", "version": "ts.version"},
    "ts.version": {"__version__": f"{_CONTEXT}:SERVER_VERSION"},
    "ts.context": {
        "Context": f"{_CONTEXT}:Context",
        "RequestProcessor": f"{_CONTEXT}:RequestProcessor",
    },
    "ts.service": {
        "Service": "marpack.compat.service:Service",
        "emit_metrics": "marpack.compat.service:emit_metrics",
        "PREDICTION_METRIC": "marpack.compat.service:PREDICTION_METRIC",
    },
    "ts.model_loader": {
        "ModelLoaderFactory": "marpack.compat.model_loader:ModelLoaderFactory",
        "ModelLoader": "marpack.compat.model_loader:ModelLoader",
        "TsModelLoader": "marpack.compat.model_loader:TsModelLoader",
    },
    "ts.utils": {},
    "ts.utils.util": {
        "PT2Backend": "marpack.runtime.backends:PT2Backend",
        "check_valid_pt2_backend": "marpack.runtime.backends:check_valid_pt2_backend",
        "list_classes_from_module": "marpack.runtime.classes:list_classes_from_module",
        "load_label_mapping": "marpack.runtime.labels:load_label_mapping",
        "map_class_to_label": "marpack.runtime.labels:map_class_to_label",
        "PredictionException": "marpack.runtime.exceptions:PredictionException",
        "get_yaml_config": "marpack.runtime.config:get_yaml_config",
        "deprecated": "marpack.runtime.deprecation:deprecated",
        "CLEANUP_REGEX": f"{_HANDLERS}.text_pipeline:MARKUP",
    },
    "ts.utils.timeit_decorator": {"timeit": "marpack.runtime.deprecation:timeit"},
    "ts.protocol": {},
    "ts.protocol.otf_message_handler": {
        "create_predict_response": f"{_STREAMING}:create_predict_response",
        "send_intermediate_predict_response": f"{_STREAMING}:send_intermediate_predict_response",
    },
    "ts.handler_utils": {},
    "ts.handler_utils.utils": {
        "import_class": "marpack.runtime.classes:import_class",
        "create_predict_response": f"{_STREAMING}:create_predict_response",
        "send_intermediate_predict_response": f"{_STREAMING}:send_intermediate_predict_response",
    },
    "ts.handler_utils.timer": {"timed": f"{_HANDLERS}.timer:timed"},
    "ts.handler_utils.micro_batching": {
        "MicroBatching": "marpack.runtime.micro_batching:MicroBatching",
        "HANDLER_METHODS": "marpack.runtime.micro_batching:HANDLER_METHODS",
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
    "ts.metrics.metrics_store": {"MetricsStore": "marpack.runtime.metrics.store:MetricsStore"},
    "ts.metrics.metric_cache_yaml_impl": {"MetricsCacheYamlImpl": "marpack.runtime.metrics.cache:MetricsCache"},
    "ts.metrics.metric_cache_abstract": {"MetricCacheAbstract": "marpack.runtime.metrics.cache:MetricsCache"},
    "ts.metrics.metric_cache_errors": {
        name: f"{_ERRORS}:{name}"
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
    "ts.torch_handler.base_handler": {
        "BaseHandler": f"{_HANDLERS}.base:BaseHandler",
        "setup_ort_session": "marpack.loaders.onnx:session",
        **{
            name: f"marpack.compat.constants:{name}"
            for name in (
                "IPEX_AVAILABLE",
                "ONNX_AVAILABLE",
                "PROFILER_AVAILABLE",
                "PT230_AVAILABLE",
                "PT2_AVAILABLE",
                "XLA_AVAILABLE",
            )
        },
    },
    "ts.torch_handler.vision_handler": {"VisionHandler": f"{_HANDLERS}.vision:VisionHandler"},
    "ts.torch_handler.image_classifier": {"ImageClassifier": f"{_HANDLERS}.image_classifier:ImageClassifier"},
    "ts.torch_handler.image_segmenter": {"ImageSegmenter": f"{_HANDLERS}.image_segmenter:ImageSegmenter"},
    "ts.torch_handler.object_detector": {"ObjectDetector": f"{_HANDLERS}.object_detector:ObjectDetector"},
    "ts.torch_handler.densenet_handler": {
        "DenseNetHandler": f"{_HANDLERS}.densenet:DenseNetHandler",
        "list_classes_from_module": "marpack.runtime.classes:list_classes_from_module",
    },
    "ts.torch_handler.text_handler": {
        "TextHandler": f"{_HANDLERS}.text:TextHandler",
        "CONTRACTIONS_PATTERN": f"{_HANDLERS}.contractions:PATTERN",
    },
    "ts.torch_handler.text_classifier": {"TextClassifier": f"{_HANDLERS}.text_classifier:TextClassifier"},
    "ts.torch_handler.contractions": {"CONTRACTION_MAP": f"{_HANDLERS}.contractions:CONTRACTION_MAP"},
    "ts.torch_handler.request_envelope": {},
    "ts.torch_handler.request_envelope.base": {"BaseEnvelope": f"{_ENVELOPES}.base:BaseEnvelope"},
    "ts.torch_handler.request_envelope.body": {"BodyEnvelope": f"{_ENVELOPES}.body:BodyEnvelope"},
    "ts.torch_handler.request_envelope.json": {"JSONEnvelope": f"{_ENVELOPES}.json:JSONEnvelope"},
    "ts.torch_handler.request_envelope.kserve": {"KServeEnvelope": f"{_ENVELOPES}.kserve:KServeEnvelope"},
    "ts.torch_handler.request_envelope.kservev2": {"KServev2Envelope": f"{_ENVELOPES}.kservev2:KServev2Envelope"},
    "ts.torch_handler.unit_tests": {},
    "ts.torch_handler.unit_tests.test_utils": {},
    "ts.torch_handler.unit_tests.test_utils.mock_context": {"MockContext": f"{_HANDLERS}.mock_context:MockContext"},
}

# Modules that need an engine of their own: importing one says which.
ENGINES = {
    "ts.torch_handler.vllm_handler": "vLLM",
    "ts.torch_handler.trt_llm_handler": "TensorRT-LLM",
    "ts.torch_handler.dali_handler": "NVIDIA DALI",
    "ts.torch_handler.dali_image_classifier": "NVIDIA DALI",
    "ts.torch_handler.distributed": "a distributed launcher (torchrun) with DeepSpeed or PiPPy",
    "ts.handler_utils.distributed": "a distributed launcher (torchrun) with DeepSpeed or PiPPy",
    "ts.handler_utils.preprocess": "NVIDIA DALI",
}
