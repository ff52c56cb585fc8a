"""oci://HOST/REPOSITORY:TAG, as people write it, and the addresses it stands for (OCI distribution 1.1, "Pulling")."""

import re
from typing import NoReturn, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.http_opener import is_loopback
from marpack.archive.protocol import REGISTRY
from marpack.errors import UsageError

_FORM = "write oci://HOST/REPOSITORY:TAG, as in oci://registry.example.com/team/digits:1.0"
_HOST = re.compile(r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_PORT = 65535
_MAX_NAME = 255  # characters of host and repository together, which many registries hold to
_HUB, _HUB_API = "docker.io", "registry-1.docker.io"
_HUB_CREDENTIALS = "https://index.docker.io/v1/"  # what `docker login` keeps its own registry's under


class Reference(Struct, frozen=True, kw_only=True):
    """Where something is, or is to be, in a registry: by tag, by digest, or by a digest beside a tag, which wins."""

    host: str  # with its port, where one is given
    repository: str
    tag: str | None = None
    digest: str | None = None  # "sha256:<hex>"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what an address stands for. Raises UsageError that says what is wrong with it."""
        scheme, mark, rest = text.partition("://")
        if not mark or scheme.lower() != "oci":
            _refuse(text, f"a registry's address begins with {REGISTRY}")
        if found := next((char for char in rest if not char.isprintable() or char in " \\?#%"), None):
            _refuse(text, f"there is {found!r} in the address, which no part of it may hold")
        host, _, path = rest.partition("/")
        if "@" in host and "/" in rest and "sha256:" not in host:
            _refuse(text.rpartition("@")[2], "the address names a user", "log in instead: docker login, or oras login")
        name, at, digest = path.partition("@")
        repository, colon, tag = name.partition(":")
        _check_host(text, host)
        _check_name(text, host, repository)
        if colon and not _TAG.fullmatch(tag):
            _refuse(text, f"{tag!r} is no tag: letters, digits, '.', '_' and '-', 128 at the most")
        if at and not _DIGEST.fullmatch(digest):
            _refuse(text, f"{digest!r} is no digest: sha256: and 64 digits of lower-case hex")
        if not colon and not at:
            _refuse(text, "the address has neither a tag nor a digest", f"add one: {text}:1.0")
        return cls(host=host, repository=repository, tag=tag or None, digest=digest or None)

    def __str__(self) -> str:
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{REGISTRY}{self.host}/{self.repository}{tag}{digest}"

    @property
    def name(self) -> str:
        """What asks for it: its digest, or else its tag."""
        return self.digest or self.tag or ""

    @property
    def credentials_key(self) -> str:
        """What docker's and oras' configuration keep the registry's credentials under."""
        return _HUB_CREDENTIALS if self.host == _HUB else self.host

    def by_digest(self, digest: str) -> Self:
        """Return the reference that no later push changes."""
        return replace(self, digest=digest)

    def base(self, *, plain_http: bool = False) -> str:
        """Return the address that all of the repository's begin with: https, but on this machine or where allowed."""
        scheme = "http" if plain_http or is_loopback(_bare(self.host)) else "https"
        return f"{scheme}://{_HUB_API if self.host == _HUB else self.host}/v2/{self.repository}"


def _bare(host: str) -> str:
    match = _HOST.fullmatch(host)
    return match["name"] if match else host


def _check_host(text: str, host: str) -> None:
    match = _HOST.fullmatch(host)
    if match is None or (match["port"] and not 0 < int(match["port"]) <= _MAX_PORT):
        _refuse(text, f"{host!r} is no host" if host else "the address names no host")


def _check_name(text: str, host: str, repository: str) -> None:
    if not repository:
        _refuse(text, "the address names no repository")
    if not _REPOSITORY.fullmatch(repository):
        lower = " in lower case" if repository != repository.lower() else ""
        _refuse(text, f"{repository!r} is no repository's name: letters{lower}, digits, '/', and '.', '_', '-' between")
    if len(host) + len(repository) >= _MAX_NAME:
        _refuse(
            text[:80], f"host and repository have {len(host) + len(repository)} characters, {_MAX_NAME} is the most"
        )


def _refuse(text: str, what: str, hint: str = _FORM) -> NoReturn:
    raise UsageError(what, where=text, hint=hint)
