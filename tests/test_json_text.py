import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from marpack.json_text import legible, to_json

TEXT = st.text(st.characters(categories=None))


class Named(Struct):
    name: str
    more: dict[str, Any]
    parts: tuple[Any, ...] = ()


@given(TEXT)
def test_what_utf8_holds_stays_as_it_is_and_the_rest_is_spelt_out(text: str):
    assert legible(text) == "".join(f"\\u{ord(each):x}" if 0xD800 <= ord(each) < 0xE000 else each for each in text)


@pytest.mark.parametrize("indent", [False, True])
def test_a_result_is_whole_whatever_its_texts_hold(*, indent: bool):
    result = Named("n\udcff", {"k\ud800": [1, None, 2.5, "é"]}, (("x\udc80",), True))
    told = {"name": "n\\udcff", "more": {"k\\ud800": [1, None, 2.5, "é"]}, "parts": [["x\\udc80"], True]}
    assert json.loads(to_json(result, indent=indent)) == told
    assert (b"\n" in to_json(result, indent=indent)) == indent


def test_what_utf8_holds_is_told_as_ever():
    result = Named("n", {"b": 1, "a": 2})
    assert to_json(result) == msgspec.json.encode(result, order="deterministic")
