"""Requests → the rows, headers and ids that a handler sees (contract §4)."""

import json
import logging
from typing import Any

from marpack.runtime.context import RequestProcessor
from marpack.runtime.messages import Part, Request

logger = logging.getLogger(__name__)

Row = dict[str, Any]  # Any: bytearray, str, or whatever JSON decodes to


def decode_part(part: Part, *, decode: bool = True) -> Any:
    """Return a part's value as the handler gets it: decoded JSON, `str`, else `bytearray`, never `bytes`.

    Args:
        part: The parameter; its content type is without parameters here.
        decode: False where TS_DECODE_INPUT_REQUEST is set to anything but "true".
    """
    raw = bytearray(part.value)
    if not decode:
        return raw
    try:
        if part.content_type == "application/json":
            return json.loads(raw.decode("utf-8"))
        if part.content_type.startswith("text"):
            return raw.decode("utf-8")
    except (ValueError, RecursionError):
        logger.warning("the input is not valid %s; it stays bytes", part.content_type, exc_info=True)
    return raw


def row_of(request: Request, *, decode: bool = True) -> Row:
    """Return the dict of one request; of parts with one name the last wins."""
    return {part.name: decode_part(part, decode=decode) for part in request.parts}


def processor_of(request: Request) -> RequestProcessor:
    """Return a request's headers: one `{field: {"content-type": …}}` per part, its headers, the server's."""
    headers: dict[str, Any] = {part.name: {"content-type": part.content_type} for part in request.parts}
    headers.update(request.headers)
    headers["url_path"] = request.url_path
    headers["explain"] = "True" if request.explain else "False"  # a client cannot set it
    return RequestProcessor(headers)
