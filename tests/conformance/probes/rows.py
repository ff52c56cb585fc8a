"""Requests → rows: what becomes of bodies, content types, forms and headers (contract §4)."""

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
        Call("urlencoded-json", '{"data": 1}', URLENCODED),
        Call("urlencoded-empty", "", URLENCODED),
        Call("urlencoded-semicolon", "a=1;b=2", URLENCODED),
        Call("urlencoded-case", "a=1", "Application/X-WWW-Form-Urlencoded"),
        Call("multipart-empty", "", MULTIPART),
        Call("multipart-unfinished", f"--{BOUNDARY}\r\nContent-Disposition: form-data", MULTIPART),
        Call("multipart-other-boundary", "--x\r\n\r\n\r\n--x--\r\n", MULTIPART),
    ),
)


def _sections(name: str, *sections: str, boundary: str = BOUNDARY, content_type: str = MULTIPART) -> Call:
    body = "".join(f"--{boundary}\r\n{section}\r\n" for section in sections) + f"--{boundary}--\r\n"
    return Call(name, body, content_type)


_DATA = "Content-Disposition: form-data; name="
_TEXT = "Content-Type: text/plain"
_UTF8 = "; charset=utf-8;"

ODD_FORMS = Probe(
    name="odd-forms",
    files={"handler.py": handler("echo")},
    steps=(
        _sections("no-sections"),
        _sections("name-without-quotes", f"{_DATA}data\r\n\r\n1"),
        _sections("name-in-single-quotes", f"{_DATA}'data'\r\n\r\n1"),
        _sections("quotes-in-name", f'{_DATA}"a\\"b"\r\n\r\n1'),
        _sections("semicolon-in-name", f'{_DATA}"a;b"\r\n\r\n1'),
        _sections("blank-in-name", f'{_DATA}"a b"\r\n\r\n1'),
        _sections("escape-in-name", f'{_DATA}"a%20b"\r\n\r\n1'),
        _sections("headers-in-lower-case", f'{_DATA.lower()}"data"; filename="x"\r\n{_TEXT.lower()}\r\n\r\nhi'),
        _sections("more-headers", f'X-A: b\r\n{_DATA}"data"; filename="x"\r\nX-C: d\r\n{_TEXT}\r\n\r\nhi'),
        _sections("type-before-disposition", f'{_TEXT}\r\n{_DATA}"data"; filename="x"\r\n\r\nhi'),
        _sections("filename-first", 'Content-Disposition: form-data; filename="x"; name="data"\r\n\r\nhi'),
        _sections("filename-empty", f'{_DATA}"data"; filename=""\r\n{_TEXT}\r\n\r\nhi'),
        _sections("filename-extended", f"{_DATA}\"data\"; filename*=UTF-8''x.txt\r\n{_TEXT}\r\n\r\nhi"),
        _sections("filename-with-accent", f'{_DATA}"data"; filename="\u00e9"\r\n{_TEXT}\r\n\r\nhi'),
        _sections("binary-encoding", f'{_DATA}"d"; filename="x"\r\nContent-Transfer-Encoding: binary\r\n\r\nhi'),
        _sections("text-of-another-charset", f'{_DATA}"d"\r\nContent-Type: text/plain; charset=utf-16\r\n\r\nhi'),
        _sections("file-of-another-type", f'{_DATA}"d"; filename="x"\r\nContent-Type: Application/JSON\r\n\r\n{{}}'),
        _sections("blank-lines-in-value", f'{_DATA}"data"\r\n\r\n\r\na\r\n\r\nb\r\n'),
        _sections("boundary-in-value", f'{_DATA}"data"\r\n\r\na --{BOUNDARY} b'),
        _sections("quoted-boundary", f'{_DATA}"d"\r\n\r\n1', content_type=MULTIPART.replace("=", '="') + '"'),
        _sections("boundary-and-charset", f'{_DATA}"d"\r\n\r\n1', content_type=f"{MULTIPART}; charset=utf-8"),
        _sections("charset-and-boundary", f'{_DATA}"d"\r\n\r\n1', content_type=MULTIPART.replace(";", _UTF8)),
        Call("preamble", f'hello\r\n--{BOUNDARY}\r\n{_DATA}"data"\r\n\r\n1\r\n--{BOUNDARY}--\r\n', MULTIPART),
        Call("blank-line-before", f'\r\n--{BOUNDARY}\r\n{_DATA}"data"\r\n\r\n1\r\n--{BOUNDARY}--\r\n', MULTIPART),
        Call("epilogue", f'--{BOUNDARY}\r\n{_DATA}"data"\r\n\r\n1\r\n--{BOUNDARY}--\r\nbye', MULTIPART),
        Call("line-feeds-alone", f'--{BOUNDARY}\n{_DATA}"data"\n\n1\n--{BOUNDARY}--\n', MULTIPART),
        Call("second-cut", f'--{BOUNDARY}\r\n{_DATA}"a"\r\n\r\n1\r\n--{BOUNDARY}\r\n{_DATA}"b"\r\n\r\n2', MULTIPART),
        Call("urlencoded-last-ampersand", "a=1&", URLENCODED),
        Call("urlencoded-two-equals", "a=1=2", URLENCODED),
        Call("urlencoded-key-alone-first", "a&b=2", URLENCODED),
        Call("urlencoded-key-alone-last", "b=2&a", URLENCODED),
        Call("urlencoded-newline", "a=1\r\n", URLENCODED),
        Call("urlencoded-raw-accent", "\u00e9=\u00e9", URLENCODED),
        Call("urlencoded-charset", "a=%E9", f"{URLENCODED}; charset=latin1"),
        Call("urlencoded-plus", "a+b=c+d%2B", URLENCODED),
    ),
)

# The frontend itself answers these; marpack says that it would.
REFUSED_FORMS = Probe(
    name="refused-forms",
    files={"handler.py": handler("echo")},
    steps=(
        _sections("attachment", 'Content-Disposition: attachment; name="data"; filename="x"\r\n\r\nhi'),
        Call("urlencoded-ampersands", "a=1&&b=2", URLENCODED),
        Call("broken-escape", "a=%zz", URLENCODED),
        Call("cut-escape", "a=%4", URLENCODED),
        Call("escape-in-key", "%zz=1", URLENCODED),
        Call("empty-key", "=1", URLENCODED),
        Call("starting-ampersand", "&a=1", URLENCODED),
        _sections("no-name", "Content-Disposition: form-data\r\n\r\n1"),
        _sections("empty-name", f'{_DATA}""\r\n\r\n1'),
        _sections("base64", f'{_DATA}"d"; filename="x"\r\nContent-Transfer-Encoding: base64\r\n\r\naGk='),
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
        Call("type-in-lower-case", "{}", None, (("content-type", JSON),)),
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

PROBES = (RAW, FORMS, ODD_FORMS, HEADERS, UNDECODED)
