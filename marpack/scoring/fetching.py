"""Files that rows name by address: http and https, bounded in size and time, and never of a private network by default.

Each IP address is checked when a connection to it is made, so that a name cannot change its meaning between the check
and the connection. Proxies of the environment are not used, because they would connect in place of this process.
"""

import ipaddress
import math

from marpack.archive.addresses import is_http, public_address
from marpack.archive.http import HttpClient, HttpError, WaitBudget, split_credentials
from marpack.errors import UsageError
from marpack.torchserve.http import TooLargeError

_SECONDS = 30.0  # that one address may take
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address at the end
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # of one's own network (RFC 8215)


class UrlFetcher:
    """Fetches addresses over kept connections; threads may share one."""

    def __init__(self, *, allow_private: bool, max_bytes: int, seconds: float = _SECONDS) -> None:
        """Take whether private addresses are allowed, the bytes of a response, and the time that it may take."""
        self._client = HttpClient(proxies=False, is_allowed=None if allow_private else is_public)
        self._max_bytes = max_bytes
        self._seconds = seconds

    def fetch(self, url: str) -> bytes:
        """Return the bytes at an address; it may redirect five times, never from https to http.

        Raises UsageError for an address that cannot be fetched, TooLargeError for a response that is too large.
        """
        try:
            if not is_http(url):
                raise HttpError("only http:// and https:// addresses are fetched", code="invalid-address")
            if split_credentials(url)[1]:
                raise HttpError("an address with a user or password is not fetched", code="invalid-address")
            with self._client.get(url, budget=WaitBudget(self._seconds, slowest=math.inf)) as response:
                if not 200 <= response.status < 300:
                    raise HttpError(f"the server responds {response.status} {response.reason}")
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise HttpError("the server sends compressed bytes, which were not requested")
                if response.size is not None and response.size > self._max_bytes:
                    raise TooLargeError(response.size, self._max_bytes)
                data = response.read_up_to(self._max_bytes + 1)
        except HttpError as error:
            is_private = error.code == "forbidden-address"
            hint = "pass --allow-private to fetch from your own network" if is_private else None
            raise UsageError(error.what, where=public_address(url), hint=hint, code=error.code) from None
        if len(data) > self._max_bytes:
            raise TooLargeError(len(data), self._max_bytes)
        return data


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet, as well as the IPv4 address that it may embed."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if not ip.is_global or ip.is_multicast or ip in _LOCAL_NAT64:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return True
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64:
        inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
    return all(is_public(str(each)) for each in inner if each is not None)
