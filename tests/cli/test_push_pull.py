"""`marpack push`, `marpack pull` and SOURCE in a registry, as one calls them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lazy import jsonschema
from registries import FakeRegistry, Reply, log_in, sha256

import marpack as api

ROOT = Path(__file__).parents[2]
SBOM = '{"bomFormat": "CycloneDX", "specVersion": "1.6"}'
HANDLER = "def handle(data, context):\n    return data\n"
Marpack = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def mar(make_mar) -> Path:
    return make_mar(HANDLER, name="digits", files={"w.bin": bytes(100_000)})


@pytest.fixture
def pushed(fake: FakeRegistry, marpack: Marpack, mar: Path, home: Path) -> str:
    """Push an archive with an SBOM, and give its address."""
    address = f"oci://{fake.host}/team/digits:1.0"
    Path("digits.mar.cdx.json").write_text(SBOM)
    assert marpack("push", "digits.mar", address)[0] == 0
    Path("digits.mar.cdx.json").unlink()
    fake.forget()
    return address


def schema(name: str, document: Any) -> None:
    jsonschema.validate(document, json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text()))


def test_what_was_pushed_is_shown(marpack: Marpack, registry: str, mar: Path):
    Path("digits.mar.cdx.json").write_text(SBOM)
    code, out, err = marpack("push", "digits.mar", f"oci://{registry}/shown/digits:1.0")
    assert (code, err) == (0, "")
    assert out.startswith(f"pushed oci://{registry}/shown/digits:1.0@sha256:")
    assert f"archive {sha256(mar.read_bytes())}\n" in out
    assert "beside  digits.mar.cdx.json (sbom)\n" in out
    again = marpack("push", "digits.mar", f"oci://{registry}/shown/digits:1.0", "--json")[1]
    assert json.loads(again)["sent"] == 0
    code, out, err = marpack("pull", f"oci://{registry}/shown/digits:1.0", "-o", "here/")
    assert (code, err) == (0, "")
    assert out.startswith("pulled here/digits.mar\n")
    assert Path("here/digits.mar").read_bytes() == mar.read_bytes()
    assert Path("here/digits.mar.cdx.json").read_text() == SBOM


def test_the_results_as_json(marpack: Marpack, fake: FakeRegistry, mar: Path):
    address = f"oci://{fake.host}/team/digits:1.0"
    Path("digits.mar.cdx.json").write_text(SBOM)
    code, out, err = marpack("push", "digits.mar", address, "--json")
    sent = json.loads(out)
    assert (code, err) == (0, "")
    assert sent["source"] == "digits.mar"
    schema("push", sent)
    code, out, err = marpack("pull", address, "-o", "here/", "--json")
    came = json.loads(out)
    assert (code, err) == (0, "")
    assert came["digest"] == sent["digest"]
    assert came["attached"][0]["file"] == "here/digits.mar.cdx.json"
    schema("pull", came)


def test_the_functions_do_the_same(marpack: Marpack, fake: FakeRegistry, mar: Path):
    address = f"oci://{fake.host}/team/digits:1.0"
    Path("x.json").write_text(SBOM)
    sent = api.push(mar, address, attach=[Path("x.json")])
    came = api.pull(address, output=Path("here.mar"))
    assert repr(sent).startswith("PushReport('…")
    assert repr(sent).endswith(f"{sent.digest[-9:]}', 100.5 kB, 1 attached)")
    assert repr(came).startswith("PullReport('here.mar', ")
    assert came.digest == sent.digest
    for result in (sent, came):
        assert "x.json" in result._repr_html_() or "here.mar.cdx.json" in result._repr_html_()
    assert api.pull(address, output="here.mar", force=True, no_attached=True).attached == ()


def test_what_lies_beside_is_left_where_that_is_asked_for(marpack: Marpack, fake: FakeRegistry, mar: Path):
    Path("digits.mar.sig").write_text("no signature")
    address = f"oci://{fake.host}/team/digits:1.0"
    code, _, err = marpack("push", "digits.mar", address)
    assert code == 2
    assert "where: --attach digits.mar.sig" in err
    assert marpack("push", "digits.mar", address, "--no-attach")[0] == 0


WRONG = {  # words (HOST is the registry's) → exit code
    "push none.mar oci://HOST/a:1": 2,
    "push . oci://HOST/a:1": 2,
    "push text.mar oci://HOST/a:1": 3,
    "push cut.mar oci://HOST/a:1": 3,
    "push digits.mar HOST/a:1": 2,
    f"push digits.mar oci://HOST/a@sha256:{'0' * 64}": 2,
    "push digits.mar oci://HOST/Digits:1": 2,
    "push digits.mar oci://127.0.0.1:1/a:1": 1,
    "push digits.mar oci://HOST/a:1 --attach none": 2,
    "push oci://HOST/team/digits:1.0 oci://HOST/a:1": 2,
    "pull oci://HOST/team/digits:2.0": 1,
    "pull oci://127.0.0.1:1/a:1": 1,
    "pull oci://HOST/team/digits:1.0": 2,
    "pull oci://HOST/team/digits:1.0 -o text.mar/x.mar": 1,
    "pull oci://HOST/team/digits:1.0 -o x/ --max-size 9": 3,
    "pull oci://HOST/team/digits:1.0 --max-size many": 2,
    "pull oci://HOST/team/lie:1 -o x/": 3,
    "pull oci://HOST/team/private:1 -o x/": 1,
    "inspect oci://HOST/team/digits:3": 1,
    "inspect oci://HOST/team/lie:1 --verify": 3,
    "run oci://HOST/team/lie:1 --input x.json": 3,
    "unpack oci://HOST/team/lie:1": 3,
    "check oci://HOST/team/digits:1.0 --max-size 9": 3,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code_and_changes_nothing(
    words: str, marpack: Marpack, fake: FakeRegistry, pushed: str, mar: Path
):
    Path("text.mar").write_text("no archive")
    Path("cut.mar").write_bytes(mar.read_bytes()[:-100])
    Path("x.json").write_text(SBOM)
    with_lies(fake)

    def files() -> list[Path]:
        return [path for path in sorted(Path().rglob("*")) if "cache" not in path.parts]

    before = files()
    ended, out, err = marpack(*words.replace("HOST", fake.host).split())
    assert (ended, out) == (WRONG[words], "")
    assert "error:" in err or "Error:" in err
    assert "secret" not in err
    assert files() == before
    assert not list(Path("cache").rglob("*.mar"))
    assert not [path for path in fake.paths("PUT") if path.endswith("/a/manifests/1")]


def with_lies(fake: FakeRegistry) -> None:
    """Let a registry send a changed archive from one repository, and require credentials for another."""
    true = fake.manifests["1.0"]
    digest = json.loads(true)["layers"][0]["digest"]
    fake.rules = [
        lambda asked: Reply(200, true) if asked.path.endswith("/lie/manifests/1") else None,
        lambda asked: (
            Reply(200, fake.blobs[digest][:-1] + b"x")
            if asked.method == "GET" and "/lie/blobs/" in asked.path
            else None
        ),
        lambda asked: (
            Reply(401, headers={"Www-Authenticate": 'Basic realm="x"'}) if "/private/" in asked.path else None
        ),
    ]


def test_credentials_that_were_kept(marpack: Marpack, private_registry: str, mar: Path, home: Path):
    address = f"oci://{private_registry}/team/digits:1.0"
    code, _, err = marpack("push", "digits.mar", address)
    assert code == 1
    assert f"docker login {private_registry}" in err
    log_in(home, private_registry)
    assert marpack("push", "digits.mar", address)[0] == 0
    assert marpack("inspect", address)[0] == 0


def test_looking_takes_ranges(marpack: Marpack, fake: FakeRegistry, pushed: str):
    code, out, _ = marpack("inspect", pushed, "--json")
    assert code == 0
    assert json.loads(out)["source"] == pushed
    assert all("Range" in asked.headers for asked in fake.asked if "/blobs/" in asked.path)
    code, out, _ = marpack("diff", pushed, "digits.mar")
    assert (code, out.splitlines()[0]) == (0, "the same")


def test_plain_http_is_for_this_machine_alone(marpack: Marpack, mar: Path):
    code, out, _ = marpack("push", "digits.mar", "oci://registry.invalid/digits:1.0", "--plain-http", "--json")
    failure = json.loads(out)
    assert (code, failure["code"], "registry.invalid" in failure["error"]) == (1, "unreachable", True)


def test_local_files_need_no_http_client(marpack: Marpack, mar: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "urllib3" or name.startswith("marpack.archive")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "urllib3", None)
    assert marpack("inspect", "digits.mar")[0] == 0
    Path("handler.py").write_text(HANDLER)
    assert marpack("build", "--model-name", "x", "--handler", "handler.py", "--version", "1.0")[0] == 0
