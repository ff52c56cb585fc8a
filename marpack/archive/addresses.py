"""Addresses of remote files, as people write them; nothing here connects to them."""

import ipaddress
import re
from urllib.parse import urlsplit

from marpack.errors import UsageError, shortened

_SHA256 = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_REGISTRY = "oci://"
_MAX_SHOWN = 300  # characters
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address at the end
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # of one's own network (RFC 8215)


def is_http(address: str) -> bool:
    """Return whether an address is one of http or https."""
    return address.lower().startswith(("http://", "https://"))


def is_loopback(host: str | None) -> bool:
    """Return whether a host's name, without its port, is this machine's own."""
    if host is None or host == "localhost":
        return host is not None
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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


def is_exposed(address: str) -> bool:
    """Return whether others on the network could change the response: plain http, from another machine."""
    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname)


def public_address(address: str) -> str:
    """Return an address without its possible secrets (user, password and query) and without a digest."""
    scheme, _, rest = address.partition("#")[0].partition("://")
    host, slash, path = rest.partition("/")
    shown, question, _ = f"{host.rpartition('@')[2]}{slash}{path}".partition("?")
    return f"{scheme}://{shown}{question and '?…'}"


def parse_address(source: str) -> tuple[str, str | None]:
    """Return a SOURCE's address and its digest, `#sha256=…`; raise UsageError for another fragment or a registry."""
    if source[: len(_REGISTRY)].lower() == _REGISTRY:
        where = public_address(source)[:_MAX_SHOWN]
        hint = f"Fetch the archive with: oras pull {where[len(_REGISTRY) :]}"
        raise UsageError("marpack does not read OCI registries", where=where, hint=hint, code="oci-registry")
    address, mark, fragment = source.partition("#")
    name, _, sha256 = fragment.partition("=")
    if not mark:
        return address, None
    if name != "sha256" or not _SHA256.fullmatch(sha256):
        what = f"'#{shortened(fragment)}' is not a digest"
        raise UsageError(what, where=public_address(address), hint="Write #sha256= and 64 hexadecimal digits.")
    return address, sha256.lower()


def with_digest(source: str | None, digest: str) -> str:
    """Return a SOURCE with the digest of its file, `sha256:<hex>`; raise UsageError."""
    where = f"--digest {shortened(digest)}".strip()
    name, _, sha256 = digest.partition(":")
    if name != "sha256" or not _SHA256.fullmatch(sha256):
        raise UsageError("not a digest", where=where, hint="Write sha256: and 64 hexadecimal digits.")
    if source is None or "://" not in source:
        hint = "Leave out --digest, or give an address."
        raise UsageError("--digest is for a file at an http, https or s3 address", where=where, hint=hint)
    address, other = parse_address(source)
    if other not in (None, sha256.lower()):
        raise UsageError(f"the address has another digest: {other}", where=where, hint="Remove the wrong one.")
    return f"{address}#sha256={sha256.lower()}"
