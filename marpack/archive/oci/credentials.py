"""What a registry is shown when it asks who is there: credentials that docker and oras keep, found by oras."""

import logging
import re
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct
from oras.auth import get_auth_backend
from oras.container import Container

from marpack.archive.oci.reference import Reference
from marpack.errors import RegistryError, UsageError, first_line

_BASIC = re.compile(r"(?:^|,)\s*basic\b", re.IGNORECASE)
_BEARER = re.compile(r"(?:^|,)\s*bearer\b", re.IGNORECASE)
_ODD = (OSError, ValueError, KeyError, AttributeError, TypeError)  # what oras makes of a configuration with a mistake


class TextAnswer(Struct, frozen=True):
    """A short answer, read whole."""

    status_code: int
    text: str

    def json(self) -> Any:  # Any: JSON
        """Return what the text holds; raises ValueError."""
        import json  # noqa: PLC0415 - few are asked for tokens

        return json.loads(self.text)


class TokenClient(Protocol):
    """What asks a server for tokens: the part of a `requests.Session` that oras uses."""

    def get(self, url: str, **options: Any) -> TextAnswer:  # Any: requests'
        """Return its answer."""

    def request(self, method: str, url: str, **options: Any) -> TextAnswer:  # Any: requests'
        """Return its answer."""


class Challenge(Protocol):
    """An answer that asks who is there."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers, Www-Authenticate among them."""


class Credentials:
    """What is known of one registry's users; nothing is read before the registry asks."""

    def __init__(self, reference: Reference, client: TokenClient, *, plain_http: bool) -> None:
        """Take the registry, what asks for tokens, and whether these may come over plain http."""
        self._reference = reference
        self._client = client
        self._plain = plain_http
        self._backend: Any = None  # Any: oras has no types

    @property
    def known(self) -> bool:
        """Whether a user and a password were found."""
        return self._backend is not None and hasattr(self._backend, "_basic_auth")

    def answer(self, response: Challenge) -> str | None:
        """Return the Authorization that a registry's 401 asks for; None: there are no such credentials.

        Raises UsageError where they cannot be read, RegistryError where tokens are not to be had.
        """
        backend = self._loaded()
        challenge = response.headers.get("Www-Authenticate", "")
        if not _BEARER.search(challenge):
            return f"Basic {vars(backend)['_basic_auth']}" if self.known and _BASIC.search(challenge) else None
        try:
            headers, _ = backend.authenticate_request(response, {}, refresh=True)
        except _ODD as error:
            what = f"its token cannot be read: {first_line(error)}"
            raise RegistryError(what, where=self._reference.host, code="invalid-token") from error
        found: str | None = headers.get("Authorization")
        return found

    def _loaded(self) -> Any:  # Any: as above
        if self._backend is None:
            logging.getLogger("oras").addHandler(logging.NullHandler())  # what it logs would go to stderr
            container = Container(f"{self._reference.host}/{self._reference.repository}")
            container.registry = self._reference.credentials_key
            backend = get_auth_backend("token", session=self._client, insecure=self._plain)
            try:
                backend.load_configs(container)
            except _ODD as error:
                raise UsageError(
                    f"the credentials that docker or oras keep cannot be read: {first_line(error)}",
                    where="~/.docker/config.json",
                    hint=f"log in again: docker login {self._reference.host}",
                    code="invalid-credentials-file",
                ) from error
            self._backend = backend
        return self._backend
