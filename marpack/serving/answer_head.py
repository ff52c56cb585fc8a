"""The headers of an answer, as the server sends them."""

from multidict import CIMultiDict

from marpack.torchserve.messages import Response

_NO_CACHE = {
    "Pragma": "no-cache",
    "Cache-Control": "no-cache; no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 UTC",
}  # as the server sets them, on whatever passed a route


def head_of(
    response: Response, further: tuple[tuple[str, str], ...], request_id: str | None, *, closes: bool
) -> CIMultiDict[str]:
    """Return the headers of an answer.

    Args:
        response: The answer, whose own headers win over further ones.
        further: Beside the answer's own.
        request_id: Of the request; None: the answer did not pass a route, and has none of its headers.
        closes: Whether the connection ends with it.
    """
    headers = CIMultiDict(further)
    for name, value in response.headers:
        headers[name] = value
    if response.content_type is not None:
        headers["content-type"] = response.content_type
    if request_id is not None:
        headers["x-request-id"] = request_id
        headers.update(_NO_CACHE)
    headers["connection"] = "close" if closes else "keep-alive"
    return headers
