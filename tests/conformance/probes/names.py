"""The `ts` names that handlers import: what they do when called (contract §8)."""

import json
from dataclasses import replace

from conformance.probe import asked, handler

_LABELS = {
    "plain": '{"0": "cat", "1": "dog"}',
    "lists": '{"0": ["n1", "cat"], "1": ["dog"]}',
    "empty-list": '{"0": []}',
    "object-types": '{"object_type_names": ["a", "b"]}',
    "object-types-text": '{"object_type_names": "ab"}',
    "object-types-more": '{"object_type_names": ["a"], "0": "z"}',
    "numbers": '{"0": 5}',
    "null": '{"0": null}',
    "list-of-numbers": '{"0": ["a", 5]}',
    "a-list": '["cat"]',
    "text": '"cat"',
    "empty": "{}",
    "empty-file": "",
    "broken": '{"0": ',
    "gaps": '{"0": "a", "7": "b"}',
    "accents": '{"0": "\u00e9t\u00e9"}',
    "twice": '{"0": "a", "0": "b"}',
    "bom": '\ufeff{"0": "a"}',
    "nested": '{"0": {"a": "b"}}',
}

_TEXTS = (
    "Hello, World!",
    "it's a dog's life",
    "a.b,c(d)e!f?g;h:i",
    'say "hi" <br /> twice',
    "",
    "  many   blanks ",
    "caf\u00e9 na\u00efve",
    "tab\tand\nline",
    "don''t",
    "1.5 2,000",
)

_CASES = {
    "version": "answer = ts.__version__, ts.version.__version__.strip()",
    "map-class": "answer = util.map_class_to_label([[0.5, 0.25]], {'0': 'a', '1': 'b'}, [[1, 0]])",
    "map-class-no-mapping": "answer = util.map_class_to_label([[0.5, 0.25]], None, [[1, 0]])",
    "map-class-no-classes": "answer = util.map_class_to_label([[0.5, 0.25], [1, 2]], {'0': 'a', '1': 'b'})",
    "map-class-same-label": "answer = util.map_class_to_label([[3, 2, 1]], dict(zip('012', 'aba')), [[0, 1, 2]])",
    "map-class-missing": "answer = util.map_class_to_label([[0.5]], {}, [[3]])",
    "map-class-shorter": "answer = util.map_class_to_label([[0.5, 0.2]], None, [[3]])",
    "map-class-tuple": "answer = util.map_class_to_label(([0.5],))",
    "map-class-mapping-list": "answer = util.map_class_to_label([[0.5]], ['a'])",
    "map-class-empty": "answer = util.map_class_to_label([])",
    "classes": "import handler; answer = util.list_classes_from_module(handler)",
    "classes-parent": "answer = util.list_classes_from_module(json.decoder, ValueError)",
    "yaml": "open('y.yaml', 'w').write('a: 1'); answer = util.get_yaml_config('y.yaml')",
    "yaml-empty": "open('y.yaml', 'w').write(''); answer = util.get_yaml_config('y.yaml')",
    "yaml-missing": "answer = util.get_yaml_config('nope.yaml')",
    "yaml-object": "open('y.yaml', 'w').write('!!python/name:os.system'); answer = util.get_yaml_config('y.yaml')",
    "backends": "answer = [backend.value for backend in util.PT2Backend]",
    "backend-valid": "answer = [util.check_valid_pt2_backend(b) for b in ('inductor', 'eager', 'nope', 'INDUCTOR')]",
    "prediction-exception": "e = PredictionException('m'); answer = str(e), e.message, e.error_code, e.args",
    "prediction-exception-code": "e = PredictionException('m', 404); answer = str(e), e.args, repr(e)",
    "prediction-exception-keyword": "answer = PredictionException(message='m', error_code=3).error_code",
    "prediction-exception-nothing": "answer = PredictionException()",
    "import-class": "answer = utils.import_class('collections.OrderedDict').__name__",
    "import-class-prefix": "answer = utils.import_class('OrderedDict', 'collections').__name__",
    "import-class-deep": "answer = utils.import_class('abc.Mapping', 'collections').__name__",
    "import-class-missing": "answer = utils.import_class('collections.Nope')",
    "import-class-no-module": "answer = utils.import_class('Nope')",
    "import-class-empty": "answer = utils.import_class('')",
    "import-class-none": "answer = utils.import_class(None)",
    "import-class-unknown-module": "answer = utils.import_class('no_such.Thing')",
    "tokenizer-none": "answer = ts.handler_utils.text_utils.get_tokenizer(None)('a b  c')",
    "tokenizer-unknown": "answer = ts.handler_utils.text_utils.get_tokenizer('spacy')('a b')",
    "tokenizer-callable": "answer = ts.handler_utils.text_utils.get_tokenizer(str.upper)('a b')",
    "ngrams": "answer = list(ts.handler_utils.text_utils.ngrams_iterator(['a', 'b', 'c', 'd'], 3))",
    "ngrams-one": "answer = list(ts.handler_utils.text_utils.ngrams_iterator(['a', 'b'], 1))",
    "ngrams-more-than-words": "answer = list(ts.handler_utils.text_utils.ngrams_iterator(['a'], 2))",
    "ngrams-empty": "answer = list(ts.handler_utils.text_utils.ngrams_iterator([], 2))",
    "mock-context": "m = MockContext(); answer = m.model_name, m.manifest, sorted(m.system_properties)",
    "mock-context-arguments": (
        "m = MockContext(model_pt_file='a.pt', model_dir='d', model_file='m.py', gpu_id=None, model_name='n');"
        "answer = m.manifest, m.system_properties.get('model_dir'), m.system_properties.get('gpu_id')"
    ),
    "mock-context-headers": "m = MockContext(); answer = m.get_request_header(0, 'explain')",
    "mock-context-all-headers": "m = MockContext(); answer = m.get_all_request_header(0)",
    "mock-context-explain": "m = MockContext(); m.explain = True; answer = m.get_request_header(0, 'explain')",
    "mock-context-metrics": "m = MockContext(); m.metrics.add_time('t', 1); answer = type(m.metrics).__name__",
    "own-context": (
        "c = Context('n', 'd', {'a': 1}, 2, 3, '9', False); p = c.system_properties;"
        "answer = c.model_name, c.manifest, p, c.model_yaml_config, c.request_ids, c.metrics"
    ),
    "own-context-before-requests": "c = Context('n', 'd', {}, 1, None, '9'); answer = c.get_request_id(0)",
    "own-context-headers-too-early": "c = Context('n', 'd', {}, 1, None, '9'); answer = c.get_request_header(0, 'a')",
    "own-context-status-too-early": "c = Context('n', 'd', {}, 1, None, '9'); answer = c.set_response_status(404)",
    "own-context-equal": "answer = Context('n', 'd', {}, 1, None, '9') == Context('n', 'd', {}, 1, None, '9')",
    "processor": (
        "p = ts.context.RequestProcessor({'a': 'b'}); p.add_response_property('x', 'y'); p.report_status(404, 'N');"
        "answer = p.get_request_property('a'), p.get_response_headers(), p.get_response_header('z'),"
        " p.get_response_status_code(), p.get_response_status_phrase(), p.get_request_properties()"
    ),
    "dimension": "answer = str(ts.metrics.dimension.Dimension('a', 'b'))",
    "metric-types": "answer = [t.name + t.value for t in ts.metrics.metric_type_enum.MetricTypes]",
    "base-attributes": (
        "b = type('B', (ts.torch_handler.base_handler.BaseHandler,), {})();"
        "answer = sorted((k, v) for k, v in vars(b).items() if not k.startswith('_'))"
    ),
    "base-describe": "answer = ts.torch_handler.base_handler.BaseHandler().describe_handle()",
    "base-device": "answer = ts.torch_handler.base_handler.BaseHandler().get_device()",
    "base-postprocess": "import torch; answer = ts.torch_handler.base_handler.BaseHandler().postprocess(torch.ones(2))",
    "base-preprocess": (
        "b = ts.torch_handler.base_handler.BaseHandler(); b.device = 'cpu';"
        "answer = b.preprocess([[1, 2]]), b.preprocess(5), b.preprocess([1.5]).dtype"
    ),
    "base-is-explain-without-context": "answer = ts.torch_handler.base_handler.BaseHandler()._is_explain()",
    "timed-keeps-result": (
        "class T:\n  context = None\n  @ts.handler_utils.timer.timed\n  def f(self, a, b=2): return a + b\n"
        "answer = T().f(1), T().f(1, b=5)"
    ),
    "distributed-needs-engines": "import ts.torch_handler.distributed.base_pippy_handler; answer = 'imported'",
    "unknown-module": "import ts.no_such_module; answer = 'imported'",
    "unknown-name": "from ts.utils.util import no_such_name; answer = 'imported'",
}


_SPLIT = "answer = ts.handler_utils.text_utils.get_tokenizer('basic_english')"
_FILES = {f"labels-{name}.json": text for name, text in _LABELS.items()}
_BODIES = {
    **{f"labels-{name}": f"answer = util.load_label_mapping('labels-{name}.json')" for name in _LABELS},
    "labels-missing": "answer = util.load_label_mapping('nope.json')",
    **{f"tokenizer-{text!r}": f"{_SPLIT}({text!r})" for text in _TEXTS},
    **_CASES,
}
NAMES = replace(asked("names", handler("names"), _BODIES), files={"handler.py": handler("names"), **_FILES})

_MODULES = {
    "ts": ["__version__"],
    "ts.context": ["Context", "RequestProcessor"],
    "ts.handler_utils.micro_batching": ["MicroBatching"],
    "ts.handler_utils.text_utils": ["get_tokenizer", "ngrams_iterator"],
    "ts.handler_utils.utils": ["import_class", "send_intermediate_predict_response", "create_predict_response"],
    "ts.metrics.dimension": ["Dimension"],
    "ts.metrics.metric": ["Metric"],
    "ts.metrics.metric_cache_yaml_impl": ["MetricsCacheYamlImpl"],
    "ts.metrics.metric_type_enum": ["MetricTypes"],
    "ts.metrics.metrics_store": ["MetricsStore"],
    "ts.protocol.otf_message_handler": ["create_predict_response", "send_intermediate_predict_response"],
    "ts.torch_handler.base_handler": ["BaseHandler"],
    "ts.torch_handler.image_classifier": ["ImageClassifier"],
    "ts.torch_handler.image_segmenter": ["ImageSegmenter"],
    "ts.torch_handler.object_detector": ["ObjectDetector"],
    "ts.torch_handler.request_envelope.base": ["BaseEnvelope"],
    "ts.torch_handler.request_envelope.body": ["BodyEnvelope"],
    "ts.torch_handler.request_envelope.json": ["JSONEnvelope"],
    "ts.torch_handler.request_envelope.kserve": ["KServeEnvelope"],
    "ts.torch_handler.request_envelope.kservev2": ["KServev2Envelope"],
    "ts.torch_handler.text_classifier": ["TextClassifier"],
    "ts.torch_handler.text_handler": ["TextHandler"],
    "ts.torch_handler.unit_tests.test_utils.mock_context": ["MockContext"],
    "ts.torch_handler.vision_handler": ["VisionHandler"],
    "ts.utils.util": [
        *("PT2Backend", "PredictionException", "check_valid_pt2_backend", "deprecated", "get_yaml_config"),
        *("list_classes_from_module", "load_label_mapping", "map_class_to_label"),
    ],
    "ts.version": ["__version__"],
}

_SHAPES = "module = importlib.import_module(%r); answer = [shape(name, getattr(module, name)) for name in %s]"

_SURFACE = {module: _SHAPES % (module, json.dumps(names)) for module, names in _MODULES.items()}

PROBES = (NAMES, asked("surface", handler("names"), _SURFACE))
