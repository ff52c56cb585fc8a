import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.archive.manifest import MAX_BYTES, Manifest, ManifestModel
from marpack.errors import ExitCode, ManifestError

LEAST = {"runtime": "python", "model": {"modelName": "digits", "handler": "handler.py"}}
OLD = {
    "createdOn": "20/11/2026 10:00:00",
    "runtime": "python3",
    "model": {
        "modelName": "digits",
        "serializedFile": "digits.pt",
        "handler": "handler.py",
        "modelFile": "model.py",
        "modelVersion": "1.0",
        "sourceVocab": "source_vocab.pt",
        "extensions": {"a": [1, 2.5, None, {"b": "ü"}]},
        "description": "Ziffern, handgeschrieben",
    },
    "archiverVersion": "0.2.0",
    "modelServerVersion": "1.0",
    "specificationVersion": "1.0",
    "implementationVersion": "1.0",
    "createdBy": "someone",
    "license": "Apache-2.0",
}


def dump(tree: object) -> bytes:
    return json.dumps(tree).encode()


def test_the_least_manifest_the_server_takes():
    manifest = Manifest.from_json(dump(LEAST))
    assert manifest == Manifest(model=ManifestModel(name="digits", handler="handler.py"))


def test_old_archives_lose_nothing():
    manifest = Manifest.from_json(dump(OLD))
    assert manifest.model.serialized_file == "digits.pt"
    assert manifest.model.extra["sourceVocab"] == "source_vocab.pt"
    assert manifest.extra["license"] == "Apache-2.0"
    assert json.loads(manifest.to_json()) == OLD


def test_a_null_stays_a_null():
    tree = {"runtime": "python", "createdOn": None, "model": {**LEAST["model"], "serializedFile": None}}
    manifest = Manifest.from_json(dump(tree))
    assert manifest.created_on is None
    assert manifest.model.serialized_file is None
    assert json.loads(manifest.to_json()) == tree


def test_a_version_without_quotes_is_read_as_the_server_reads_it():
    manifest = Manifest.from_json(
        b'{"runtime": "python", "model": {"modelName": "m", "handler": "h", "modelVersion": 2.5}}'
    )
    assert manifest.model.version == "2.5"


def test_the_bytes_are_those_of_the_original_archiver():
    manifest = Manifest(
        model=ManifestModel(name="digits", handler="handler.py", serialized_file="digits.pt", version="1.0"),
        created_on="20/11/2026 10:00:00",
        archiver_version="0.12.0",
    )
    assert manifest.to_json().decode() == (
        "{\n"
        '  "createdOn": "20/11/2026 10:00:00",\n'
        '  "runtime": "python",\n'
        '  "model": {\n'
        '    "modelName": "digits",\n'
        '    "serializedFile": "digits.pt",\n'
        '    "handler": "handler.py",\n'
        '    "modelVersion": "1.0"\n'
        "  },\n"
        '  "archiverVersion": "0.12.0"\n'
        "}"
    )


def test_a_field_wins_over_an_extra_of_its_name():
    manifest = Manifest(model=ManifestModel(name="a", handler="h.py", extra={"modelName": "b", "mine": 1}))
    assert json.loads(manifest.to_json())["model"] == {"modelName": "a", "handler": "h.py", "mine": 1}


BAD = [
    (b"", "not valid JSON"),
    (b"\xef\xbb\xbf" + dump(LEAST), "byte-order mark"),
    (json.dumps(LEAST).encode("utf-16"), "not valid JSON"),
    (b'{"a": "\xff"}', "not valid JSON"),
    (b"[]", "not a JSON object"),
    (b"[" * 100_000, "nested too deeply"),
    (dump({**LEAST, "deep": json.loads("[" * 40 + "]" * 40)}), "more than 32 levels"),
    (b" " * (MAX_BYTES + 1), "the maximum is"),
    (b'{"runtime": "python", "runtime": "LSP"}', "'runtime' is repeated"),
    (dump(LEAST)[:-1] + b', "x": NaN}', "NaN"),
    (dump(LEAST)[:-1] + b', "x": 1e999}', "too large"),
    (dump(LEAST)[:-1] + b', "x": ' + b"9" * 5000 + b"}", "not valid JSON"),
    (dump(LEAST)[:-1] + b', "x": [{"a": "b\\ud800"}]}', "holds \\ud800, which is half a letter"),
    (dump({"runtime": "python"}), "no 'model'"),
    (dump({"runtime": "python", "model": []}), "'model' is a list, not an object"),
    (dump({**LEAST, "runtime": "java"}), "'runtime' is 'java'"),
    (dump({**LEAST, "model": {"handler": "h.py"}}), "no 'model.modelName'"),
    (dump({**LEAST, "model": {"modelName": "m"}}), "no 'model.handler'"),
    (dump({**LEAST, "model": {"modelName": "m", "handler": None}}), "no 'model.handler'"),
    (dump({**LEAST, "model": {"modelName": ["m"], "handler": "h.py"}}), "'model.modelName' is a list"),
    (dump({**LEAST, "model": {"modelName": "m", "handler": {}}}), "'model.handler' is an object"),
    (dump({**LEAST, "model": {**LEAST["model"], "configFile": True}}), "'model.configFile' is a boolean"),
]


@pytest.mark.parametrize(("data", "words"), BAD, ids=[f"{number}: {words}" for number, (_, words) in enumerate(BAD)])
def test_bad_manifests_are_refused_by_name(data, words):
    with pytest.raises(ManifestError) as caught:
        Manifest.from_json(data, where="x.mar!MAR-INF/MANIFEST.json")
    assert words in caught.value.what
    assert caught.value.where.startswith("x.mar!MAR-INF/MANIFEST.json")
    assert caught.value.exit_code == ExitCode.ARCHIVE


def test_both_halves_of_a_letter_are_a_letter():
    manifest = Manifest.from_json(dump(LEAST)[:-1] + b', "x": "\\ud83d\\ude00"}')
    assert manifest.extra["x"] == "\N{GRINNING FACE}"


def test_a_manifest_may_be_so_deep_and_so_large():
    deep = dump({**LEAST, "deep": json.loads("[" * 31 + "]" * 31)})
    assert Manifest.from_json(deep).extra["deep"]
    with pytest.raises(ManifestError, match="more than 32 levels"):
        Manifest.from_json(dump({**LEAST, "deep": json.loads("[" * 32 + "]" * 32)}))
    assert Manifest.from_json(dump(LEAST).ljust(MAX_BYTES)).model.handler == LEAST["model"]["handler"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = {"modelName", "serializedFile", "handler", "modelFile", "modelVersion", "requirementsFile", "configFile"}
_FIELDS |= {"envelope", "description", "createdOn", "runtime", "model", "archiverVersion"}
_EXTRA = st.dictionaries(st.text().filter(lambda key: key not in _FIELDS), _JSON, max_size=3)
_MAYBE = st.none() | st.text()
_MODELS = st.builds(
    ManifestModel, name=st.text(), handler=st.text(), version=_MAYBE, serialized_file=_MAYBE, model_file=_MAYBE,
    requirements_file=_MAYBE, config_file=_MAYBE, envelope=_MAYBE, description=_MAYBE, extra=_EXTRA,
)  # fmt: skip
_MANIFESTS = st.builds(
    Manifest, model=_MODELS, runtime=st.sampled_from(["python", "python3", "LSP"]),
    created_on=_MAYBE, archiver_version=_MAYBE, extra=_EXTRA,
)  # fmt: skip


@given(_MANIFESTS)
def test_a_round_trip_changes_nothing(manifest):
    data = manifest.to_json()
    again = Manifest.from_json(data)
    assert again == manifest
    assert again.to_json() == data


@given(st.binary(max_size=200) | _JSON.map(dump))
def test_whatever_comes_is_a_manifest_or_a_manifest_error(data):
    with suppress(ManifestError):
        assert Manifest.from_json(data).model.name is not None
