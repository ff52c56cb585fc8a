"""The context: what it holds and what its methods say (contract §3); model configs that are odd."""

from conformance.probe import Call, Probe, handler

_EXPRESSIONS = {
    "model-name": "context.model_name",
    "manifest": "context.manifest",
    "properties": "{k: v for k, v in context.system_properties.items() if k != 'model_dir'}",
    "model-dir": "os.path.isabs(context.system_properties['model_dir'])",
    "current-folder": "os.path.samefile(os.getcwd(), context.system_properties['model_dir'])",
    "files": "sorted(os.listdir('.'))",
    "on-path": "any(p and os.path.isdir(p) and os.path.samefile(p, os.getcwd()) for p in sys.path)",
    "config": "context.model_yaml_config",
    "request-id": "(type(context.get_request_id()).__name__, context.get_request_id() == context.request_ids[0])",
    "request-ids": "(sorted(context.request_ids), context.get_request_id(7))",
    "header-case": "[context.get_request_header(0, name) for name in ('X-A', 'x-a', 'nope')]",
    "header-parts": "context.get_request_header(0, 'body')",
    "processors": "[type(context.request_processor).__name__, len(context.request_processor)]",
    "processor-class": "type(context.request_processor[0]) is imported('ts.context').RequestProcessor",
    "stopping-criteria": "context.stopping_criteria",
    "sequence-keys": "[getattr(context, 'header_key_sequence_' + name) for name in ('id', 'start', 'end')]",
    "sequence-id": "context.get_sequence_id(0)",
    "class": "type(context) is imported('ts.context').Context",
    "metrics-class": (
        "isinstance(context.metrics, imported('ts.metrics.metric_cache_yaml_impl').MetricsCacheYamlImpl)"
    ),
    "attributes": "list(vars(context))",
    "class-names": (
        "[type(thing).__name__ for thing in (context, context.request_processor[0], context.metrics, context.metrics."
        "get_metric('HandlerTime', imported('ts.metrics.metric_type_enum').MetricTypes.GAUGE))]"
    ),
    "own-attribute": "context.__dict__.setdefault('mine', 'kept')",
    "own-attribute-again": "context.mine",
    "equal": "context == context, context == 1",
    "describe": "context.get_request_header(0, 'describe')",
    "explain": "context.get_request_header(0, 'explain')",
}

CONTEXT = Probe(
    name="context",
    files={"handler.py": handler("evaluate"), "model-config.yaml": "minWorkers: 1\nmine: {a: [1, 2.5, yes, null]}\n"},
    model={"configFile": "model-config.yaml", "extra": {"kept": [1]}, "description": "a probe"},
    steps=tuple(
        Call(name, f"answer = {source}", headers=(("X-A", "upper"), ("ts_request_sequence_id", "s-1")))
        for name, source in _EXPRESSIONS.items()
    ),
)

_CONFIGS = {
    "empty": "",
    "comment": "# nothing\n",
    "list": "- 1\n",
    "text": "just text\n",
    "duplicate-key": "a: 1\na: 2\n",
    "types": "a: 010\nb: 1_000\nc: 2025-01-01\nd: ~\ne: 'x'\nf: 1e3\ng: .inf\nh: yes\n",
    "anchors": "a: &x {b: 1}\nc: *x\n",
    "merge": "a: &x {b: 1}\nc: {<<: *x, d: 2}\n",
    "broken": "a: [1\n",
    "python-object": "a: !!python/object/apply:os.getcwd []\n",
    "tabs": "a:\n\t- 1\n",
    "two-documents": "a: 1\n---\nb: 2\n",
    "accents": "a: caf\u00e9\n",
    "server-key-of-wrong-type": "batchSize: many\n",
    "server-key-negative": "minWorkers: -1\n",
    "unknown-device": "deviceType: quantum\n",
}

_SHOW = """
def handle(data, context):
    if data is None:
        return None
    return [f"{type(context.model_yaml_config).__name__} {context.model_yaml_config!r}"]
"""

_FILES = {**{name: {"model-config.yaml": text} for name, text in _CONFIGS.items()}, "missing": {}}

PROBES = (
    CONTEXT,
    *(
        Probe(
            name=f"config-{name}",
            files={"handler.py": _SHOW, **files},
            model={"configFile": "model-config.yaml"},
            steps=(Call("ask", "x"),),
            settled=True,
        )
        for name, files in _FILES.items()
    ),
)
