"""Requests to one registry: its credentials go to its own host only, and its refusals become errors (OCI 1.1)."""

import base64
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
from msgspec import Struct

from marpack.archive.addresses import Reference, is_loopback
from marpack.archive.http import MAX_REDIRECTS, HttpClient, HttpError, HttpResponse, WaitBudget
from marpack.errors import MarpackError, RegistryError, UsageError, first_line, shortened

_STORING = 600  # seconds that a registry may take to store a blob: some hash all of it before they respond
_BUSY = {429, 502, 503, 504}
_PAUSES = (0.5, 2.0, 5.0)  # seconds before a request to a busy registry is repeated
_LONGEST_PAUSE = 60.0  # seconds that a registry may ask for
_MAX_ERROR = 64 << 10  # bytes of an error's body
_MAX_TOKEN = 1 << 20  # bytes
_DOCKER_CONFIG = "~/.docker/config.json"  # shared by docker, oras and others
_BASIC = re.compile(r"(?:^|,)\s*basic\b", re.IGNORECASE)
_BEARER = re.compile(r"(?:^|,)\s*bearer\b(.*)", re.IGNORECASE)
_TOKEN = re.compile(r"[!-~]+")
_PARAMETER = re.compile(r'([A-Za-z]+)="([^"]*)"')

Body = bytes | Callable[[], Iterable[bytes]]  # the latter makes it anew for each time that it is sent


class CutError(RegistryError):
    """A connection to a registry broke off."""

    code = "connection"
    fix = "Try it again."


class _Problem(Struct, frozen=True):
    code: str = ""
    message: str | None = None


class _Problems(Struct, frozen=True):
    errors: list[_Problem]


class _Login(Struct, frozen=True):
    auth: str | None = None  # Base64 of USER:PASSWORD


class _DockerConfig(Struct, frozen=True, rename="camel"):
    auths: dict[str, _Login] | None = None
    cred_helpers: dict[str, str] | None = None  # host → suffix of a program's name
    creds_store: str | None = None  # such a suffix, for all hosts


class _HelperLogin(Struct, frozen=True, rename="pascal"):
    username: str
    secret: str


class _Token(Struct, frozen=True):
    token: str | None = None
    access_token: str | None = None


class RegistrySession(AbstractContextManager["RegistrySession"]):
    """Requests to one repository of a registry. Close it, or use it in a `with`."""

    def __init__(self, reference: Reference, *, plain_http: bool = False) -> None:
        self.reference = reference
        self.where = str(reference)
        self.base = reference.base(plain_http=plain_http)
        self._plain = plain_http
        self._http = HttpClient()
        self._login: str | None = None  # Base64, once it was read
        self._authorization: str | None = None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def request(
        self,
        method: str,
        address: str,
        *,
        expected: tuple[int, ...] = (HTTPStatus.OK,),
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        budget: WaitBudget | None = None,
    ) -> Iterator[HttpResponse]:
        """Give the response to a request. Log in, follow redirects, and repeat it while the registry is busy.

        The address is a URL, or the rest of one after the repository's. A status that is not `expected` raises
        RegistryError; so do other failures, also of reading the response within the `with`. Raises UsageError for
        credentials that cannot be read.
        """
        url = urljoin(self.base + "/", address)
        is_reading = method in ("GET", "HEAD")
        budget = budget or (WaitBudget() if is_reading else WaitBudget(_STORING, idle=_STORING))
        pauses, redirects, asked = iter(_PAUSES), 0, False
        try:
            while True:
                own = {"Authorization": self._authorization} if self._authorization and self._is_own(url) else {}
                self._check_safe(url)
                with self._http.request(
                    method, url, headers={**(headers or {}), **own}, body=body, budget=budget
                ) as response:
                    if response.status == HTTPStatus.UNAUTHORIZED and self._is_own(url) and not asked:
                        asked = True
                        if self._authorize(response):
                            continue
                    elif response.redirect and is_reading and redirects < MAX_REDIRECTS:
                        redirects, url = redirects + 1, response.redirect
                        continue
                    elif response.status in _BUSY and (pause := next(pauses, None)) is not None:
                        wanted = response.headers.get("Retry-After", "")  # seconds, or a date, which is ignored
                        is_number = wanted.isdecimal() and len(wanted) < 7
                        time.sleep(min(float(wanted), _LONGEST_PAUSE) if is_number else pause)
                        continue
                    if response.status not in expected:
                        raise self._refused(response, method)
                    yield response
                    return
        except HttpError as error:
            if error.code in ("connection-failed", "timed-out"):
                raise CutError(error.what, where=self.where) from None
            raise RegistryError(error.what, where=self.where, hint=error.hint, code=error.code) from None

    def read_whole(self, response: HttpResponse, maximum: int) -> bytes:
        """Return a response's body. Raises RegistryError for more than `maximum` bytes, HttpError for less than all."""
        data = response.read_up_to(maximum + 1)
        if len(data) > maximum:
            what = f"the registry sends more than {maximum:,} bytes"
            raise RegistryError(what, where=self.where, code="response-too-large")
        return data

    def _is_own(self, url: str) -> bool:
        parts, own = urlsplit(url), urlsplit(self.base)
        ports = [each.port or {"http": 80, "https": 443}.get(each.scheme) for each in (parts, own)]
        return (parts.scheme, parts.hostname, ports[0]) == (own.scheme, own.hostname, ports[1])

    def _check_safe(self, url: str) -> None:
        """Raise RegistryError for a URL that would give up https."""
        parts = urlsplit(url)
        if parts.scheme == "https" or (parts.scheme == "http" and (self._plain or is_loopback(parts.hostname))):
            return
        raise RegistryError(
            f"the registry points to {parts.scheme}://{parts.hostname}, which is not encrypted",
            where=self.where,
            hint="Use a registry with https. Within your own network, pass --plain-http.",
            code="insecure-address",
        )

    def _authorize(self, refused: HttpResponse) -> bool:
        """Set the authorization that a 401 asks for; return whether there is a new one."""
        before, self._authorization = self._authorization, None
        if self._login is None:
            self._login = _find_login(self.reference) or ""
        basic = f"Basic {self._login}" if self._login else None
        challenges = refused.headers.get("Www-Authenticate", "")
        bearer = _BEARER.search(challenges)
        if bearer is None and _BASIC.search(challenges):
            self._authorization = basic
        elif bearer is not None:
            challenge = dict(reversed(_PARAMETER.findall(bearer[1])))  # the first of each name counts
            query = urlencode({name: challenge[name] for name in ("service", "scope") if challenge.get(name)})
            realm = challenge.get("realm", "")
            url = f"{realm}{'&' if '?' in realm else '?'}{query}" if query else realm
            self._check_safe(url)
            headers = {"Authorization": basic} if basic else {}
            with self._http.request("GET", url, headers=headers, budget=WaitBudget()) as response:
                if response.status == HTTPStatus.OK:
                    data = self.read_whole(response, _MAX_TOKEN)
                    with suppress(ValueError, RecursionError):  # msgspec's errors are ValueErrors
                        found = msgspec.json.decode(data, type=_Token)
                        token = found.token or found.access_token or ""
                        self._authorization = f"Bearer {token}" if _TOKEN.fullmatch(token) else None
                    if self._authorization is None:
                        what = "the registry's token cannot be read"
                        raise RegistryError(what, where=self.reference.host, code="invalid-token")
        return self._authorization is not None and self._authorization != before

    def _refused(self, response: HttpResponse, method: str) -> MarpackError:
        status, host, problem = response.status, self.reference.host, _Problem()
        try:  # the first problem of the registry's list (OCI distribution, "Error Codes")
            if method != "HEAD":
                body = self.read_whole(response, _MAX_ERROR)
                problem = next(iter(msgspec.json.decode(body, type=_Problems).errors), problem)
        except (MarpackError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # a proxy's page, or nothing
        said = f": {shortened(problem.message or problem.code, 200)}" if problem.message or problem.code else ""
        hint: str | None = None
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and self._login:
            what = f"the registry refuses the credentials for {host} ({status}{said})"
            hint, code = f"Log in again: docker login {host}, or oras login {host}", "credentials-refused"
        elif status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            what = f"the registry requires credentials, and none are stored for {host} ({status}{said})"
            hint, code = f"Log in: docker login {host}, or oras login {host}", "credentials-missing"
        elif status == HTTPStatus.NOT_FOUND:
            what, code = f"not found in the registry{said}", RegistryError.code
            hint = "Check host, repository and tag. Some registries hide repositories that you may not read."
        elif status in _BUSY:
            what, code = f"the registry is too busy: it responds {status}{said}", "registry-busy"
            hint = "Try again later."
        elif problem.code in ("DIGEST_INVALID", "SIZE_INVALID"):
            what, code = f"the registry received other bytes than announced{said}", "upload-mismatch"
            hint = "Check that no program writes to the file, and push it again."
        else:
            what, code = f"the registry responds {status} to {method}{said}", "unexpected-status"
            hint = None if problem.code else "Check that the host is an OCI registry."
        return RegistryError(what, where=self.where, hint=hint, code=code)


def _find_login(reference: Reference) -> str | None:
    """Return the stored credentials of a registry, in Base64. Raises UsageError for a file that cannot be read."""
    key = reference.credentials_key
    alias = key.replace("localhost", "127.0.0.1") if "localhost" in key else key.replace("127.0.0.1", "localhost")
    try:
        config = msgspec.json.decode(Path(_DOCKER_CONFIG).expanduser().read_bytes(), type=_DockerConfig)
        for host in dict.fromkeys((key, alias)):
            stored = (config.auths or {}).get(host, _Login()).auth
            if stored:
                return stored
            for suffix in ((config.cred_helpers or {}).get(host), config.creds_store):
                words = [f"docker-credential-{suffix}", "get"]
                if suffix is None or shutil.which(words[0]) is None:
                    continue
                done = subprocess.run(words, input=host.encode(), capture_output=True, check=False)  # noqa: S603 - docker's
                if done.returncode == 0:
                    login = msgspec.json.decode(done.stdout, type=_HelperLogin)
                    return base64.b64encode(f"{login.username}:{login.secret}".encode()).decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UsageError(
            f"the credentials of docker and oras cannot be read: {first_line(error)}",
            where=_DOCKER_CONFIG,
            hint=f"Log in again: docker login {reference.host}",
            code="invalid-credentials-file",
        ) from error
    return None
