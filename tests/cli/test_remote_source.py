"""SOURCE at an address: looked at as it lies, run only by its digest or on its user's word."""

import functools
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest
from cli import running

import marpack as api

HANDLER = "def handle(data, context):\n    return [str(row.get('body')).upper() for row in data or []]\n"
Marpack = Callable[..., tuple[int, str, str]]
OTHER = "0" * 64


@pytest.fixture
def mar(make_mar) -> Path:
    return make_mar(HANDLER, name="loud", files={"w.bin": bytes(100_000)})


@pytest.fixture
def sha256(mar: Path) -> str:
    return hashlib.sha256(mar.read_bytes()).hexdigest()


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # the other side has had enough


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(mar: Path) -> Iterator[str]:
    make = functools.partial(Quiet, directory=str(mar.parent))
    with Server(("127.0.0.1", 0), make) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def kept() -> list[str]:
    return sorted(path.name for path in Path("cache").glob("*/model/*.mar"))


def test_it_is_run_by_its_digest(marpack: Marpack, site: str, sha256: str):
    address = f"{site.replace('//', '//ann:secret@')}/loud.mar?token=secret#sha256={sha256}"
    done = running.marpack("run", address, "--data", "quiet", "--json")
    assert json.loads(done.stdout)["results"][0]["body"] == "QUIET"
    assert f"using {site}/loud.mar?…#sha256={sha256}" in done.stderr.replace("\n", "")
    assert "secret" not in done.stdout + done.stderr
    assert kept() == ["loud.mar"]
    assert not any("secret" in str(path) for path in Path("cache").rglob("*"))


@pytest.mark.parametrize("how", [{"trust_url": True}, {"digest": "sha256:…"}])
def test_the_functions_take_it_too(how: dict[str, object], marpack: Marpack, site: str, sha256: str):
    how = {name: f"sha256:{sha256}" if name == "digest" else value for name, value in how.items()}
    with api.load(f"{site}/loud.mar", **how) as model:  # type: ignore[arg-type]
        assert model.predict("quiet").body == "QUIET"


def test_a_check_says_no_to_other_bytes_and_yes_to_these(marpack: Marpack, site: str, sha256: str):
    words = ("check", f"{site}/loud.mar", "--only", "manifest", "--json")
    assert marpack(*words, "--digest", f"sha256:{OTHER}")[0] == 3
    code, out, _ = marpack(*words, "--trust-url")
    assert code == 0, out


def test_what_is_looked_at_needs_no_word_and_is_read_by_range_or_whole(marpack: Marpack, site: str, sha256: str):
    code, out, _ = marpack("inspect", f"{site}/loud.mar#sha256={sha256}", "--json")
    assert (code, json.loads(out)["source"]) == (0, f"{site}/loud.mar")
    assert kept() == ["loud.mar"]
    assert marpack("diff", f"{site}/loud.mar#sha256={sha256}", f"{site}/loud.mar")[1].splitlines()[0] == "the same"
    assert marpack("unpack", f"{site}/loud.mar#sha256={sha256}")[0] == 0
    assert Path("loud/handler.py").read_text() == HANDLER


def test_another_file_system_needs_a_word_too(marpack: Marpack, mar: Path):
    with fsspec.open("memory://store/loud.mar", "wb") as file:
        file.write(mar.read_bytes())
    code, _, err = marpack("run", "memory://store/loud.mar", "--data", "x", "--trust-url")
    assert code == 2
    assert " memory:" in err


LOUD = "SITE/loud.mar"
# Words behind `marpack`, exit code, and what is said; SITE is the server's address.
WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "run unasked": (("run", LOUD, "--data", "x"), 2, "its code would run"),
    "check unasked": (("check", LOUD), 2, "its code would run"),
    "serve unasked": (("serve", LOUD), 2, "its code would run"),
    "a name served unasked": (("serve", f"other={LOUD}"), 2, "its code would run"),
    "compared unasked": (("check", LOUD, "--against", LOUD, "--data", "x"), 2, "its code would run"),
    "plain http": (("run", "http://a.invalid/x.mar", "--data", "x", "--trust-url"), 2, "plain http"),
    "nobody there": (("run", "https://127.0.0.1:1/x.mar", "--data", "x", "--trust-url"), 3, "cannot reach"),
    "file": (("run", "file:///etc/passwd", "--data", "x", "--trust-url"), 2, "not from file:"),
    "ftp": (("run", "ftp://a.invalid/x.mar", "--data", "x", "--trust-url"), 2, "not from ftp:"),
    "gs": (("run", "gs://bucket/x.mar", "--data", "x", "--trust-url"), 2, "not from gs:"),
    "nothing": (("run", "://", "--data", "x", "--trust-url"), 2, "not from :"),
    "other bytes": (("run", f"{LOUD}#sha256={OTHER}", "--data", "x"), 3, OTHER),
    "behind the inputs": (("run", "--input", "x.json", f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "other bytes looked at": (("inspect", f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "other bytes compared": (("diff", LOUD, f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "other bytes unpacked": (("unpack", f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "short digest": (("run", f"{LOUD}#sha256=12", "--data", "x"), 2, "'#sha256=12' is not a digest"),
    "another hash": (("inspect", f"{LOUD}#md5={OTHER}"), 2, "is not a digest"),
    "a colon": (("inspect", f"{LOUD}#sha256:{OTHER}"), 2, "#sha256= and 64 hexadecimal digits"),
    "an empty one": (("inspect", f"{LOUD}#"), 2, "'#' is not a digest"),
    "no digest": (("run", LOUD, "--data", "x", "--digest", "latest"), 2, "--digest latest"),
    "an empty option": (("run", LOUD, "--data", "x", "--digest", ""), 2, "not a digest"),
    "two digests": (
        ("run", f"{LOUD}#sha256={OTHER}", "--data", "x", "--digest", f"sha256:{'1' * 64}"),
        2,
        f"the address has another digest: {OTHER}",
    ),
    "a digest of a file": (("run", "loud.mar", "--data", "x", "--digest", f"sha256:{OTHER}"), 2, "for a file at an"),
    "a digest of a project": (("check", "--digest", f"sha256:{OTHER}"), 2, "for a file at an http, https or s3"),
    "a digest of a registry's": (
        ("run", "oci://127.0.0.1:1/a:1", "--data", "x", "--digest", f"sha256:{OTHER}"),
        2,
        "oci://HOST/REPOSITORY@sha256:…",
    ),
    "not there": (("run", "SITE/none.mar", "--data", "x", "--trust-url"), 3, "404"),
    "no archive": (("run", "SITE/text.mar", "--data", "x", "--trust-url"), 3, "text.mar"),
    "a folder": (("run", "SITE/", "--data", "x", "--trust-url"), 3, "file"),
    "too large": (("check", LOUD, "--trust-url", "--max-size", "9"), 3, "--max-size"),
    "too large to look at": (("unpack", f"{LOUD}#sha256={OTHER}", "--max-size", "9"), 3, "--max-size"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_kept(name: str, marpack: Marpack, site: str, mar: Path):
    words, expected, message = WRONG[name]
    mar.with_name("text.mar").write_text("no archive")
    Path("x.json").write_text("{}")
    code, out, err = marpack(*(word.replace("SITE", site) for word in words))
    assert code == expected, err
    assert message in err.replace("\n", " ")
    assert out == ""
    assert name in ("no archive", "a folder") or kept() == []
    assert not Path("loud").exists()
