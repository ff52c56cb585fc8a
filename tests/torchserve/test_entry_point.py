import base64
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from marpack.torchserve import entry_point
from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.entry_point import (
    PT2Backend,
    check_valid_pt2_backend,
    deprecated,
    envelope_of,
    import_class,
    list_classes_from_module,
    loses_requests,
)
from marpack.torchserve.response import PredictionException


def test_classes_of_a_module_are_its_own_by_name():
    module = ModuleType("made")
    exec("from pathlib import Path\nclass B(Path): ...\nclass A: ...\ndef function(): ...", vars(module))
    assert [each.__name__ for each in list_classes_from_module(module)] == ["A", "B"]
    assert [each.__name__ for each in list_classes_from_module(module, Path)] == ["B"]


def test_a_class_is_imported_by_its_dotted_name():
    for name, prefix in (("pathlib.Path", None), ("Path", "pathlib"), ("abc.Mapping", "collections")):
        assert import_class(name, prefix).__name__ == name.rpartition(".")[2]
    for name in ("", "Path", "pathlib.Paths"):
        with pytest.raises(ImportError):
            import_class(name)


def test_backends_are_known_by_their_values():
    assert all(check_valid_pt2_backend(backend.value) for backend in PT2Backend)
    assert issubclass(PT2Backend, str)
    for unknown in ("INDUCTOR", "", None, ["inductor"]):
        assert not check_valid_pt2_backend(unknown)  # type: ignore[arg-type]  # configs hold anything


def test_a_prediction_that_fails_has_a_code_and_says_it():
    error = PredictionException("no cat")
    assert (error.message, error.error_code, str(error), error.args) == ("no cat", 500, "no cat : 500", ("no cat",))
    error = PredictionException("no cat", 404)
    assert (error.error_code, str(error), error.args) == (404, "no cat : 404", ("no cat",))


def test_what_is_deprecated_warns_at_every_call_and_answers():
    @deprecated("1.0", replacement="ts.new")
    def old(value: int) -> int:
        return value

    for _ in range(2):
        with pytest.warns(PendingDeprecationWarning, match=r"old is deprecated since 1\.0; use ts\.new") as warned:
            assert old(3) == 3
        assert warned[0].filename == __file__
    with pytest.warns(FutureWarning):
        deprecated("1.0", klass=FutureWarning)(old.__wrapped__)(1)


def test_a_stock_server_has_these_and_not_those():
    flags = {name for name, value in vars(entry_point).items() if value is True}
    assert flags == {"ONNX_AVAILABLE", "PROFILER_AVAILABLE", "PT230_AVAILABLE", "PT2_AVAILABLE"}
    assert not entry_point.IPEX_AVAILABLE
    assert not entry_point.XLA_AVAILABLE


def enveloped(name: str, rows: list[Any], handle: Any, *, explain: str = "False") -> Any:
    context = Context("m", "/m", {"model": {"modelName": "m", "modelVersion": "1.0"}}, 1, None, "0.12.0")
    context.request_ids = {0: "id-0"}
    context.request_processor = [RequestProcessor({"explain": explain})]
    return envelope_of(name, lambda data, _: handle(data))(rows, context)


def test_without_an_envelope_rows_pass_untouched_and_the_body_envelope_passes_payloads():
    assert envelope_of(None, print) is print
    with pytest.raises(ModuleNotFoundError, match="kservev2"):
        envelope_of("kserve2", print)
    assert enveloped("body", [{"data": b"1"}, {"body": b"2"}], lambda data: data) == [b"1", b"2"]


def test_json_joins_and_parts_instances():
    rows = [{"body": {"instances": [1, 2]}}, {"body": {"instances": [3]}}]
    got = enveloped("json", rows, lambda data: [item * 10 for item in data])
    assert [json.loads(text) for text in got] == [{"predictions": [10, 20]}, {"predictions": [30]}]


def test_json_decodes_b64_instances_and_columns():
    b64 = {"b64": base64.b64encode(b"pic").decode()}
    rows = [{"body": {"instances": [b64, {"x": b64, "y": 1}]}}]
    seen: list[Any] = []
    enveloped("json", rows, lambda data: seen.extend(data) or ["a", "b"])
    assert seen == [b"pic", {"x": b"pic", "y": 1}]


@pytest.mark.parametrize(("explain", "key"), [("False", "predictions"), ("True", "explanations")])
def test_kserve_answers_the_first_request_only(explain: str, key: str):
    rows = [{"body": bytearray(b'{"instances": [1]}')}, {"body": {"instances": [2]}}]
    assert enveloped("kserve", rows, lambda data: data, explain=explain) == [{key: [1]}]


def test_kservev2_shapes_flatten_and_types_follow_numpy():
    tensor = {"name": "in", "shape": [2, 2], "datatype": "FP32", "data": [1.5, 2, 3, 4]}
    (answer,) = enveloped("kservev2", [{"body": {"id": "mine", "inputs": [tensor]}}], lambda data: [data[0]["data"]])
    (output,) = answer.pop("outputs")
    assert answer == {"id": "mine", "model_name": "m", "model_version": "1.0"}
    assert output == {"name": "in", "datatype": "FP64", "data": [1.5, 2.0, 3.0, 4.0], "shape": (4,)}


def asked(name: str = "in", **more: Any) -> dict[str, Any]:
    return {"body": {"inputs": [{"name": name, "shape": [1], "datatype": "FP32", "data": [1]}], **more}}


@pytest.mark.parametrize(
    ("dtypes", "name"),
    [("bool", "BOOL"), ("uint8 uint16 uint32 uint64", "UINT{}"), ("int8 int16 int32 int64", "INT{}"),
     ("float16 float32 float64", "FP{}"), ("str object", "BYTES")],
)  # fmt: skip
def test_kservev2_names_numpys_types_in_its_own_words(dtypes: str, name: str):
    for dtype in dtypes.split():
        (answer,) = enveloped("kservev2", [asked()], lambda data, of=dtype: [np.array([[1]], of)])
        (output,) = answer["outputs"]
        assert output["datatype"] == name.format(re.sub(r"\D", "", dtype))
        assert (output["name"], output["shape"], output["data"]) == ("in", (1,), np.array([1], dtype).tolist())
    for dtype in ("complex64", "S1", "datetime64[s]"):
        with pytest.raises(KeyError):
            enveloped("kservev2", [asked()], lambda data, of=dtype: [np.array([1]).astype(of)])


def test_kservev2_answers_under_the_requests_id_unless_it_is_blank():
    for given, told in (("mine", "mine"), (" ", "id-0"), ("", "id-0"), (None, "id-0")):
        (answer,) = enveloped("kservev2", [asked(id=given)], lambda data: [1])
        assert answer["id"] == told


def test_kservev2_answers_the_first_request_only_its_outputs_named_as_its_inputs():
    tensors = [{"name": name, "shape": [1], "datatype": "BYTES", "data": [name, "of BYTES the first"]} for name in "ab"]
    rows = [{"data": json.dumps({"inputs": each}).encode()} for each in (tensors, tensors[:1])]
    (answer,) = enveloped("kservev2", rows, lambda data: [tensor["data"] for tensor in data])
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("a", ["a"]), ("b", ["b"])]


@pytest.mark.parametrize("name", ["body", "json", "kserve", "kservev2"])
def test_an_empty_batch_and_an_empty_answer_pass_untouched(name: str):
    assert enveloped(name, [], lambda data: data) == []
    assert enveloped(name, [asked(instances=[1])], lambda data: []) == []


def test_only_the_first_instance_tells_whether_they_are_objects():
    seen: list[Any] = []
    enveloped("json", [{"instances": [1, {"b64": "YQ=="}]}, {"data": {"instances": [2]}}], seen.extend)
    assert seen == [1, {"b64": "YQ=="}, 2]
    with pytest.raises(AttributeError):
        enveloped("json", [{"body": {"instances": [{"b64": "YQ=="}, 1]}}], lambda data: data)
    enveloped("json", [{"body": {"instances": [{"b64": "YQ==", "x": {"b64": "YQ==", "y": 1}}]}}], seen.extend)
    assert seen[3] == {"b64": "YQ==", "x": {"b64": "YQ==", "y": 1}}


def test_the_envelopes_of_kserve_lose_all_requests_but_one():
    names = (None, "body", "json", "kserve", "kservev2")
    assert [loses_requests(envelope_of(name, lambda data, context: data)) for name in names] == [
        *(None, None, None, "kserve", "kservev2")
    ]
