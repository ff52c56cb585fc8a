"""SOURCE at an address: looked at as it lies, run only by its digest or on its user's word."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from archive.site import Site, respond
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


@pytest.fixture
def site(mar: Path) -> Iterator[str]:
    with Site() as site:
        site.default = respond(404)
        site.answers["/loud.mar"] = respond(body=mar.read_bytes())
        site.answers |= {"/text.mar": respond(body=b"no archive"), "/": respond(body=b"<html>")}
        yield site.url


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


def test_the_functions_take_it_too(marpack: Marpack, site: str, sha256: str):
    with api.load(f"{site}/loud.mar", digest=f"sha256:{sha256}") as model:
        assert model.predict("quiet").body == "QUIET"
    assert api.check(f"{site}/loud.mar", only=["manifest"], trust_url=True).exit_code == 0


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
    "gs": (("run", "gs://bucket/x.mar", "--data", "x", "--trust-url"), 2, "not from gs:"),
    "nothing": (("run", "://", "--data", "x", "--trust-url"), 2, "not from :"),
    "other bytes": (("run", f"{LOUD}#sha256={OTHER}", "--data", "x"), 3, OTHER),
    "behind the inputs": (("run", "--input", "x.json", f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "other bytes looked at": (("inspect", f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "other bytes compared": (("diff", LOUD, f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "other bytes unpacked": (("unpack", f"{LOUD}#sha256={OTHER}"), 3, OTHER),
    "short digest": (("run", f"{LOUD}#sha256=12", "--data", "x"), 2, "'#sha256=12' is not a digest"),
    "no digest": (("run", LOUD, "--data", "x", "--digest", "latest"), 2, "--digest latest"),
    "a digest of a project": (("check", "--digest", f"sha256:{OTHER}"), 2, "for a file at an http, https or s3"),
    "not there": (("run", "SITE/none.mar", "--data", "x", "--trust-url"), 3, "404"),
    "no archive": (("run", "SITE/text.mar", "--data", "x", "--trust-url"), 3, "text.mar"),
    "a folder": (("run", "SITE/", "--data", "x", "--trust-url"), 3, "file"),
    "too large": (("check", LOUD, "--trust-url", "--max-size", "9"), 3, "--max-size"),
    "too large to look at": (("unpack", f"{LOUD}#sha256={OTHER}", "--max-size", "9"), 3, "--max-size"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_kept(name: str, marpack: Marpack, site: str, mar: Path):
    words, expected, message = WRONG[name]
    Path("x.json").write_text("{}")
    code, out, err = marpack(*(word.replace("SITE", site) for word in words))
    assert code == expected, err
    assert message in err.replace("\n", " ")
    assert out == ""
    assert name in ("no archive", "a folder") or kept() == []
    assert not Path("loud").exists()


OCI = "oci://host/team/digits:1.0"


@pytest.mark.parametrize(
    "words",
    [
        ("run", OCI),
        ("run", OCI, "--data", "x", "--trust-url"),
        ("check", OCI),
        ("check", "loud.mar", "--against", OCI, "--data", "x"),
        ("score", OCI, "--input", "x.csv", "--text", "text", "--output", "out"),
        ("serve", OCI),
        ("serve", f"name={OCI}"),
        ("inspect", OCI),
        ("diff", OCI, "loud.mar"),
        ("diff", "loud.mar", OCI),
        ("unpack", OCI),
        ("export", OCI, "--to", "docker"),
        ("init", "--from", OCI),
    ],
    ids=" ".join,
)
def test_a_registry_is_answered_with_the_command_that_fetches(words: tuple[str, ...], marpack: Marpack, mar: Path):
    Path("x.csv").write_text("text\nx\n")
    code, out, err = marpack(*words)
    assert (code, out) == (2, "")
    assert "oras pull host/team/digits:1.0" in err
    assert {path.name for path in Path().iterdir()} <= {"cache", "loud.mar", "x.csv"}


def test_local_files_need_no_http_client(marpack: Marpack, mar: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "urllib3" or name.startswith("marpack.archive")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "urllib3", None)
    assert marpack("inspect", "loud.mar")[0] == 0
    Path("handler.py").write_text(HANDLER)
    assert marpack("build", "--model-name", "x", "--handler", "handler.py", "--version", "1.0")[0] == 0
