from typing import Any

import numpy as np
import pytest

from marpack.torchserve.context import RequestProcessor
from marpack.worker.captured_output import describe, lines_of, show_data


class FakeContext:
    def __init__(self, *headers: dict[str, Any]) -> None:
        self._processors = [RequestProcessor(header) for header in headers]

    def get_all_request_header(self, idx: int) -> dict[str, Any]:
        return self._processors[idx].get_request_properties()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (bytearray(b"\x00\xff" * 20), "of 40 bytes, " + "00 ff " * 8 + "…"),
        (bytearray(b"\xff"), "of 1 bytes, ff"),
        (bytearray(), "of 0 bytes"),
        (bytearray(b"hello"), "of 5 bytes, 'hello'"),
        (bytearray(b"x" * 81), f"of 81 bytes, '{'x' * 79}…'"),
        ("x" * 80, f"'{'x' * 80}'"),
        ("x" * 81, f"'{'x' * 79}…'"),
        ({"a": [1, None, True, 2.5]}, "{a: [1, None, True, 2.5]}"),
        ({"TOKEN": {"deep": 1}, "tokens": 2, "password": 3}, "{TOKEN: •••, tokens: 2, password: 3}"),
        (
            [{"Set-Cookie": 1, "Proxy-Authorization": 2, "token_id": 3, "x-cookie": 4}],
            "[{Set-Cookie: •••, Proxy-Authorization: •••, token_id: •••, x-cookie: •••}]",
        ),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, … 100 items]"),
        ({str(number): 0 for number in range(10)}, "{0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, … 10 keys}"),
        ([[[[[[[1]]]]]]], "[[[[[[…]]]]]]"),
        (np.zeros((2, 3), dtype="float32"), "[2, 3] float32"),
        (object(), "…"),
    ],
)
def test_values_are_shown_in_short_without_hidden_names(value: object, text: str):
    assert describe(value) == text


def test_every_field_and_the_headers_have_a_line():
    context = FakeContext({"X": "y", "token": "z", "url_path": "", "explain": "False", "a": {"content-type": ""}})
    assert list(lines_of([{"a": bytearray(b"1"), "access_token": bytearray(b"2")}], context)) == [
        "0 a: bytearray of 1 bytes, '1'",
        "0 access_token: bytearray •••",
        "0 headers: {X: 'y', token: •••}",
    ]
    assert list(lines_of(["text", 7], FakeContext())) == ["0 row: str 'text'", "1 row: int 7"]
    assert list(lines_of({"a": 1}, FakeContext())) == ["0 a: int 1"]


def test_lines_stay_lines_and_the_handler_gets_what_was_shown():
    told: list[str] = []
    handle = show_data(lambda data, context: data, told.append)
    row = {"body": "a\nb" + "x" * 1000}
    assert handle([row], FakeContext()) == [row]
    assert len(told) == 1
    assert "\n" not in told[0]
    assert len(told[0]) < 320
