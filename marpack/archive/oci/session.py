"""Requests to one registry: credentials for its own host alone, time limits, redirects, and refusals as errors."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
import urllib3.exceptions
from requests.exceptions import ConnectTimeout, SSLError, Timeout

from marpack.archive.http_opener import TIMEOUT, WaitBudget, is_loopback
from marpack.archive.oci.credentials import Credentials, TextAnswer
from marpack.archive.oci.reference import Reference
from marpack.errors import MarpackError, RegistryError, first_line, shortened
from marpack.version import __version__

CONNECT = 10  # seconds to reach a host
_STORING = 600  # seconds that a registry may take over what it was sent: some hash it all before they answer
_REDIRECTS = 5
_MOVED = {301, 302, 303, 307, 308}
_BUSY = {429, 502, 503, 504}
_PAUSES = (0.5, 2.0, 5.0)  # seconds before a request to a registry that is busy is sent again
_LONGEST_PAUSE = 60.0  # seconds that a registry may ask for
_BLOCK = 1 << 16  # bytes
_MAX_ERROR = 64 << 10  # bytes of an answer that says why not
_MAX_TOKEN = 1 << 20  # bytes
BROKEN = (urllib3.exceptions.HTTPError, OSError)  # what reading from a connection may raise
LIES = "nothing of it is kept; ask whoever runs the registry"  # what to do about one that sends other bytes
_FULL_NUMBER = re.compile(r"\d{1,6}")

Body = Callable[[], Any]  # Any: bytes, or what has `read` and a length; made anew for each time that it is sent


class CutError(RegistryError):
    """A connection to a registry broke off."""

    code = "connection"
    fix = "Try it again."


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""
    message: str | None = None


class _Problems(msgspec.Struct, frozen=True):
    errors: list[_Problem]


class Answer:
    """An answer whose body is still to come."""

    def __init__(self, response: requests.Response, where: str) -> None:
        self._response = response
        self.where = where
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url: str = response.url

    @property
    def length(self) -> int | None:
        """Bytes that the body is said to have; None: nothing is said."""
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isdecimal() and len(text) < 20 else None

    def read(self, count: int, budget: WaitBudget) -> bytes:
        """Return up to `count` of the body's next bytes, none at its end.

        Raises CutError where the connection broke off, RegistryError where too little comes for too long.
        """
        received: bytes = b""
        try:
            with budget.waiting(lambda: len(received)):
                received = self._response.raw.read1(min(count, _BLOCK), decode_content=False)
        except TimeoutError:
            raise RegistryError(f"it is too slow: {budget.spent:.0f} s were waited for it", where=self.where) from None
        except BROKEN as error:
            raise CutError(f"the connection broke off: {first_line(error)}", where=self.where) from None
        return received

    def read_whole(self, maximum: int) -> bytes:
        """Return the whole body; raises RegistryError for more than `maximum` bytes, and as `read` does."""
        data, budget = bytearray(), WaitBudget()
        while block := self.read(_BLOCK, budget):
            data += block
            if len(data) > maximum:
                raise RegistryError(f"it sends more than {maximum:,} bytes", where=self.where)
        if self.length is not None and len(data) < self.length and self._response.request.method != "HEAD":
            raise CutError(f"the connection broke off after {len(data):,} of {self.length:,} bytes", where=self.where)
        return bytes(data)


class _Connection(requests.Session):
    """A session that neither follows redirects nor knows other users than those that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = lambda request: request  # else a ~/.netrc would be asked, for each host
        self.headers.update({"User-Agent": f"marpack/{__version__}", "Accept-Encoding": "identity"})


class _Tokens:
    """Asks a server for tokens, as all else is asked; see `TokenClient`."""

    def __init__(self, session: "RegistrySession") -> None:
        self._session = session

    def get(self, url: str, **options: Any) -> TextAnswer:  # Any: requests'
        return self.request("GET", url, **options)

    def request(self, method: str, url: str, **options: Any) -> TextAnswer:  # Any: requests'
        given = {name: options[name] for name in ("headers", "params") if options.get(name)}
        with self._session.sent(method, url, **given) as answer:
            return TextAnswer(answer.status, answer.read_whole(_MAX_TOKEN).decode("utf-8", "replace"))


class RegistrySession:
    """One repository of a registry, asked over http or https. Close it, or use it in a `with`."""

    def __init__(self, reference: Reference, *, plain_http: bool = False) -> None:
        """Take where to ask, and whether plain http will do for more than this machine; nothing is asked yet."""
        self.reference = reference
        self.base = reference.base(plain_http=plain_http)
        self._plain = plain_http
        self._http = _Connection()
        self._credentials = Credentials(reference, _Tokens(self), plain_http=plain_http)
        self._authorization: str | None = None

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def ask(
        self,
        method: str,
        address: str,
        *,
        fine: tuple[int, ...] = (HTTPStatus.OK,),
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Iterator[Answer]:
        """Give the answer to a request, of one of the statuses that are fine.

        Args:
            method: As HTTP has it.
            address: Whole, or what follows the repository's, with its slash.
            fine: Other statuses are raised as errors.
            headers: Beside the usual ones.
            body: Makes what is sent, for each time that it is.

        Raises RegistryError, CutError, UsageError.
        """
        with self._answered(method, urljoin(self.base + "/", address), headers or {}, body) as answer:
            if answer.status not in fine:
                raise self._refused(answer, method)
            yield answer

    @contextmanager
    def _answered(self, method: str, url: str, headers: Mapping[str, str], body: Body | None) -> Iterator[Answer]:
        """Ask again where credentials are wanted, somewhere else is pointed to, or the registry is busy."""
        pauses, redirects, asked_who = iter(_PAUSES), iter(range(_REDIRECTS)), False
        while True:
            with self.sent(method, url, headers=headers, body=body) as answer:
                if answer.status == HTTPStatus.UNAUTHORIZED and self._is_own(url) and not asked_who:
                    asked_who, again = True, self._authorize(answer)
                elif answer.status in _MOVED and body is None and method in ("GET", "HEAD"):
                    again = next(redirects, None) is not None
                    url = self._allowed(urljoin(url, answer.headers.get("Location", "")))
                elif answer.status in _BUSY and (pause := next(pauses, None)) is not None:
                    again = True
                    time.sleep(_pause_asked_for(answer, pause))
                else:
                    again = False
                if not again:
                    yield answer
                    return

    @contextmanager
    def sent(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Iterator[Answer]:
        """Give the answer to one request, whatever it is; the registry's credentials go to its own host alone."""
        allowed = self._allowed(url)
        own = {"Authorization": self._authorization} if self._authorization and self._is_own(url) else {}
        with self._failures(urlsplit(url).netloc.rpartition("@")[2]):
            response = self._http.request(
                method,
                allowed,
                headers={**(headers or {}), **own},
                params=params,
                data=None if body is None else body(),
                stream=True,
                allow_redirects=False,
                timeout=(CONNECT, TIMEOUT if body is None else _STORING),
            )
        with response:
            yield Answer(response, str(self.reference))

    @contextmanager
    def _failures(self, host: str) -> Iterator[None]:
        """Turn what goes wrong on the way to a host into errors of ours."""
        where = str(self.reference)
        try:
            yield
        except SSLError as error:
            hint = "is its certificate signed by whom this machine trusts? REQUESTS_CA_BUNDLE names others"
            what = f"no safe connection to {host}: {_reason(error)}"
            raise RegistryError(what, where=where, hint=f"{hint}; --plain-http is for registries without") from None
        except ConnectTimeout:
            raise RegistryError(
                f"{host} cannot be reached: no answer in {CONNECT} s", where=where, code="registry-unreachable"
            ) from None
        except Timeout:
            raise CutError(f"{host} does not answer: {TIMEOUT} s were waited for it", where=where) from None
        except requests.ConnectionError as error:
            if _is_unreachable(error):
                raise RegistryError(
                    f"{host} cannot be reached: {_reason(error)}", where=where, code="registry-unreachable"
                ) from None
            raise CutError(f"the connection broke off: {_reason(error)}", where=where) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise RegistryError(f"{host} cannot be asked: {_reason(error)}", where=where) from None

    def _authorize(self, answer: Answer) -> bool:
        """Find what a 401 asks for; say whether there is any."""
        before, self._authorization = self._authorization, None
        self._authorization = self._credentials.answer(answer)
        return self._authorization is not None and self._authorization != before

    def _is_own(self, url: str) -> bool:
        return _origin(url) == _origin(self.base)

    def _allowed(self, url: str) -> str:
        """Return an address that may be asked; raises RegistryError for one that would give up https."""
        parts = urlsplit(url)
        if parts.scheme == "https" or (parts.scheme == "http" and (self._plain or is_loopback(parts.hostname))):
            return url
        raise RegistryError(
            f"it points to {parts.scheme}://{parts.hostname}, and what is said there is heard by everyone",
            where=str(self.reference),
            hint="--plain-http allows it, within a network of your own",
        )

    def _refused(self, answer: Answer, method: str) -> MarpackError:
        """Return the error that an answer stands for."""
        where, status = str(self.reference), answer.status
        problem = _Problem() if method == "HEAD" else _problem_of(answer)
        said = f": {shortened(problem.message or problem.code, 200)}" if problem.message or problem.code else ""
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return self._not_allowed(status, said)
        if status == HTTPStatus.NOT_FOUND:
            hint = "check host, repository and tag; some registries hide what one may not see, too"
            return RegistryError(f"there is no such thing in the registry{said}", where=where, hint=hint)
        if status in _BUSY:
            return RegistryError(f"the registry is too busy: it answers {status}{said}", where=where, hint="try later")
        if problem.code in ("DIGEST_INVALID", "SIZE_INVALID"):
            hint = "does anything still write to the file? push it again"
            return RegistryError(f"what arrived there is not what was announced{said}", where=where, hint=hint)
        what = f"the registry answers {status} to {method}{said}"
        return RegistryError(what, where=where, hint=None if problem.code else "is it an OCI registry? check the host")

    def _not_allowed(self, status: int, said: str) -> MarpackError:
        host = self.reference.host
        if self._credentials.known:
            what, hint = f"the registry refuses the credentials for {host}", f"log in again: docker login {host}"
        else:
            what, hint = f"the registry wants credentials, and none are known for {host}", f"docker login {host}"
        return RegistryError(
            f"{what} ({status}{said})", where=str(self.reference), hint=f"{hint}; oras login does, too"
        )


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _problem_of(answer: Answer) -> _Problem:
    """Return the first problem that a registry lists (OCI distribution, "Error Codes"); an empty one for none."""
    try:
        found = msgspec.json.decode(answer.read_whole(_MAX_ERROR), type=_Problems)
    except (RegistryError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Problem()  # a proxy's page, or nothing
    return found.errors[0] if found.errors else _Problem()


def _pause_asked_for(answer: Answer, usual: float) -> float:
    """Return the seconds to wait before asking again; a date in Retry-After counts as nothing asked for."""
    asked = _FULL_NUMBER.fullmatch(answer.headers.get("Retry-After", ""))
    return usual if asked is None else min(float(asked[0]), _LONGEST_PAUSE)


def _is_unreachable(error: requests.ConnectionError) -> bool:
    inner = error.args[0] if error.args else None
    reason = getattr(inner, "reason", inner)
    return isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ProxyError)


def _reason(error: Exception) -> str:
    """Return what lies at the bottom of an error, without the addresses that those above it show."""
    inner = error.args[0] if error.args else error
    reason = getattr(inner, "reason", None) or inner
    text = str(reason).rpartition(": ")[2] if isinstance(reason, urllib3.exceptions.NewConnectionError) else str(reason)
    return shortened(text, 160) or type(error).__name__
