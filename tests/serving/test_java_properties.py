r"""The syntax, as java.util.Properties reads it: each expected value was taken from there."""

import pytest

from marpack.errors import UsageError
from marpack.serving.settings import parse_properties

CASES = {
    "equals sign": (b"a=1", {"a": "1"}),
    "colon": (b"a:1", {"a": "1"}),
    "blank": (b"a 1", {"a": "1"}),
    "blanks around the sign": (b" \t\x0ca \t=\t 1", {"a": "1"}),
    "one sign only": (b"a==1\nb = : 2", {"a": "=1", "b": ": 2"}),
    "an address": (b"inference_address=http://0.0.0.0:8080", {"inference_address": "http://0.0.0.0:8080"}),
    "no value": (b"a\nb=\nc:", {"a": "", "b": "", "c": ""}),
    "blanks at the end stay": (b"a=1 \t", {"a": "1 \t"}),
    "comments": (b"#a=1\n!b=2\n  # c=3\nd=#4", {"d": "#4"}),
    "a comment is not continued": (b"# a\\\nb=1", {"b": "1"}),
    "blank lines": (b"\n \t\n\ra=1\r\n\r\n", {"a": "1"}),
    "three line ends": (b"a=1\rb=2\r\nc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    "other line ends are letters": (b"a=1\x0bb\x85c", {"a": "1\x0bb\x85c"}),
    "continued": (b"a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
    "continued by a comment's sign": (b"a=1\\\n#2", {"a": "1#2"}),
    "continued by nothing": (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    "an escaped backslash continues nothing": (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    "three backslashes": (b"a=1\\\\\\\n2", {"a": "1\\2"}),
    "a backslash at the end": (b"a=1\\", {"a": "1"}),
    "escaped signs in a key": (rb"a\=b\:c\ d = 1", {"a=b:c d": "1"}),
    "escapes": (rb"a=\t\n\r\f\"\q\\", {"a": '\t\n\r\f"q\\'}),
    "a letter by its number": (rb"\u0061=\u00fc\u20AC", {"a": "ü€"}),
    "a letter by its halves": (rb"a=\ud83d\ude00", {"a": "😀"}),
    "half a letter": (rb"a=\ud83d", {"a": "\ufffd"}),
    "Latin-1": (b"a=\xfc", {"a": "ü"}),
    "the last one counts": (b"a=1\nb=2\na=3", {"a": "3", "b": "2"}),
    "empty": (b"", {}),
}


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=CASES)
def test_reads(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected


@pytest.mark.parametrize("data", [rb"a=\u12", rb"a=C:\users", rb"\u00g0=1"])
def test_refuses_half_an_escape(data: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        parse_properties(data)
    assert caught.value.code == "invalid-escape"
    assert caught.value.hint
