"""Forms taken apart, one feature a request: charsets, boundaries, names, sections and their headers (contract §4).

Answered by the handler or refused by the frontend; either way the recording says what a client gets.
"""

from collections.abc import Iterable

from conformance.probe import Call, Probe, handler
from conformance.probes.rows import MULTIPART, URLENCODED
from conformance.requests import BOUNDARY

_LINE = f"--{BOUNDARY}"
_DATA = "Content-Disposition: form-data; name="
_FILE = f'{_DATA}"d"; filename="x"'
_TEXT = "Content-Type: text/plain"


def _form(
    name: str, *sections: str, content_type: str = MULTIPART, boundary: str = BOUNDARY, headers: tuple[str, str] = ()
) -> Call:
    body = "".join(f"--{boundary}\r\n{section}\r\n" for section in sections) + f"--{boundary}--\r\n"
    return Call(name, body, content_type, (headers,) if headers else ())


def _forms(topic: str, heads: Iterable[str], frame: str) -> tuple[Call, ...]:
    """Return a form of one section for each of some texts, which stand in its head where the frame has a `%s`."""
    return tuple(_form(f"{topic}: {text[:70]}", f"{frame % text}\r\n\r\nhi") for text in heads)


def _whole(topic: str, types: Iterable[str]) -> tuple[Call, ...]:
    """Return a form for each content type of the whole."""
    return tuple(_form(f"{topic}: {kind[:70]}", f'{_DATA}"d"\r\n\r\nhi', content_type=kind) for kind in types)


# As clients name them; a charset changes nothing.
_CHARSETS = "utf8 latin1 iso-8859-1 ISO8859_1 cp1252 windows-1252 us-ascii utf-16 gbk gb18030 big5 shift_jis koi8-r"
_FILE_CHARSETS = ("utf8", '"utf-8"', "utf-8; x=y", "utf-16")
_FORM_CHARSETS = ("utf8", "latin1")
_FILE_TYPES = (
    "text/plain;charset=utf-8",
    'text/plain;charset="UTF-8"',
    "text/plain; charset=UTF-8; format=flowed",
    "text/plain; format=flowed",
    "text/plain ; charset=utf-8",
    "application/json ; charset=utf-8",
    "application/json;charset=utf-8",
    'application/json; charset="utf-8"',
    "; charset=utf-8",
    "",
    "text/plain;",
    "text/plain; xcharset=klingon",
    "text/plain; charset= utf-8",
    "TEXT/PLAIN",
    "image/png; name=x.png",
    'image/png; name="a;b.png"',
    "application/octet-stream",
    '"text/plain"',
    "text/plain; charset=utf-8 ",
    "application/json;;",
    "text",
)
_BOUNDARIES = (
    f"multipart/form-data; a=b; boundary={BOUNDARY}",
    f"multipart/form-data; boundary={BOUNDARY}; a=b",
    f"multipart/form-data;boundary={BOUNDARY}",
    f"multipart/form-data;  boundary={BOUNDARY}  ",
    f'multipart/form-data; boundary="{BOUNDARY}"; charset=utf-8',
    f"multipart/form-data; boundary='{BOUNDARY}'",
    f"multipart/form-data;charset=UTF-8;boundary={BOUNDARY}",
    f"multipart/form-data;boundary={BOUNDARY};charset=UTF-8",
    f"multipart/form-data; boundary={BOUNDARY};",
    f"multipart/form-data, multipart/form-data; boundary={BOUNDARY}",
    f'multipart/form-data; boundary="{BOUNDARY}',
    f"multipart/form-data; Boundary={BOUNDARY}",
    f"multipart/form-data-x; boundary={BOUNDARY}",
    f"multipart/form-data ; boundary={BOUNDARY}",
    "multipart/form-data; boundary=",
    "multipart/form-data;",
)
_QUOTED = (
    ('"a b"', "a b"),
    ('"a=b"', "a=b"),
    ("a=b", "a=b"),
    ('"a:b/c?d"', "a:b/c?d"),
    ("a'b", "a'b"),
    ("0", "0"),
    ("-", "-"),
    ("--", "--"),
    ('"a,b"', "a,b"),
    ("a)(+_.", "a)(+_."),
    ('"a\\"b"', 'a"b'),
)

CHARSETS = Probe(
    name="form-charsets",
    files={"handler.py": handler("echo")},
    settled=True,
    steps=(
        *_forms("field", _CHARSETS.split(), f'{_DATA}"d"\r\n{_TEXT}; charset=%s'),
        *_forms("file", _FILE_CHARSETS, f"{_FILE}\r\n{_TEXT}; charset=%s"),
        *_forms("type", _FILE_TYPES, f"{_FILE}\r\nContent-Type: %s"),
        *_whole("form", (f"{MULTIPART}; charset={charset}" for charset in _FORM_CHARSETS)),
        *_whole("boundary", _BOUNDARIES),
        *(
            _form(f"quoted: {written}", f'{_DATA}"d"\r\n\r\nhi', content_type=f"{MULTIPART[:30]}{written}", boundary=b)
            for written, b in _QUOTED
        ),
    ),
)

_NAMES = (
    "input:0", "a,b", "a=b", "a:b", "files[]", "a[0][b]", "a.b", "a/b", "a'b", "a\\\\b", 'a\\"b', "a%22b", "a+b",
    "a\tb", " a ", "\u00e9", "\u4e2d", "\U0001f600", "a;b;c", "<a>", "a&b", "__proto__", "body", "data ", "A",
    "content-type", "a%C3%A9", "name", "filename", 'a"b', "=", ":", "a==b", "(x)", "[]", "0",
)  # fmt: skip
_BARE_NAMES = ("data", "a.b", "a:b", "a=b", "a b", "\u00e9")
_FILENAMES = (
    'filename="a b.txt"', 'filename="a;b.txt"', 'filename="a\\"b.txt"', "filename=a.txt", "filename=", "filename",
    'filename="C:\\\\x\\\\y.txt"', 'filename="../../x"', 'filename="\u00e9.png"', "filename*=utf-8''%C3%A9.txt",
    "filename*=UTF-8'en'x.txt",
    "filename=\"a.txt\"; filename*=utf-8''b.txt", "filename*=utf-8''b.txt; filename=\"a.txt\"", 'FILENAME="x"',
    'filename ="x"', 'filename= "x"', 'filename="x";', 'filename="a=b,c:d"', "filename='x'", 'filename="a%22b"',
    'filename="x"; size=2', 'filename="x"; creation-date="Wed, 12 Feb 1997"', 'xfilename="x"', 'filename="a""b"',
    'filename="\u4e2d.txt"', "filename*=iso-8859-1''%E9.txt", "filename*=\"utf-8''x.txt\"",
)  # fmt: skip
_HEADS = (
    'content-disposition: form-data; name="d"',
    'CONTENT-DISPOSITION: FORM-DATA; NAME="d"',
    'Content-Disposition:form-data;name="d"',
    'Content-Disposition: form-data; name="d";',
    'Content-Disposition: form-data ; name="d"',
    'Content-Disposition: form-data; name = "d"',
    'Content-Disposition: form-data; name="d"; name="e"',
    'Content-Disposition: form-data; x="y"; name="d"',
    'Content-Disposition : form-data; name="d"',
    ' Content-Disposition: form-data; name="d"',
    'Content-Disposition: form-data;\r\n name="d"',
    f'{_DATA}"d"\r\n{_DATA}"e"',
    'Content-Disposition: file; name="d"; filename="x"',
    'Content-Disposition: inline; name="d"',
    'Content-Disposition: ; name="d"',
    'Content-Disposition: name="d"',
    "Content-Disposition",
    "Content-Type: text/plain",
    "X: y",
    "garbage",
    f'{_DATA}"d"\r\ngarbage line',
    f'{_DATA}"d"\r\nX-Empty:',
    *(f'{_DATA}"d"\r\nContent-Length: {length}' for length in ("2", "1", "5", "x", "0", "-1")),
    *(f"{_FILE}\r\nContent-Length: {length}\r\n{_TEXT}" for length in ("2", "7")),
    f"{_FILE}\r\n{_TEXT}\r\nContent-Type: application/json",
    f"{_FILE}\r\n{_TEXT}\r\nContent-Transfer-Encoding: 8bit",
    *(f"{_FILE}\r\nContent-Transfer-Encoding: {one}" for one in ("quoted-printable", "BINARY")),
    f'{_DATA}"d"\r\nContent-Transfer-Encoding: base64',
    f'{_DATA}"d"\r\nContent-ID: <a>\r\nMIME-Version: 1.0',
    f"{_FILE}\r\nContent-Type:",
    f"{_FILE}\r\nContent-Type",
    f"{_FILE}\r\ncontent-type: application/json",
)
_ALONE, _ENDED = f'{_LINE}\r\n{_DATA}"a"\r\n\r\n', f"\r\n{_LINE}--\r\n"
_OTHER = f'{_LINE}\r\n{_DATA}"b"\r\n\r\nB'
_AS_FILE = f'{_LINE}\r\n{_DATA}"a"; filename="x"\r\n\r\n'
_BODIES = {
    "blanks after delimiters": f'{_LINE}  \r\n{_DATA}"a"\r\n\r\nA\r\n{_LINE} \r\n{_DATA}"b"\r\n\r\nB\r\n{_LINE}-- \r\n',
    "after the last delimiter": f"{_ALONE}A{_ENDED}{_OTHER}{_ENDED}",
    "empty value": f"{_ALONE}{_ENDED}",
    "empty value, one line end": f"{_ALONE}{_LINE}--\r\n",
    "no empty line": f'{_LINE}\r\n{_DATA}"a"\r\n{_LINE}--\r\n',
    "two line ends before": f"\r\n\r\n{_ALONE}A{_ENDED}",
    "carriage returns alone": f'{_LINE}\r{_DATA}"a"\r\rA\r{_LINE}--\r',
    "blank before": f" {_ALONE}A{_ENDED}",
    "value ends in a carriage return": f"{_ALONE}A\r{_ENDED}",
    "value ends in a line feed": f"{_ALONE}A\n{_ENDED}",
    "value ends in both": f"{_ALONE}A\r\n{_ENDED}",
    "dashes in value": f"{_ALONE}--\r\n--\r\n----{_ENDED}",
    "delimiter after a line feed": f"{_ALONE}A\n{_OTHER}{_ENDED}",
    "almost a delimiter": f"{_ALONE}A\r\n{_LINE[:-1]}\r\nB{_ENDED}",
    "delimiter after a carriage return": f"{_ALONE}A\r{_LINE}\r\nB{_ENDED}",
    "file ends in a carriage return": f"{_AS_FILE}A\r{_ENDED}",
    "delimiter after a file's line feed": f"{_AS_FILE}A\n{_OTHER}{_ENDED}",
    "almost a delimiter in a file": f"{_AS_FILE}A\r\n{_LINE[:-1]}\r\nB{_ENDED}",
    "empty file": f"{_AS_FILE}{_ENDED}",
    "cut in a file": f"{_AS_FILE}ABC",
    "cut in a field": f"{_ALONE}ABC",
    "cut in the second": f'{_ALONE}ABC\r\n{_LINE}\r\n{_DATA}"b"; filename="x"\r\n\r\nABC',
}
_BYTES = bytes(range(256)) * 4

SECTIONS = Probe(
    name="form-sections",
    files={"handler.py": handler("echo")},
    settled=True,
    steps=(
        *_forms("name", _NAMES, f'{_DATA}"%s"'),
        *_forms("file's name", _NAMES[:12], f'{_DATA}"%s"; filename="x.txt"\r\n{_TEXT}'),
        *_forms("bare name", _BARE_NAMES, f"{_DATA}%s"),
        *_forms("filename", (*_FILENAMES, f'filename="{"a" * 3000}"'), f'{_DATA}"d"; %s\r\n{_TEXT}'),
        *(_form(f"head {number}", f"{head}\r\n\r\nhi") for number, head in enumerate(_HEADS)),
        *(Call(name, body, MULTIPART) for name, body in _BODIES.items()),
        Call("bytes in a file", _AS_FILE.encode() + _BYTES + _ENDED.encode(), MULTIPART),
        Call("bytes in a field", _ALONE.encode() + _BYTES + _ENDED.encode(), MULTIPART),
        _form("200 fields", *(f'{_DATA}"f{number}"\r\n\r\n{number}' for number in range(200))),
        _form("20 of one name", *(f'{_DATA}"f"\r\n\r\n{number}' for number in range(20))),
        _form("file, then field", f'{_DATA}"d"; filename="x"\r\n{_TEXT}\r\n\r\n1', f'{_DATA}"d"\r\n\r\n2'),
        _form("field, then file", f'{_DATA}"d"\r\n\r\n2', f'{_DATA}"g"\r\n\r\n2', f"{_FILE}\r\n{_TEXT}\r\n\r\n1"),
        _form("names that differ in case", f'{_DATA}"a"\r\n\r\n1', f'{_DATA}"A"\r\n\r\n2'),
        _form("data and body", f'{_DATA}"data"\r\n\r\n1', f'{_DATA}"body"; filename="b"\r\n{_TEXT}\r\n\r\n2'),
        _form("named like a header", f'{_DATA}"X-A"\r\n\r\n1', headers=("X-A", "mine")),
        _form("named url_path", f'{_DATA}"url_path"\r\n\r\n1'),
    ),
)

_PAIRS: tuple[str | bytes, ...] = (
    "a", "a=", "a=&b", "a=1&a=2", "a=1&", "a=1&&", "&", "=", "a==", "a=b=c=d", "a=%", "a=%2", "a=%2g", "a=%41%42",
    "%61=1", "a+=1", "a=+", "a=%2B", "a=%0d%0a", "a=1\n&b=2", "a=1\rb", "\na=1", "a=1\r\n\r\nb=2", "a=\n",
    "a;b=1", "a=1;b=2;", "a[]=1&a[]=2", "a[0]=x", "a.b=1", "input:0=1", "a=\u00e9", "\u00e9=1", b"a=\xff", b"\xff=1",
    "%FF=1", "%C3=1", "%F0%9F%98%80=1", "a=%F0%9F%98%80", "a=%00", "a=\0", "%00=1", "a=1#b", "a=1?b=2", "a= 1", " a=1",
    "a =1", "a=1 ", 'data={"a":1}', "data=%7B%22a%22%3A1%7D", "a%3Db=1", "a%26b=1", "a=%zz&b=1", "b=1&a=%zz",
    "b=1&%zz=1", "a=%u0041", "a=%C3%28", "a&b&c", "a&b&c=", "&&", "a=1&=2", "a=1&b=2&", "a=1&b", "x" * 2000 + "=1",
    "&".join(f"k{number}={number}" for number in range(300)), "body=1", "explain=True", "a=\t", "+=1", "%20=1",
    "%20x=1", " =1", "a=1&b=%E4%BD%A0", "a=1&b=\u4f60", "a=1\r", "a=1\r\n", b"\xe9%zz=1", "a=1\r&b=2",
)  # fmt: skip

PAIRS = Probe(
    name="form-pairs",
    files={"handler.py": handler("echo")},
    settled=True,
    steps=tuple(Call(f"pair {number}: {pair[:40]!r}", pair, URLENCODED) for number, pair in enumerate(_PAIRS)),
)


def _headed(name: str, *headers: tuple[str, str]) -> Call:
    return Call(name, "x", "text/plain", headers)


HEADS = Probe(
    name="request-heads",
    files={"handler.py": handler("echo")},
    settled=True,
    steps=(
        _headed("much", ("X-L", "a" * 7900)),
        _headed("too much", ("X-L", "a" * 8150)),
        _headed("far too much", *((f"X-{number}", "a" * 100) for number in range(200))),
        _headed("tabs", ("X-Sp", "  a  b\t "), ("X-Tab", "\ta\t")),
        _headed("blanks alone", ("X-F", " \t ")),
        _headed("odd names", ("X_Under", "1"), ("x.dot", "2"), ("x!#$%&'*+-^`|~(){}<>@[]?/\\\"", "3")),
        *(_headed(f"name {name!r}", (name, "1")) for name in ("X-\xe9", "X Y", "X,", "X;", "X=", "X\0", "X\t", "")),
        *(
            Call(f"type {kind!r}", '{"data": 1}', kind)
            for kind in ("application/json ; charset=utf-8", "application/json\t;x", "text/plain ;x", "\ttext/x\t", ";")
        ),
        Call("pairs with a blank after the type", "a=1", f"{URLENCODED} ; charset=utf-8"),
    ),
)

PROBES = (CHARSETS, SECTIONS, PAIRS, HEADS)
