"""Envelopes and decorators; the recordings `names` and `envelope-*` hold what is not tested here to a server's."""

import re
from typing import Any

import numpy as np
import pytest

from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.entry_point import (
    deprecated,
    envelope_of,
    loses_requests,
)


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


@pytest.mark.parametrize("name", ["body", "json", "kserve", "kservev2"])
def test_an_empty_batch_and_an_empty_answer_pass_untouched(name: str):
    assert enveloped(name, [], lambda data: data) == []
    assert enveloped(name, [asked(instances=[1])], lambda data: []) == []


def test_the_envelopes_of_kserve_lose_all_requests_but_one():
    names = (None, "body", "json", "kserve", "kservev2")
    assert [loses_requests(envelope_of(name, lambda data, context: data)) for name in names] == [
        *(None, None, None, "kserve", "kservev2")
    ]
