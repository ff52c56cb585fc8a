"""Scenes: what is asked of a server itself, not of its handlers: routes, methods, heads, bounds, settings."""

from conformance.exchanges import Exchange, Scene

SHOW = """
import time


def handle(data, context):
    return None if data is None else [answer(row, context, index) for index, row in enumerate(data)]


def answer(row, context, i):
    body = row.get("body", b"")
    if bytes(body if isinstance(body, (bytes, bytearray)) else b"").startswith(b"do "):
        exec(bytes(body[3:]), {"context": context, "i": i, "time": time})
        return "done"
    headers = sorted((name, repr(value)) for name, value in context.get_all_request_header(i).items())
    return {
        "row": {name: shown(value) for name, value in row.items()},
        "headers": [pair for pair in headers if pair[0].lower() != "host"],
        "version": context.manifest["model"]["modelVersion"],
        "of": len(context.request_ids),
        "at": i,
    }


def shown(value):
    return f"{type(value).__name__} of {len(value)}" if len(value) > 100 else repr(value)
"""
_LIMIT = 2000  # bytes of a request's body in the scene of bounds
_SLOW = b"do time.sleep(0.4)"


def _ask(method: str, target: str, body: bytes | None = None, *headers: str, version: str = "HTTP/1.1") -> bytes:
    """Return a request's bytes, with its length if it has a body."""
    lines = [f"{method} {target} {version}", "Host: there", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def _of(method: str, *targets: str, document: bool = False, difference: str | None = None) -> tuple[Exchange, ...]:
    """Return exchanges that consist of a request line."""
    return tuple(
        Exchange(
            name=f"{method} {target}",
            sent=_ask(method, target, b"" if method in {"POST", "PUT", "PATCH"} else None),
            document=document,
            difference=difference,
        )
        for target in targets
    )


def _sent(name: str, sent: bytes, **more: object) -> Exchange:
    return Exchange(name=name, sent=sent, **more)  # type: ignore[arg-type]


def _chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


_SHOW = "/predictions/show"

_ROUTES = (
    *_of("GET", "/ping", "/ping/", "/ping/anything", "/ping?x=1", "/ping/a/b", "//ping", "/Ping"),
    *_of("HEAD", "/ping", "/nothing", _SHOW),
    *_of("GET", "/", "/nothing", "/predictions", "/predictions/", "/metrics", "/models", "/token", "/favicon.ico"),
    *_of("POST", "/", "/nothing", "/ping"),
    *_of("DELETE", "/", "/ping"),
    *_of("OPTIONS", "/", "/api-description", _SHOW, f"{_SHOW}/", "/explanations/show", document=True),
    *_of("OPTIONS", f"{_SHOW}/1.0", f"{_SHOW}/1.0/x", "/v1/models/show:predict", "/models/show/invoke", document=True),
    *_of("OPTIONS", "/predictions/absent", "/ping", "/nothing", "/invocations", "/predictions"),
    *_of("GET", "/api-description", "/api-description/", "/api-description/x", "/?x=1", document=True),
    *_of("POST", "/api-description", document=True),
    *_of("GET", "//predictions/show", "/predictions//show", f"{_SHOW}//", f"{_SHOW}/", "http://there/predictions/show"),
    *_of("GET", f"{_SHOW}/1.0", f"{_SHOW}/1.0/", f"{_SHOW}/2.0", f"{_SHOW}/1", f"{_SHOW}/9.9", f"{_SHOW}/1.0?x=1"),
    *_of("GET", f"{_SHOW}/1.0/a", f"{_SHOW}/1.0/a/b/", f"{_SHOW}/1.0//a", f"{_SHOW}/1.0/a//b", f"{_SHOW}//1.0"),
    *_of("GET", "/predictions/sh%6Fw", "/predictions/sh%6fw", "/%70redictions/show", "/predictions/show%2F1.0"),
    *_of("GET", f"{_SHOW}/1.0/a%20b%2Fc", f"{_SHOW}/1.0/a+b", f"{_SHOW}/1.0/%C3%BC", f"{_SHOW}/1.0/%ff"),
    *_of("GET", f"{_SHOW}/1%2E0", "/predictions/%zz", "/predictions/%4", "/predictions/%", "/predictions/%00"),
    *_of("GET", "/predictions/absent", "/predictions/absent/1.0", "/predictions/absent/", "/predictions/%22%3Cb%3E"),
    *_of("GET", f"{_SHOW}?x=1", f"{_SHOW}?", f"{_SHOW}?%zz", f"{_SHOW}#part", f"{_SHOW};a=b", "/predictions/Show"),
    *_of("POST", _SHOW, f"{_SHOW}/2.0"),
    *(one for method in ("PUT", "PATCH", "DELETE", "TRACE", "PROPFIND") for one in _of(method, _SHOW)),
    *(one for method in ("BREW", "post") for one in _of(method, _SHOW, difference="UNKNOWN_METHODS")),
    *_of("GET", "/explanations", "/explanations/show", "/explanations/show/2.0", "/explanations/show/2.0/a/b"),
    *_of("GET", "/explanations/absent", "/explanations/show/9", "/explanations/show?x=1"),
    *_of("GET", "/invocations", "/invocations?model_name=show", "/invocations?model_name=absent", "/invocations/"),
    *_of("OPTIONS", "/invocations?model_name=show", document=True),
    *_of("GET", "/invocations?model_name=", "/invocations?Model_Name=show", "/invocations/x?model_name=show"),
    *_of("GET", "/invocations?model_name=show&a=1&a=2&b=&c", "/invocations?model_name=show&a=%zz"),
    *_of("GET", "/invocations?model_name=show&a=b+c&d=%C3%BC&e=1;f=2", "/invocations?model_name=show&body=mine"),
    *_of("GET", "/models/show", "/models/show/invoke", "/models/show/invoke/", "/models/show/other"),
    *_of("GET", "/models/show/invoke?a=1", "/models/show/1.0/invoke", "/models/absent/invoke", "/models/show/invoke/x"),
    *_of("GET", "/show/predict", "/show/predict?a=1", "/show/1.0/predict", "/show/2.0/predict", "/show/9/predict"),
    *_of("GET", "/absent/predict", "/show/predict/", "/show/predict/x", "/show/1.0/predict/x", "/show"),
    *_of("POST", "/v1/models/show:predict", "/v1/models/show:explain", "/v1/models/show:other"),
    *_of("POST", "/v1/models/absent:predict", "/v1/models/show:predict?a=1", "/v1/models/show/1.0:predict"),
    *_of("POST", "/v1/models/show:predict/x", "/v1/models/:predict", "/v1/models/show"),
    *_of("GET", "/v1/models/show:predict", "/v1/models/show", "/v1/models", "/v1", "/v1/models/absent"),
    *_of("POST", "/v2/models/show/infer", "/v2/models/show/explain", "/v2/models/show/other"),
    *_of("POST", "/v2/models/absent/infer", "/v2/models/show/versions/1.0/infer", "/v2/models/show/infer/x"),
    *_of("POST", "/v2/models/show"),
    *_of("GET", "/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/health", "/v2/models/show"),
    *_of("GET", "/v2/models/show/ready", "/v2/models/show/versions/1.0", "/v2/models/show/versions/1.0/ready"),
)
_JSON = "Content-Type: application/json"
_FORM = "Content-Type: application/x-www-form-urlencoded"
_REQUESTS = (
    _sent("json", _ask("POST", _SHOW, b'{"a": 1}', _JSON)),
    _sent("text", _ask("POST", _SHOW, b"words", "Content-Type: text/plain")),
    _sent("untyped", _ask("POST", _SHOW, b"\x00\xff")),
    _sent("gzip", _ask("POST", _SHOW, b"\x1f\x8b\x08\x00", "Content-Encoding: gzip", _JSON)),
    _sent("header spelling", _ask("POST", _SHOW, b"x", "X-MiXed: a", "x-mixed: b", "X-Twice: 1", "X-Twice: 2")),
    _sent("header values", _ask("POST", _SHOW, b"x", "X-Blank:", "X-Wide:   a  b  ", "X-Latin: caf\xe9", "X-None:x")),
    _sent("own request id", _ask("POST", _SHOW, b"x", "X-Request-Id: mine")),
    _sent("claims", _ask("POST", _SHOW, b"x", "explain: True", "url_path: mine", "Explain: yes")),
    _sent("body of a GET", _ask("GET", _SHOW, b"words", "Content-Type: text/plain")),
    _sent("body of a DELETE", _ask("DELETE", _SHOW, b"words", "Content-Type: text/plain")),
    _sent("no length", _ask("POST", _SHOW)),
    _sent("length 0", _ask("POST", _SHOW, b"", _JSON)),
    _sent("chunks", _ask("POST", _SHOW, None, "Transfer-Encoding: chunked", _JSON) + _chunked(b'{"a"', b": 2}")),
    _sent(
        "chunks with a trailer",
        _ask("POST", _SHOW, None, "Transfer-Encoding: chunked", _JSON) + _chunked(b"[1]", end=b"0\r\nX-End: 1\r\n\r\n"),
    ),
    _sent("urlencoded", _ask("POST", _SHOW, b"a=1&b=x%20y&a=2", _FORM)),
    _sent("model in a field", _ask("POST", "/invocations", b"model_name=show&a=1", _FORM)),
    _sent("model in field and query", _ask("POST", "/invocations?model_name=absent", b"model_name=show", _FORM)),
    _sent("query and body", _ask("POST", "/invocations?model_name=show&a=1", b"[1]", _JSON)),
    _sent("query named body", _ask("POST", "/invocations?model_name=show&body=q", b"[1]", _JSON)),
    _sent("query and field", _ask("POST", "/models/show/invoke?a=q&b=q", b"a=f&c=f", _FORM)),
    _sent("query and json, legacy", _ask("POST", "/show/predict?a=1", b"[1]", _JSON)),
    _sent("target is no header", _ask("POST", "/invocations", b"x", "model_name: show", "X-Amzn-Model: show")),
    _sent("sagemaker", _ask("POST", "/invocations?model_name=show", b"[1]", _JSON, "Accept: application/json")),
    _sent("expects 100", _ask("POST", _SHOW, b"", "Expect: 100-continue").replace(b": 0", b": 3"), more=b"abc"),
    _sent("expects 100, sends at once", _ask("POST", _SHOW, b"abc", "Expect: 100-continue")),
    _sent("expects other", _ask("POST", _SHOW, b"abc", "Expect: other"), difference="REFUSED_UNREAD"),
    _sent("closes", _ask("POST", _SHOW, b"x", "Connection: close"), difference="CLOSE_HONOURED"),
    _sent("HTTP/1.0", _ask("POST", _SHOW, b"x", version="HTTP/1.0"), difference="CLOSE_HONOURED"),
    _sent("HTTP/1.0, kept", _ask("POST", _SHOW, b"x", "Connection: keep-alive", version="HTTP/1.0")),
)
_SEND = b"do from ts.handler_utils.utils import send_intermediate_predict_response as s; "
_PIECES = _SEND + b"[s([p], context.request_ids, 'more', 200, context) for p in ('a', 'bc')]"


def _does(source: str) -> bytes:
    return _ask("POST", _SHOW, f"do {source}".encode())


_ANSWERS = (
    *(
        _sent(f"status {status}", _does(f"context.set_response_status({status}, {phrase!r}, i)"))
        for status, phrase in ((404, "Mine"), (201, "Made"), (204, ""), (304, ""))
    ),
    _sent("type", _does("context.set_response_content_type(i, 'image/png')")),
    _sent(
        "spelling", _does("context.set_response_header(i, 'X-MiNe', 'a'); context.set_response_header(i, 'etag', 'b')")
    ),
    _sent("latin", _does("context.set_response_header(i, 'X-L', 'caf\\xe9')")),
    _sent("own cache", _does("context.set_response_header(i, 'Cache-Control', 'max-age=5')")),
    _sent(
        "own date", _does("context.set_response_header(i, 'Date', 'd'); context.set_response_header(i, 'Server', 's')")
    ),
    _sent("own connection", _does("context.set_response_header(i, 'Connection', 'close')")),
    _sent("own length", _does("context.set_response_header(i, 'Content-Length', '1')")),
    _sent("failure", _does("1 / 0")),
    _sent("death", _does("import os; os._exit(1)")),
    _sent("stream", _ask("POST", _SHOW, _PIECES)),
    _sent("stream, HTTP/1.0", _ask("POST", _SHOW, _PIECES, version="HTTP/1.0"), difference="CLOSE_HONOURED"),
    _sent("failure for a HEAD", _ask("HEAD", _SHOW, b"do 1 / 0")),
)


def _raw(name: str, *lines: str, body: bytes = b"", difference: str | None = None) -> Exchange:
    return Exchange(name=name, sent="\r\n".join([*lines, "", ""]).encode("latin-1") + body, difference=difference)


_POST = f"POST {_SHOW} HTTP/1.1"
_MALFORMED = (
    _raw("no version", f"GET {_SHOW}", "Host: x"),
    _raw("word alone", "GET", "Host: x"),
    _raw("four words", "GET / HTTP/1.1 x", "Host: x"),
    _raw("version of letters", "GET /ping HTTP/x.y", "Host: x"),
    _raw("lower-case protocol", "GET /ping http/1.1", "Host: x", difference="STRICT_HTTP"),
    _raw("HTTP/2.0", "GET /ping HTTP/2.0", "Host: x", difference="STRICT_HTTP"),
    _raw("HTTP/1.2", "GET /ping HTTP/1.2", "Host: x", difference="STRICT_HTTP"),
    _raw("no host", "GET /ping HTTP/1.1", difference="STRICT_HTTP"),
    _raw("two hosts", "GET /ping HTTP/1.1", "Host: a", "Host: b", difference="STRICT_HTTP"),
    _raw("header without a colon", "GET /ping HTTP/1.1", "Host: x", "nonsense"),
    _raw("blank before the colon", "GET /ping HTTP/1.1", "Host: x", "X-A : b"),
    _raw("header without a name", "GET /ping HTTP/1.1", "Host: x", ": b"),
    _raw("folded header", "GET /ping HTTP/1.1", "Host: x", "X-A: b", " c", difference="STRICT_HTTP"),
    _raw("odd header name", "GET /ping HTTP/1.1", "Host: x", "a(b): c", difference="STRICT_HTTP"),
    _raw("NUL in a value", "GET /ping HTTP/1.1", "Host: x", "X-A: b\0c"),
    _raw("length of letters", _POST, "Host: x", "Content-Length: abc"),
    _raw("length with a sign", _POST, "Host: x", "Content-Length: +3", body=b"abc", difference="STRICT_HTTP"),
    _raw("two lengths", _POST, "Host: x", "Content-Length: 3", "Content-Length: 4", body=b"abcd"),
    _raw("one length twice", _POST, "Host: x", "Content-Length: 3", "Content-Length: 3", body=b"abc"),
    _raw("length list", _POST, "Host: x", "Content-Length: 3, 3", body=b"abc"),
    _raw(
        *("length and chunks", _POST, "Host: x", "Content-Length: 3", "Transfer-Encoding: chunked"),
        body=_chunked(b"ab"),
        difference="STRICT_HTTP",
    ),
    _raw("bad chunk size", _POST, "Host: x", "Transfer-Encoding: chunked", body=b"zz\r\nab\r\n0\r\n\r\n"),
    _raw("chunk extension", _POST, "Host: x", "Transfer-Encoding: chunked", body=b"2;a=b\r\nab\r\n0\r\n\r\n"),
    _raw("unknown coding", _POST, "Host: x", "Transfer-Encoding: gzip", body=b"", difference="STRICT_HTTP"),
    _raw("line of 3000", f"GET /ping?{'x' * 3000} HTTP/1.1", "Host: x"),
    _raw("line of 5000", f"GET /ping?{'x' * 5000} HTTP/1.1", "Host: x"),
    _raw("headers of 7000", "GET /ping HTTP/1.1", "Host: x", f"X-A: {'x' * 7000}"),
    _raw("headers of 9000", "GET /ping HTTP/1.1", "Host: x", f"X-A: {'x' * 9000}"),
    _raw("empty lines first", "", "", "GET /ping HTTP/1.1", "Host: x"),
    _raw("connect", "CONNECT there:80 HTTP/1.1", "Host: x", difference="STRICT_HTTP"),
    _raw("asterisk", "OPTIONS * HTTP/1.1", "Host: x", difference="STRICT_HTTP"),
    _sent("bare line feeds", b"GET /ping HTTP/1.1\nHost: x\n\n", difference="STRICT_HTTP"),
    _raw("upgrade", "GET /ping HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket"),
)
_BIG = b"z" * (_LIMIT + 1)
_ORIGIN = "Origin: http://elsewhere"
_BOUNDS = (
    _sent("at the limit", _ask("POST", _SHOW, b"z" * _LIMIT)),
    _sent("announced", _ask("POST", _SHOW, _BIG)),
    _sent("chunked", _ask("POST", _SHOW, None, "Transfer-Encoding: chunked") + _chunked(_BIG)),
    _sent("two chunks", _ask("POST", _SHOW, None, "Transfer-Encoding: chunked") + _chunked(_BIG[:-9], _BIG[:10])),
    _sent(
        "announced, expects 100",
        _ask("POST", _SHOW, b"", "Expect: 100-continue").replace(b": 0", b": 2001"),
        difference="REFUSED_UNREAD",
    ),
    _sent("announced for nothing", _ask("POST", "/nothing", _BIG)),
    _sent("announced for ping", _ask("GET", "/ping", _BIG)),
    _sent("form", _ask("POST", _SHOW, b"a=" + _BIG, _FORM)),
    *_of("GET", "/invocations", "/ping", "/nothing"),
    *_of("GET", "/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models/show", "/v2/models/show/ready"),
    *_of("GET", "/v2/x", "/v2/health", "/v2/health/live/x"),
    *_of("GET", "/v2/models/show/versions/1.0/ready", "/v2/models/show/versions"),
    *_of("POST", "/v2/models/show/versions/1.0/infer", "/v2/models/show/infer", "/v2/a/b/c/versions"),
    *_of("OPTIONS", _SHOW, "/", document=True),
    _sent("foreign origin", _ask("POST", _SHOW, b"x", _ORIGIN)),
    _sent("no origin", _ask("POST", _SHOW, b"x")),
    _sent("preflight", _ask("OPTIONS", _SHOW, None, _ORIGIN, "Access-Control-Request-Method: POST"), document=True),
    _sent("own origin header", _does("context.set_response_header(i, 'Access-Control-Allow-Origin', 'mine')")),
    _sent("failure", _does("1 / 0")),
    _sent("malformed", b"nonsense\r\n\r\n"),
)
_QUEUE = (
    _sent("full queue", _ask("POST", _SHOW, b"x"), behind=_ask("POST", _SHOW, _SLOW), behind_count=2),
    _sent("full queue, version", _ask("POST", f"{_SHOW}/1.0", b"x"), behind=_ask("POST", _SHOW, _SLOW), behind_count=2),
    _sent("room", _ask("POST", _SHOW, b"x"), behind=_ask("POST", _SHOW, _SLOW), behind_count=1),
    _sent("too slow", _ask("POST", _SHOW, b"do time.sleep(9)")),
    _sent("after that", _ask("POST", _SHOW, b"x")),
)
_BATCH = (
    _sent("a full batch", _ask("POST", _SHOW, b"b"), behind=_ask("POST", _SHOW, b"a"), behind_count=2),
    _sent("a lone request", _ask("POST", _SHOW, b"b")),
    _sent("other versions apart", _ask("POST", f"{_SHOW}/2.0", b"b"), behind=_ask("POST", _SHOW, b"a"), behind_count=2),
)
_CORS = {
    "cors_allowed_origin": "http://page",
    "cors_allowed_methods": "GET, POST, PUT, OPTIONS",
    "cors_allowed_headers": "X-Custom-Header",
}
_ONE_AT_A_TIME = '{"show": {"1.0": {"minWorkers": 1, "maxWorkers": 1, "batchSize": 1, "responseTimeout": 1}}}'
_THREE = '"minWorkers": 1, "maxWorkers": 1, "batchSize": 3, "maxBatchDelay": 400'

SCENES = (
    Scene(
        name="server",
        models={"show 1.0": SHOW, "show 2.0": SHOW, "other 1.0": SHOW},
        exchanges=(*_ROUTES, *_REQUESTS, *_ANSWERS, *_MALFORMED),
    ),
    Scene(
        name="settings",
        models={"show 1.0": SHOW},
        settings={"max_request_size": str(_LIMIT), "ts_open_inference_protocol": "true", **_CORS},
        exchanges=_BOUNDS,
    ),
    Scene(
        name="queue",
        models={"show 1.0": SHOW},
        settings={"job_queue_size": "1", "models": _ONE_AT_A_TIME},
        exchanges=_QUEUE,
    ),
    Scene(
        name="batch",
        models={"show 1.0": SHOW, "show 2.0": SHOW},
        settings={"models": f'{{"show": {{"1.0": {{{_THREE}}}, "2.0": {{{_THREE}}}}}}}'},
        exchanges=_BATCH,
    ),
)
