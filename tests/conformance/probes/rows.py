"""Requests → rows: what becomes of bodies, content types, forms and headers (contract §4)."""

from __future__ import annotations

from conformance.probe import Call, Field, Form, Probe, handler
from conformance.requests import BOUNDARY

JSON = "application/json"
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"

_TYPES = (
    JSON,
    f"{JSON}; charset=utf-8",
    f"{JSON};charset=latin1",
    "Application/JSON",
    f" {JSON} ",
    "application/vnd.x+json",
    "application/jsonx",
    f"{JSON},text/plain",
    "text/plain",
    "text/plain; charset=latin-1",
    "TEXT/plain",
    "textual/x",
    "text",
    "",
    "image/png",
    "application/octet-stream",
    "multipart/mixed; boundary=x",
    "multipart/form-data",  # no boundary: no form
    f"Multipart/Form-Data; boundary={BOUNDARY}",
)

_JSON_BODIES = {
    "null": "null",
    "string": '"caf\u00e9"',
    "number": "1.50",
    "not-a-number": "[NaN, Infinity, -Infinity]",
    "twice": '{"a": 1, "b": 2, "a": 3}',
    "unfinished": '{"a": ',
    "empty": "",
    "latin": b'{"a": "\xff"}',
    "bom": "\ufeff{}",
    "utf16": '{"a": 1}'.encode("utf-16"),
    "long-integer": "1" * 4301,
    "deep": "[" * 5_000,
    "blanks": " \n {} \n",
    "surrogate": r'"\ud800"',
}

_TEXT_BODIES = {
    "accents": "na\u00efve caf\u00e9 \u20ac",
    "latin": b"caf\xe9",
    "bom": "\ufeffx",
    "empty": "",
    "nul": "a\0b",
    "lines": "a\r\nb\n",
}


RAW = Probe(
    name="raw",
    files={"handler.py": handler("echo")},
    steps=(
        *(Call(f"type-{content_type!r}", '{"data": 1}', content_type) for content_type in _TYPES),
        *(Call(f"json-{name}", body, JSON) for name, body in _JSON_BODIES.items()),
        *(Call(f"text-{name}", body, "text/plain") for name, body in _TEXT_BODIES.items()),
        Call("no-type", b"\x00\xff"),
        Call("nothing"),
    ),
)


def _form(name: str, *fields: Field) -> Call:
    return Call(name, Form(fields=fields))


def _query(name: str, *pairs: tuple[str, bytes]) -> Call:
    return Call(name, Form(fields=tuple(Field(*pair) for pair in pairs), urlencoded=True))


FORMS = Probe(
    name="forms",
    files={"handler.py": handler("echo")},
    steps=(
        _form("field", Field("data", b"v\xff")),
        _form("file", Field("data", b"v\xff", "a.png", "image/png")),
        _form("file-without-type", Field("data", b"v", "a.txt")),
        _form("file-json", Field("data", b'{"a": 1}', "a.json", JSON)),
        _form("file-json-parameter", Field("data", b'{"a": 1}', "a.json", f"{JSON}; charset=utf-8")),
        _form("file-json-broken", Field("data", b'{"a": ', "a.json", JSON)),
        _form("file-text", Field("data", "caf\u00e9".encode(), "a.txt", "text/plain")),
        _form("file-text-latin", Field("data", b"caf\xe9", "a.txt", "text/plain; charset=iso-8859-1")),
        _form("file-empty", Field("data", b"", "a", "text/plain")),
        _form("field-with-type", Field("data", b'{"a": 1}', None, JSON)),
        _form("fields", Field("data", b"1", "a", "text/x"), Field("other", b"2"), Field("third", b"")),
        _form("twice", Field("data", b"1", "a", "text/x"), Field("other", b"2"), Field("data", b"3")),
        _form("named-body", Field("body", b"1")),
        _form("named-explain", Field("explain", b"True")),
        _form("accent-in-name", Field("d\u00e9", b"1")),
        _query("urlencoded", ("data", b"a b+c&\xc3\xa9"), ("e", b"")),
        _query("urlencoded-twice", ("data", b"1"), ("x", b"2"), ("data", b"3")),
        _query("urlencoded-bytes", ("data", b"\xff\x00")),
        Call("urlencoded-json", '{"data": 1}', URLENCODED, seen_as=()),
        Call("urlencoded-empty", "", URLENCODED, seen_as=()),
        Call("urlencoded-semicolon", "a=1;b=2", URLENCODED, seen_as=(Field("a", b"1;b=2"),)),
        Call("urlencoded-case", "a=1", "Application/X-WWW-Form-Urlencoded", seen_as=(Field("a", b"1"),)),
        Call("multipart-empty", "", MULTIPART, seen_as=()),
        Call("multipart-unfinished", f"--{BOUNDARY}\r\nContent-Disposition: form-data", MULTIPART, seen_as=()),
        Call("multipart-other-boundary", "--x\r\n\r\n\r\n--x--\r\n", MULTIPART, seen_as=()),
    ),
)

HEADERS = Probe(
    name="headers",
    files={"handler.py": handler("echo")},
    steps=(
        Call("plain", "x", "text/plain", (("X-Odd", "a"), ("x-odd", "b"), ("Cookie", "a=b; c=d"))),
        Call("twice", "x", "text/plain", (("X-A", "1"), ("X-A", "2"))),
        Call("blanks", "x", "text/plain", (("X-Sp", "  a b  "), ("X-Empty", ""))),
        Call("latin", "x", "text/plain", (("X-Latin", "\xe9"),)),
        Call("like-a-field", "x", "text/plain", (("body", "mine"), ("data", "1"))),
        Call("claims", "x", "text/plain", (("explain", "True"), ("url_path", "mine"), ("describe", "True"))),
        Call("path", "x", "text/plain", url_path="a/b"),
        Call("type-in-lower-case", "{}", None, (("content-type", JSON),), seen_as=(Field("body", b"{}", None, JSON),)),
        Call("explanation", "x", "text/plain", route="explanations"),
        Call("explanation-path", "x", "text/plain", route="explanations", url_path="c"),
    ),
)

UNDECODED = Probe(
    name="undecoded",
    files={"handler.py": handler("echo")},
    settings={"decode_input_request": "false"},
    environment={"TS_DECODE_INPUT_REQUEST": "false"},
    steps=(Call("json", "{}", JSON), Call("text", "x", "text/plain"), _form("file", Field("d", b"{}", "f", JSON))),
)

PROBES = (RAW, FORMS, HEADERS, UNDECODED)
