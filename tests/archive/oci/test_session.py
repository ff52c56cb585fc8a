import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from refusals import has_code
from registries import Asked, FakeRegistry, Reply, log_in, sha256

from marpack.archive.addresses import Reference
from marpack.archive.oci.session import RegistrySession
from marpack.errors import MarpackError, RegistryError, UsageError

BASIC = "Basic YW5uOnNlY3JldA=="  # ann:secret


def session_for(host: str) -> RegistrySession:
    return RegistrySession(Reference.parse(f"oci://{host}/team/digits:1.0"))


@pytest.fixture
def session(fake: FakeRegistry) -> Iterator[RegistrySession]:
    with session_for(fake.host) as session:
        yield session


def asked_for(session: RegistrySession, address: str = "manifests/1.0") -> bytes:
    with session.request("GET", address) as answer:
        return session.read_whole(answer, 1000)


def wanting(challenge: str, accepted: str) -> Callable[[Asked], Reply | None]:
    """Return the rule of a registry that wants to be shown something."""

    def rule(asked: Asked) -> Reply | None:
        if asked.path.startswith("/token") or asked.headers.get("Authorization") == accepted:
            return None
        return Reply(401, headers={"Www-Authenticate": challenge})

    return rule


def test_nobody_is_shown_credentials_who_does_not_ask(fake: FakeRegistry, session: RegistrySession, home):
    log_in(home, fake.host)
    fake.manifests["1.0"] = b"{}"
    assert asked_for(session) == b"{}"
    assert "Authorization" not in fake.asked[0].headers


def test_a_password_is_shown_to_who_asks(fake: FakeRegistry, session: RegistrySession, home):
    log_in(home, fake.host)
    fake.manifests["1.0"] = b"{}"
    fake.rules = [wanting('Basic realm="here"', BASIC)]
    assert asked_for(session) == asked_for(session) == b"{}"
    assert [asked.headers.get("Authorization") for asked in fake.asked] == [None, BASIC, BASIC]


@pytest.mark.parametrize("user", [True, False])
def test_a_token_is_fetched_from_where_it_is_said(
    user: bool, fake: FakeRegistry, other: FakeRegistry, session: RegistrySession, home
):
    if user:
        log_in(home, fake.host)
    fake.manifests["1.0"] = b"{}"
    realm = f'Bearer realm="http://{other.host}/token",service="s",scope="repository:team/digits:pull"'
    fake.rules = [wanting(realm, "Bearer abc")]
    other.rules = [lambda asked: Reply(200, b'{"token": "abc"}')]
    assert asked_for(session) == b"{}"
    assert other.asked[0].path == "/token?service=s&scope=repository%3Ateam%2Fdigits%3Apull"
    assert other.asked[0].headers.get("Authorization") == (BASIC if user else None)


def test_a_token_that_has_run_out_is_fetched_anew(fake: FakeRegistry, session: RegistrySession, home):
    tokens = ["two", "one"]
    accepted = ["one"]
    fake.manifests["1.0"] = b"{}"

    def rule(asked: Asked) -> Reply | None:
        if asked.path.startswith("/token"):
            return Reply(200, json.dumps({"access_token": tokens.pop()}).encode())
        if asked.headers.get("Authorization") == f"Bearer {accepted[0]}":
            return None
        return Reply(401, headers={"Www-Authenticate": f'Bearer realm="http://{fake.host}/token"'})

    fake.rules = [rule]
    asked_for(session)
    accepted[0] = "two"
    assert asked_for(session) == b"{}"


def test_a_password_goes_nowhere_else(fake: FakeRegistry, other: FakeRegistry, session: RegistrySession, home):
    log_in(home, fake.host)
    (home / ".netrc").write_text("machine 127.0.0.1 login ann password secret\n")
    (home / ".netrc").chmod(0o600)
    fake.rules = [
        lambda asked: Reply(307, headers={"Location": f"http://{other.host}/x"}) if "/blobs/" in asked.path else None,
        wanting('Basic realm="here"', BASIC),
    ]
    other.rules = [lambda asked: Reply(200, b"data")]
    fake.manifests["1.0"] = b"{}"
    asked_for(session)  # it is logged in now
    assert asked_for(session, f"blobs/{sha256(b'data')}") == b"data"
    assert fake.asked[-1].headers["Authorization"] == BASIC
    assert "Authorization" not in other.asked[0].headers


def test_no_password_for_another_host_that_asks(
    fake: FakeRegistry, other: FakeRegistry, session: RegistrySession, home
):
    log_in(home, fake.host)
    fake.rules = [lambda asked: Reply(307, headers={"Location": f"http://{other.host}/x"})]
    other.rules = [wanting('Basic realm="there"', BASIC)]
    with pytest.raises(RegistryError, match="credentials"):
        asked_for(session)
    assert len(other.asked) == 1


def test_an_upload_to_another_host_goes_without_a_password(
    fake: FakeRegistry, other: FakeRegistry, session: RegistrySession, home
):
    log_in(home, fake.host)
    fake.manifests["1.0"] = b"{}"
    fake.rules = [wanting('Basic realm="here"', BASIC)]
    asked_for(session)
    other.rules = [lambda asked: Reply(201)]
    with session.request("PUT", f"http://{other.host}/x", expected=(201,), body=lambda: b"data"):
        pass
    assert "Authorization" not in other.asked[0].headers


@pytest.mark.parametrize("place", ["http://registry.example.com/x", "ftp://127.0.0.1/x", "file:///etc/passwd"])
def test_what_is_not_safe_is_not_followed(place: str, fake: FakeRegistry, session: RegistrySession):
    fake.rules = [lambda asked: Reply(302, headers={"Location": place})]
    with pytest.raises(RegistryError, check=has_code("insecure-address", "--plain-http")):
        asked_for(session)


def test_a_password_is_not_shown_without_tls(fake: FakeRegistry, session: RegistrySession, home):
    log_in(home, fake.host)
    fake.rules = [wanting('Bearer realm="http://tokens.example.com/token"', "Bearer x")]
    with pytest.raises(RegistryError, check=has_code("insecure-address", "http://tokens.example.com")):
        asked_for(session)


def test_redirects_end(fake: FakeRegistry, session: RegistrySession):
    fake.rules = [lambda asked: Reply(302, headers={"Location": asked.path + "x"})]
    with pytest.raises(RegistryError, check=has_code("unexpected-status", 302, "GET")):
        asked_for(session)
    assert len(fake.asked) == 6


# response, code, and a fact of the message
REFUSALS = {
    "no credentials": (Reply(401, headers={"Www-Authenticate": 'Basic realm="x"'}), "credentials-missing", "401"),
    "no challenge": (Reply(401), "credentials-missing", "401"),
    "forbidden": (FakeRegistry.problem(403, "DENIED", "not for you"), "credentials-missing", "(403: not for you)"),
    "no tag": (FakeRegistry.problem(404, "MANIFEST_UNKNOWN", "manifest unknown"), "registry", ": manifest unknown"),
    "no registry": (Reply(404, b"<html>"), "registry", "not found"),
    "a page": (Reply(500, b"<html>"), "unexpected-status", "500 to GET"),
    "odd problems": (Reply(400, b'{"errors": 7}'), "unexpected-status", "400 to GET"),
    "no problems": (Reply(400, b'{"errors": []}'), "unexpected-status", "400 to GET"),
    "a long story": (Reply(400, b"x" * 100_000), "unexpected-status", "400 to GET"),
    "busy": (Reply(503, b""), "registry-busy", "503"),
    "a message that obeys": (FakeRegistry.problem(400, "X", "a\n" * 500), "unexpected-status", "a a a"),
    "bad token": (
        Reply(401, headers={"Www-Authenticate": 'Bearer realm="http://HOST/token"'}),
        "credentials-missing",
        "401",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_becomes_an_error(name: str, fake: FakeRegistry, session: RegistrySession, home, pauses: list[float]):
    reply, code, fact = REFUSALS[name]
    headers = {key: value.replace("HOST", fake.host) for key, value in reply.headers.items()}
    fake.rules = [lambda asked: reply._replace(headers=headers)]
    with pytest.raises(RegistryError, check=has_code(code, fact)) as caught:
        asked_for(session)
    assert len(caught.value.what) < 400
    assert caught.value.where == f"oci://{fake.host}/team/digits:1.0"


def test_wrong_credentials_are_told_apart(fake: FakeRegistry, session: RegistrySession, home):
    log_in(home, fake.host, password="wrong")
    fake.rules = [wanting('Basic realm="x"', BASIC)]
    with pytest.raises(RegistryError, check=has_code("credentials-refused", f"docker login {fake.host}")) as caught:
        asked_for(session)
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"auths": 7}', b'{"auths": {"HOST": 7}}', b"\xff"])
def test_credentials_that_cannot_be_read(data: bytes, fake: FakeRegistry, session: RegistrySession, home):
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_bytes(data.replace(b"HOST", fake.host.encode()))
    fake.rules = [wanting('Basic realm="x"', BASIC)]
    with pytest.raises(UsageError, check=has_code("invalid-credentials-file", f"docker login {fake.host}")):
        asked_for(session)


def test_a_helper_that_is_not_there_is_silent(fake: FakeRegistry, home):
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text('{"credsStore": "nothing-here"}')
    fake.rules = [wanting('Basic realm="x"', BASIC)]
    words = [sys.executable, "-m", "marpack", "inspect", f"oci://{fake.host}/team/digits:1.0", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)  # pytest would catch what is logged
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "credentials-missing"
    assert done.stderr.startswith("error: ")


TOKENS = {"no JSON": b"<html>", "a list": b"[1]", "a text": b'"x"'}


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_that_is_none(name: str, fake: FakeRegistry, session: RegistrySession, home):
    fake.rules = [
        lambda asked: Reply(200, TOKENS[name]) if asked.path.startswith("/token") else None,
        wanting(f'Bearer realm="http://{fake.host}/token"', "Bearer x"),
    ]
    with pytest.raises(RegistryError, check=has_code("invalid-token")):
        asked_for(session)


def busy(fake: FakeRegistry, *waits: str) -> None:
    """Have the next requests refused for a while."""
    left = [Reply(429, headers={"Retry-After": wait} if wait else {}) for wait in reversed(waits)]
    fake.rules = [lambda asked: left.pop() if left else None]
    fake.manifests["1.0"] = b"{}"


def test_a_busy_registry_is_waited_for(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    busy(fake, "7", "", "Wed, 21 Oct 2026 07:28:00 GMT")
    assert asked_for(session) == b"{}"
    assert pauses == [7.0, 2.0, 5.0]


def test_a_busy_registry_is_not_waited_for_long(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    busy(fake, "86400", "0", "1", "1")
    with pytest.raises(RegistryError, check=has_code("registry-busy", 429)):
        asked_for(session)
    assert pauses == [60.0, 0.0, 1.0]


def test_who_is_not_there_is_told():
    with (
        session_for("127.0.0.1:1") as session,
        pytest.raises(RegistryError, check=has_code("unreachable", "127.0.0.1:1")),
    ):
        asked_for(session)


def test_no_tls_is_told(fake: FakeRegistry, session: RegistrySession):
    session.base = session.base.replace("http:", "https:")
    with pytest.raises(MarpackError, check=has_code("tls-failed", fake.host)):
        asked_for(session)


def test_too_much_is_refused(fake: FakeRegistry, session: RegistrySession):
    fake.manifests["1.0"] = b"x" * 2000
    with pytest.raises(RegistryError, check=has_code("response-too-large", "1,000")):
        asked_for(session)


def test_a_short_answer_is_a_cut(fake: FakeRegistry, session: RegistrySession):
    fake.rules = [lambda asked: Reply(200, b"x" * 100, cut=50)]
    with pytest.raises(RegistryError, match="broke off"):
        asked_for(session)
