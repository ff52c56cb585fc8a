"""Inputs that lie elsewhere: https by the standard library, every other kind of address through fsspec."""

import http.client
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from marpack.archive.remote import public_address
from marpack.errors import MissingExtraError, UsageError
from marpack.version import __version__

_TIMEOUT = 30  # seconds without a byte
_MOST = 1 << 30  # bytes of one input


def fetch(address: str) -> bytes:
    """Return the bytes at an address; raises UsageError if there are none to be had."""
    check_address(address)
    return _over_http(address) if _is_http(address) else _through_fsspec(address)


def check_address(address: str) -> None:
    """Raise UsageError for a kind of address that nothing here can read; nothing is asked of anyone."""
    if _is_http(address):
        return
    import fsspec  # noqa: PLC0415 - only such inputs need it

    scheme = address.partition("://")[0]
    need = f"reading {scheme}:// addresses"
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        if scheme in {"s3", "s3a"}:
            raise MissingExtraError("s3fs", "s3", need) from None
        hint = "pip install it, or download the inputs"
        raise UsageError(f"{need} takes another package: {error}", where=public_address(address), hint=hint) from error
    except ValueError as error:
        raise UsageError("nothing here can read such an address", where=public_address(address)) from error


def _is_http(address: str) -> bool:
    return urlsplit(address).scheme in {"http", "https"}


def _over_http(address: str) -> bytes:
    where = public_address(address)
    question = Request(address, headers={"User-Agent": f"marpack/{__version__}"})  # noqa: S310 - http or https
    try:
        with urlopen(question, timeout=_TIMEOUT) as answer:  # noqa: S310 - as above
            expected: int | None = answer.length
            data: bytes = answer.read(_MOST + 1)
    except HTTPError as error:
        raise UsageError(f"the server answers {error.code} {error.reason}", where=where) from None
    except URLError as error:
        raise UsageError(f"the server cannot be reached: {error.reason}", where=where) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UsageError(f"the input cannot be fetched: {str(error) or type(error).__name__}", where=where) from None
    if len(data) > _MOST:
        raise UsageError("the input is larger than a gibibyte", where=where, hint="download it, and name the file")
    if expected is not None and len(data) < expected:
        raise UsageError(f"the connection broke off after {len(data):,} of {expected:,} bytes", where=where)
    return data


def _through_fsspec(address: str) -> bytes:
    import fsspec  # noqa: PLC0415 - as above

    try:
        with fsspec.open(address, "rb") as file:
            data: bytes = file.read()
    except Exception as error:  # every file system has errors of its own
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"the input cannot be fetched: {first}", where=public_address(address)) from error
    return data
