"""Statuses, phrases, headers and content types that a handler sets (contract §5)."""

from conformance.probe import asked, handler

_STATUSES = (0, 1, 99, 101, 102, 199, 200, 201, 202, 204, 205, 206, 299, 300, 301, 304, 400, 404, 413, 418, 500, 503)
_STATUSES += (507, 600, 999, 1000, 20000)

_SET = {
    "phrase": "context.set_response_status(201, 'Fine so far')",
    "phrase-empty": "context.set_response_status(404, '')",
    "phrase-none": "context.set_response_status(404, None)",
    "status-none": "context.set_response_status(None, None)",
    "status-true": "context.set_response_status(True, 'one')",
    "status-alone": "context.set_response_status(418)",
    "status-keywords": "context.set_response_status(code=202, phrase='p', idx=0)",
    "status-twice": "context.set_response_status(404, 'a'); context.set_response_status(201)",
    "status-all": "context.set_all_response_status(202, 'all')",
    "status-other-row": "context.set_response_status(201, 'a', 5)",
    "type": "context.set_response_content_type(0, 'text/x; a=b')",
    "type-empty": "context.set_response_content_type(0, '')",
    "type-as-header": "context.set_response_header(0, 'content-type', 'a/b')",
    "type-as-header-cased": "context.set_response_header(0, 'Content-Type', 'a/b')",
    "type-of-json": "context.set_response_content_type(0, 'application/json'); answer = {'a': 1}",
    "header": "context.set_response_header(0, 'X-A', 'one; two=\"3\"')",
    "header-empty": "context.set_response_header(0, 'x-e', '')",
    "header-blanks": "context.set_response_header(0, 'x-b', '  a  ')",
    "header-twice": "context.set_response_header(0, 'X-A', '1'); context.set_response_header(0, 'X-A', '2')",
    "header-cases": "for name in ('X-A', 'x-a', 'X-a'): context.set_response_header(0, name, name)",
    "header-latin": "context.set_response_header(0, 'x-l', 'caf\\u00e9')",
    "header-euro": "context.set_response_header(0, 'x-l', '\\u20ac1')",
    "header-other-row": "context.set_response_header(5, 'a', 'b')",
    "headers-many": "for i in range(40): context.set_response_header(0, f'h{i}', str(i))",
    "headers-of-the-server": (
        "for name in ('Pragma', 'Cache-Control', 'EXPIRES', 'x-request-id', 'Content-Length', 'Connection'):"
        " context.set_response_header(0, name, '9')"
    ),
    "headers-server-date": "context.set_response_header(0, 'Server', 's'); context.set_response_header(0, 'Date', 'd')",
    "read-back": (
        "context.set_response_status(202, 'p'); context.set_response_header(0, 'a', 'b');"
        "context.set_response_content_type(0, 'text/plain');"
        "answer = repr((context.get_response_status(0), context.get_response_headers(0),"
        " context.get_response_content_type(0)))"
    ),
    "before-anything-is-set": (
        "answer = repr((context.get_response_status(0), context.get_response_headers(0),"
        " context.get_response_content_type(0)))"
    ),
}

_BODIES = {
    f"status-{status}": f"answer = 'body'; context.set_response_status({status}, 'My Phrase')" for status in _STATUSES
}
_BODIES |= {name: f"answer = 'body'\n{source}" for name, source in _SET.items()}

PROBES = (asked("responses", handler("evaluate"), _BODIES),)
