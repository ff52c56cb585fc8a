"""Addresses of remote files and of archives in registries, as people write them; nothing here connects to them."""

import ipaddress
import re
from typing import Self
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.protocol import REGISTRY, is_in_registry
from marpack.errors import UsageError, shortened

_SHA256 = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_FORM = "Write oci://HOST/REPOSITORY:TAG, as in oci://registry.example.com/team/digits:1.0"
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_FORBIDDEN = re.compile(r"[^!-~]|[\\?#%]")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_PORT = 65535
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address at the end
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # of one's own network (RFC 8215)
_MAX_NAME = 255  # characters of host and repository together, the limit of many registries
_HUB, _HUB_API = "docker.io", "registry-1.docker.io"
_HUB_CREDENTIALS = "https://index.docker.io/v1/"  # the key under which `docker login` stores Docker Hub's credentials


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


def split_digest(source: str) -> tuple[str, str | None]:
    """Split `#sha256=…` off an address; raise UsageError for any other fragment."""
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
    if source is None or "://" not in source or is_in_registry(source):
        hint = "Write the digest of an archive in a registry into its address: oci://HOST/REPOSITORY@sha256:…"
        raise UsageError("--digest is for a file at an http, https or s3 address", where=where, hint=hint)
    address, other = split_digest(source)
    if other not in (None, sha256.lower()):
        raise UsageError(f"the address has another digest: {other}", where=where, hint="Remove the wrong one.")
    return f"{address}#sha256={sha256.lower()}"


class Reference(Struct, frozen=True, kw_only=True):
    """An archive in a registry, by tag, by digest, or by both, of which the digest counts (OCI distribution 1.1)."""

    host: str  # with its port, if there is one
    repository: str
    tag: str | None = None
    digest: str | None = None  # "sha256:<hex>"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address. Raise UsageError with its first mistake."""
        rest = text[len(REGISTRY) :]
        host, _, path = rest.partition("/")
        if is_in_registry(text) and "@" in host and "/" in rest and "sha256:" not in host:
            hint = "Remove the user, and log in: docker login HOST"
            raise UsageError("the address contains a user", where=text.rpartition("@")[2], hint=hint)
        named, at, digest = path.partition("@")
        repository, colon, tag = named.partition(":")
        forbidden, parts = _FORBIDDEN.search(rest), _HOST.fullmatch(host)
        length = len(host) + len(repository)
        name_form = "lower-case letters, digits and '/', with '.', '_' and '-' between"
        mistakes = (
            (not is_in_registry(text), f"a registry's address begins with {REGISTRY}"),
            (forbidden, f"the address contains {forbidden and forbidden[0]!r}, which is not allowed"),
            (not host, "the address has no host"),
            (not parts or (parts["port"] and not 0 < int(parts["port"]) <= _MAX_PORT), f"{host!r} is not a host"),
            (not repository, "the address has no repository"),
            (not _REPOSITORY.fullmatch(repository), f"{repository!r} is not a repository: {name_form}"),
            (length >= _MAX_NAME, f"host and repository have {length} characters; the maximum is {_MAX_NAME - 1}"),
            (colon and not _TAG.fullmatch(tag), f"{tag!r} is not a tag: letters, digits, '.', '_', '-', at most 128"),
            (at and not _DIGEST.fullmatch(digest), f"{digest!r} is not a digest: sha256: and 64 lower-case hex digits"),
            (not colon and not at, f"the address has neither a tag nor a digest; add one, as in {text}:1.0"),
        )
        for is_wrong, what in mistakes:
            if is_wrong:
                raise UsageError(what, where=text[:300], hint=_FORM)
        return cls(host=host, repository=repository, tag=tag or None, digest=digest or None)

    def __str__(self) -> str:
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{REGISTRY}{self.host}/{self.repository}{tag}{digest}"

    @property
    def credentials_key(self) -> str:
        """The key of the registry's credentials in the configuration of docker and oras."""
        return _HUB_CREDENTIALS if self.host == _HUB else self.host

    def by_digest(self, digest: str) -> Self:
        """Return the reference that no later push changes."""
        return replace(self, digest=digest)

    def base(self, *, plain_http: bool = False) -> str:
        """Return the URL of the repository: https, except on this machine or where plain http is allowed."""
        scheme = "http" if plain_http or is_loopback(urlsplit(f"//{self.host}").hostname) else "https"
        return f"{scheme}://{_HUB_API if self.host == _HUB else self.host}/v2/{self.repository}"
