"""Manifests that marpack itself would not write: which of them the server takes (contract §1)."""

import json
from typing import Any

from conformance.probe import Call, Probe

_HANDLER = """
def handle(data, context):
    return None if data is None else [repr(context.manifest)]
"""


# A reader that takes either of two meanings, or none, invites others to take the other one.
_AMBIGUOUS = "JSON that readers disagree on is refused"
_NAMELESS = "the name that an operator may give at registration has no place in an archive that stands alone"
_STRICTER = {
    "key-twice": _AMBIGUOUS,
    "not-a-number": _AMBIGUOUS,
    "deep": _AMBIGUOUS,
    "name-missing": _NAMELESS,
    "name-null": _NAMELESS,
}


def _probe(name: str, manifest: dict[str, Any] | list[Any] | bytes, **files: str) -> Probe:
    data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    members = {"handler.py": _HANDLER, **{key.replace("_", "."): value for key, value in files.items()}}
    options: dict[str, Any] = {"stricter": _STRICTER.get(name), "settled": True, "steps": (Call("ask", "x"),)}
    return Probe(name=f"manifest-{name}", files=members, manifest=data, **options)


def _model(**keys: Any) -> dict[str, Any]:
    """Return a manifest with these keys of the model; a key that is ... is left out."""
    model = {"modelName": "m", "modelVersion": "1.0", "handler": "handler.py", **keys}
    return {"runtime": "python", "model": {key: value for key, value in model.items() if value is not ...}}


_PLAIN = _model()
_TEXT, _MODEL_TEXT = json.dumps(_PLAIN).encode(), json.dumps(_PLAIN["model"]).encode()

_OLD = dict.fromkeys(("modelServerVersion", "specificationVersion", "implementationVersion"), "1.0")
_OLD |= {"license": "x", "createdOn": "yesterday", "archiverVersion": 7}

PROBES = (
    _probe("minimal", _PLAIN),
    _probe("version-missing", _model(modelVersion=...)),
    _probe("version-number", _model(modelVersion=2)),
    _probe("version-null", _model(modelVersion=None)),
    _probe("version-empty", _model(modelVersion="")),
    _probe("version-text", _model(modelVersion="beta/3 x")),
    _probe("name-missing", _model(modelName=...)),
    _probe("name-empty", _model(modelName="")),
    _probe("name-null", _model(modelName=None)),
    _probe("name-odd", _model(modelName="-a b")),
    _probe("name-number", _model(modelName=5)),
    _probe("handler-missing", _model(handler=...)),
    _probe("handler-null", _model(handler=None)),
    _probe("handler-empty", _model(handler="")),
    _probe("handler-number", _model(handler=5)),
    _probe("handler-without-py", _model(handler="handler")),
    _probe("handler-with-path", _model(handler="/home/me/handler.py")),
    _probe("runtime-missing", {"model": _PLAIN["model"]}),
    _probe("runtime-python3", {**_PLAIN, "runtime": "python3"}),
    _probe("runtime-unknown", {**_PLAIN, "runtime": "java"}),
    _probe("runtime-upper-case", {**_PLAIN, "runtime": "PYTHON"}),
    _probe("runtime-null", {**_PLAIN, "runtime": None}),
    _probe("runtime-lower-case-lsp", {**_PLAIN, "runtime": "lsp"}),
    _probe("booleans", {**_model(description=True, modelVersion=False, envelope=True), "createdOn": True}),
    _probe("booleans-for-files", _model(serializedFile=True, modelFile=False, requirementsFile=True)),
    _probe("handler-boolean", _model(handler=True)),
    _probe("model-missing", {"runtime": "python"}),
    _probe("model-list", {"runtime": "python", "model": []}),
    _probe("a-list", []),
    _probe("empty-object", {}),
    _probe("empty-file", b""),
    _probe("not-json", b"hello"),
    _probe("json-then-more", _TEXT + b" more"),
    _probe("trailing-comma", _TEXT[:-1] + b",}"),
    _probe("single-quotes", repr(_PLAIN).encode()),
    _probe("comments", b"// mine\n" + _TEXT),
    _probe("bom", b"\xef\xbb\xbf" + _TEXT),
    _probe("utf-16", json.dumps(_PLAIN).encode("utf-16")),
    _probe("latin-1", json.dumps(_model(description="caf\u00e9"), ensure_ascii=False).encode("latin-1")),
    _probe("key-twice", b'{"runtime": "python", "runtime": "python3", "model": %s}' % _MODEL_TEXT),
    _probe("not-a-number", b'{"runtime": "python", "x": NaN, "model": ' + _MODEL_TEXT + b"}"),
    _probe("unknown-keys", {**_model(mine=[1], extensions={"a": {}}), "extra": {"b": None}, "createdBy": "me"}),
    _probe("old-keys", {**_model(sourceVocab="v.pt"), **_OLD}),
    _probe("weights-not-there", _model(serializedFile="w.pt")),
    _probe("model-file-not-there", _model(modelFile="model.py")),
    _probe("requirements-not-there", _model(requirementsFile="requirements.txt")),
    _probe("weights-null", _model(serializedFile=None, modelFile=None, configFile=None)),
    _probe("weights-with-path", _model(serializedFile="deep/w.pt")),
    _probe("config-null", _model(configFile=None)),
    _probe("config-empty", _model(configFile="")),
    _probe("config-json", _model(configFile="c.json"), c_json='{"a": 1}'),
    _probe("deep", b'{"runtime": "python", "x": %s%s, "model": %s}' % (b"[" * 200, b"]" * 200, _MODEL_TEXT)),
)
