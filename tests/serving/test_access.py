"""Tokens as the original's key file has them, and the guard against other sites' pages."""

import errno
import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import has_code

from marpack.errors import OutputError, UsageError
from marpack.serving.access import Admission, Guard, TokenKind, Tokens
from marpack.serving.api import Call
from marpack.serving.settings import Address
from marpack.torchserve.http import RequestError

START = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)
MANAGEMENT, INFERENCE, API = TokenKind


class Clock:
    """A clock that tests set."""

    now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "key_file.json"


def document(**changes: Any) -> dict[str, Any]:
    """Return a key file as the original writes it: `Instant.toString` has no, three, six or nine decimals."""
    return {
        "management": {"key": "B_3S-a1F", "expiration time": "2026-11-23T03:00:00.123456789Z"},
        "inference": {"key": "poZXA8oj", "expiration time": "2026-11-23T02:30:00Z"},
        "API": {"key": "zV0VXl-S"},
        **changes,
    }


def put(file: Path, value: object) -> None:
    file.touch(0o600)
    file.write_text(value if isinstance(value, str) else json.dumps(value))


def keys(file: Path) -> dict[str, str]:
    return {name: entry["key"] for name, entry in json.loads(file.read_bytes()).items()}


def bearer(file: Path, name: str) -> str:
    return f"Bearer {keys(file)[name]}"


def test_a_new_file_has_torchserves_form_and_only_its_owner_may_read_it(file: Path, clock: Clock) -> None:
    before = os.umask(0)
    try:
        tokens = Tokens(file, 1.5, clock)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    made = json.loads(file.read_bytes())
    assert list(made) == ["management", "inference", "API"]
    assert [list(entry) for entry in made.values()] == [["key", "expiration time"], ["key", "expiration time"], ["key"]]
    assert made["management"]["expiration time"] == "2026-11-23T02:01:30Z"
    assert len(set(keys(file).values())) == 3
    assert {len(key) for key in keys(file).values()} == {32}  # 24 bytes in base64
    opened = {name: [kind for kind in TokenKind if tokens.allows(kind, bearer(file, name))] for name in keys(file)}
    assert opened == {"management": [MANAGEMENT], "inference": [INFERENCE], "API": [API]}


HEADERS = ("Bearer poZXA8oj", "Bearer \t  poZXA8oj")
WRONG_HEADERS = (
    *("bearer poZXA8oj", "BearerpoZXA8oj", "Bearer\u2003poZXA8oj", " Bearer poZXA8oj", "Bearer poZXA8oj "),
    *("Bearer poZXA8oj\n", "Bearer poZXA8oj poZXA8oj", "Bearer poZXA8o", "Bearer POZXA8OJ", "Bearer B_3S-a1F"),
    *("Bearer zV0VXl-S", "Bearer pöZXA8oj", "Bearer p\udcffZXA8oj", "Basic poZXA8oj", "poZXA8oj", "Bearer "),
    *("Bearer", "", None),
)


def test_keys_expire_each_in_its_time(file: Path, clock: Clock) -> None:
    put(file, document())
    tokens = Tokens(file, 60, clock)
    assert [header for header in (*HEADERS, *WRONG_HEADERS) if tokens.allows(INFERENCE, header)] == list(HEADERS)
    seen = []
    for minutes in (29.99, 30, 59.99, 61):
        clock.now = START + timedelta(minutes=minutes)
        seen.append([kind for kind in TokenKind if tokens.allows(kind, bearer(file, kind.value))])
    assert seen == [[MANAGEMENT, INFERENCE, API], [MANAGEMENT, API], [MANAGEMENT, API], [API]]
    entry = {"key": "zV0VXl-S", "expiration time": "2020-01-01T00:00:00Z"}
    put(file, document(API=entry, inference={"key": "poZXA8oj"}))
    tokens = Tokens(file, 60, clock)
    clock.now += timedelta(days=10_000)
    assert tokens.allows(API, "Bearer zV0VXl-S")
    assert tokens.allows(INFERENCE, "Bearer poZXA8oj")  # without a time


def test_a_start_renews_what_has_expired(file: Path, clock: Clock) -> None:
    put(file, document())
    clock.now = START + timedelta(minutes=45)
    tokens = Tokens(file, 60, clock)
    assert not tokens.allows(INFERENCE, "Bearer poZXA8oj")
    assert tokens.allows(INFERENCE, bearer(file, "inference"))
    assert keys(file) | {"inference": ""} == {"management": "B_3S-a1F", "inference": "", "API": "zV0VXl-S"}


def test_a_new_key_takes_the_old_ones_place(file: Path, clock: Clock) -> None:
    put(file, document())
    tokens = Tokens(file, 10, clock)
    clock.now = START + timedelta(minutes=20)
    tokens.renew(MANAGEMENT)
    assert not tokens.allows(MANAGEMENT, "Bearer B_3S-a1F")
    assert tokens.allows(MANAGEMENT, bearer(file, "management"))
    assert tokens.allows(INFERENCE, "Bearer poZXA8oj")
    assert json.loads(file.read_bytes())["management"]["expiration time"] == "2026-11-23T02:30:00Z"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_symlink_is_kept_and_times_are_in_utc(file: Path, clock: Clock) -> None:
    real = file.with_name("real.json")
    file.symlink_to(real)
    clock.now = START.astimezone(timezone(timedelta(hours=5)))
    Tokens(file, 60, clock).renew(INFERENCE)
    assert file.is_symlink()
    assert json.loads(real.read_bytes())["inference"]["expiration time"] == "2026-11-23T03:00:00Z"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o601, 0o620])
def test_a_file_that_others_have_access_to_is_refused(file: Path, clock: Clock, mode: int) -> None:
    put(file, document())
    file.chmod(mode)
    with pytest.raises(UsageError) as caught:
        Tokens(file, 60, clock)
    assert (caught.value.code, caught.value.where) == ("readable-key-file", str(file))
    assert f"chmod 600 {file}" in str(caught.value.hint)


BROKEN = {
    "no JSON": "inference=abc",
    "nothing": "",
    "no UTF-8": '{"\udcff": 1}',
    "another document": [],
    "no management key": {"inference": {"key": "poZXA8oj"}, "API": {"key": "zV0VXl-S"}},
    "a bare key": document(inference="poZXA8oj"),
    "an empty key": document(inference={"key": ""}),
    "a short key": document(API={"key": "1234567"}),
    "a key with a blank": document(API={"key": "1234 5678"}),
    "a key with a line end": document(API={"key": "12345678\n"}),
    "a time without a zone": document(inference={"key": "poZXA8oj", "expiration time": "2026-11-23T02:30:00"}),
    "no time": document(inference={"key": "poZXA8oj", "expiration time": "soon"}),
    "a deep hole": "[" * 50_000,
}


@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN)
def test_an_invalid_key_file_is_refused(file: Path, clock: Clock, value: Any) -> None:
    file.touch(0o600)
    text = value if isinstance(value, str) else json.dumps(value)
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"not a key_file\.json") as caught:
        Tokens(file, 60, clock)
    assert caught.value.where == str(file)
    assert "poZXA8oj" not in f"{caught.value}{caught.value.hint}"


def test_a_pipe_and_a_folder_that_does_not_exist(file: Path, tmp_path: Path, clock: Clock) -> None:
    os.mkfifo(file, 0o600)
    with pytest.raises(UsageError, check=has_code("not-a-regular-file")):
        Tokens(file, 60, clock)
    with pytest.raises(OutputError, match=os.strerror(errno.ENOENT)) as caught:
        Tokens(tmp_path / "none" / "key_file.json", 60, clock)
    assert caught.value.where == str(tmp_path / "none" / "key_file.json")


def test_a_failed_renewal_leaves_the_old_key(file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    put(file, document())
    tokens = Tokens(file, 60, clock)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        tokens.renew(INFERENCE)
    assert tokens.allows(INFERENCE, "Bearer poZXA8oj")
    assert keys(file)["inference"] == "poZXA8oj"
    assert list(file.parent.iterdir()) == [file]


def test_two_renewals_at_once_both_count(file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    put(file, document())
    tokens, sync = Tokens(file, 60, clock), os.fsync

    def slow(descriptor: int) -> None:
        time.sleep(0.1)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with ThreadPoolExecutor() as pool:
        list(pool.map(tokens.renew, (MANAGEMENT, INFERENCE)))
    for kind, old in ((MANAGEMENT, "B_3S-a1F"), (INFERENCE, "poZXA8oj")):
        assert keys(file)[kind.value] != old
        assert tokens.allows(kind, f"Bearer {keys(file)[kind.value]}")


LOOPBACK = Guard.of(
    Address("127.0.0.1", 8080),
    machine="box",
    allowed_hosts=["serve.example", "app.example:9000", "[fd00::1]:1"],
    origins=["https://app.example", "http://dev.example:3000", "*"],
)
WILDCARD = Guard.of(Address("0.0.0.0", 8080), machine="Box.lan")
IPV6_WILDCARD = Guard.of(Address("::", 8080), machine="box")
WEB_PORT = Guard.of(Address("::1", 80), machine="box")
NAMED = Guard.of(Address("Box.LAN.", 8080), machine="other")
SOCKET = Guard.of(Address("", 0, "/run/s.sock"), machine="box")

FOREIGN = "--allowed-host"
MALFORMED = "is not a host"
PAGE = "--cors-origin"

EVIL = "evil.com:8080"
# guard, reason of the refusal → Host headers
HOSTS = [
    (
        (LOOPBACK, None),
        ["127.0.0.1:8080", "localhost:8080", "LocalHost:8080", "localhost.:8080", "[::1]:8080"],
        ["[0:0:0:0:0:0:0:1]:8080", "serve.example", "serve.example:443", "app.example:9000", "[FD00:0::1]:1"],
    ),
    ((LOOPBACK, "no Host header"), [None]),
    (
        (LOOPBACK, MALFORMED),
        ["", "localhost:80800", "localhost:0", "localhost:-1", "localhost:8080:8080", "localhost:8080 ", ".:8080"],
        ["localhost:\u0668080", "::1:8080", "[::1:8080", "[::1]8080", "[127.0.0.1]:8080", "[::1%lo]:8080"],
        ["user@localhost:8080", "localhost:8080@evil.com", "localhost:8080/x", "localhost:8080, evil.com"],
        ["http://localhost:8080", "localh\u00f6st:8080", "localhost\u2024:8080"],
        ["localho\u017ft:8080"],  # its capital letter is S
    ),
    (
        (LOOPBACK, FOREIGN),
        ["localhost", "localhost:", "localhost:8081", "localhost..:8080", "localhost.evil.com:8080", EVIL],
        ["evil-localhost:8080", "127.0.0.1.evil.com:8080", "serve.example.evil.com", "app.example", "box:8080"],
        ["192.168.1.2:8080", "127.0.0.2:8080", "127.1:8080", "2130706433:8080", "0.0.0.0:8080"],
        ["[::ffff:127.0.0.1]:8080"],
    ),
    ((WILDCARD, None), ["localhost:9000", "box.lan:8080", "192.168.1.2:32768", "[fe80::1]", "0.0.0.0:8080"]),
    ((WILDCARD, FOREIGN), [EVIL, "192.168.1.2.evil.com:8080", "192.168.1.257:8080"]),
    ((WILDCARD, "no Host header"), [None]),
    ((IPV6_WILDCARD, None), ["127.0.0.1:1", "box"]),
    ((WEB_PORT, None), ["localhost", "localhost:80"]),
    ((WEB_PORT, FOREIGN), ["localhost:443"]),
    ((NAMED, None), ["box.lan:8080", "localhost:8080"]),
    ((NAMED, FOREIGN), ["other:8080"]),
    ((SOCKET, None), ["localhost"]),
    ((SOCKET, FOREIGN), ["evil.com", "10.0.0.1"]),
]
# guard, Host header, reason of the refusal → Origin headers
ORIGINS = [
    (
        (LOOPBACK, "localhost:8080", None),
        ["http://localhost:8080", "HTTP://LOCALHOST:8080", "https://app.example", "https://app.example:443"],
        ["http://dev.example:3000"],
    ),
    ((LOOPBACK, "[::1]:8080", None), ["http://[::1]:8080"]),
    ((LOOPBACK, "serve.example", None), ["http://serve.example"]),
    ((LOOPBACK, "serve.example:80", None), ["http://serve.example"]),
    (
        (LOOPBACK, "localhost:8080", PAGE),
        ["http://127.0.0.1:8080", "https://localhost:8080", "http://localhost", "http://localhost:3000"],
        ["http://app.example", "https://app.example:444", "https://app.example.evil.com", "http://dev.example"],
        ["http://evil.com", "null", "", "*", "localhost:8080", "http://localhost:8080/", "file://"],
        ["http://localhost:8080#evil.com", "http://localhost:8080@evil.com", "http://localhost:8080 http://evil.com"],
    ),
    ((LOOPBACK, EVIL, FOREIGN), [f"http://{EVIL}"]),
    ((WILDCARD, "192.168.1.2:8080", None), ["http://192.168.1.2:8080"]),
    ((WILDCARD, "192.168.1.2:8080", PAGE), ["http://192.168.1.3:8080"]),
    ((WEB_PORT, "localhost", None), ["http://localhost:80"]),
]
REQUESTS = [(guard, host, None, why) for (guard, why), *rows in HOSTS for row in rows for host in row]
REQUESTS += [(guard, host, origin, why) for (guard, host, why), *rows in ORIGINS for row in rows for origin in row]


@pytest.mark.parametrize(
    ("guard", "host", "origin", "why"), REQUESTS, ids=[ascii((host, origin)) for _, host, origin, _ in REQUESTS]
)
def test_guards(guard: Guard, host: str | None, origin: str | None, why: str | None) -> None:
    said = guard.problem(host, origin)
    assert said is None if why is None else why in str(said)


def test_a_refusal_shows_no_raw_text() -> None:
    said = str(LOOPBACK.problem("localhost:8080", "http://\x1b[31m"))
    assert "'http://\\x1b[31m'" in said
    assert said.isprintable()
    assert "--cors-origin" in said
    assert len(LOOPBACK.problem("a" * 8000, None) or "") < 200


def test_wrong_hosts_and_origins_are_refused() -> None:
    wrong = {
        "allowed_hosts": ("invalid-host", ["", "user@host", "http://host", "*.example", "host:x", "::1"]),
        "origins": (
            "invalid-origin",
            ["", "null", "app.example", "https://app.example/", "https://*.example", "https://"],
        ),
    }
    for option, (code, texts) in wrong.items():
        for text in texts:
            with pytest.raises(UsageError, check=has_code(code)):
                Guard.of(Address("127.0.0.1", 8080), machine="box", **{option: [text]})


def test_without_a_guard_every_request_is_refused() -> None:
    admission = Admission(kind=TokenKind.MANAGEMENT, is_guarded=True)
    request: Any = SimpleNamespace(headers=(("Host", "localhost:8081"),), header=lambda _: None)
    with pytest.raises(RequestError) as refused:
        admission.check(Call(request, ""))
    assert refused.value.status == 403
    admission.guard = Guard.of(Address("127.0.0.1", 8081), machine="here")
    admission.check(Call(request, ""))
