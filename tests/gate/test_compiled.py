"""Which configs have the model compiled."""

from typing import Any

import pytest

from marpack.gate.candidate import compiles


@pytest.mark.parametrize(
    ("pt2", "is_compiled"),
    [
        (None, False),
        ("", False),
        ({}, False),
        ("inductor", True),
        ({"backend": "inductor"}, True),
        ({"compile": {"enable": True}}, True),
        ({"compile": {"enable": True}, "export": {}}, True),
        ({"compile": {"enable": False}}, False),
        ({"compile": {"enable": 1}}, False),
        ({"compile": {"backend": "inductor"}}, False),
        ({"compile": "inductor"}, False),
        ({"export": {"aot": True}}, False),
    ],
)
def test_every_spelling_of_a_config_that_compiles(pt2: Any, is_compiled: bool):
    assert compiles(pt2) is is_compiled
