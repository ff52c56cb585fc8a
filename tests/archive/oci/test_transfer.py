import errno
import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import has_code
from registries import Asked, FakeRegistry, Reply, log_in, served, sha256

from marpack.archive.addresses import Reference
from marpack.archive.oci import AttachmentKind, PullReport, PushReport
from marpack.archive.oci.repository import ARCHIVE_TYPE, TITLE
from marpack.archive.oci.session import RegistrySession
from marpack.archive.oci.transfer import EMPTY, plan_push, pull, push
from marpack.errors import (
    DamagedArchiveError,
    LimitExceededError,
    MarpackError,
    NotAnArchiveError,
    OutputError,
    OutputExistsError,
    RegistryError,
    UnsafeArchiveError,
    UsageError,
)

SIGNATURE = b'{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}'
STATEMENT = b'{"_type": "https://in-toto.io/Statement/v1"}'
ENVELOPE = b'{"payload": "", "payloadType": "application/vnd.in-toto+json", "signatures": []}'
SBOM = b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}'


@pytest.fixture
def mar(make_mar) -> Path:
    return make_mar("x = 1\n", name="digits", files={"w.bin": bytes(range(256)) * 1000})


def session_for(host: str, name: str = "team/digits:1.0") -> RegistrySession:
    return RegistrySession(Reference.parse(f"oci://{host}/{name}"))


def pushed(host: str, path: Path, *attach: Path, beside: bool = True, name: str = "team/digits:1.0") -> PushReport:
    with session_for(host, name) as session:
        return push(session, plan_push(path, attach, beside=beside))


def pulled(host: str, output: Path | str | None, name: str = "team/digits:1.0", **options: Any) -> PullReport:
    with session_for(host, name) as session:
        return pull(session, None if output is None else str(output), **{"maximum": 1 << 30, **options})


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.exists() else {}


def with_all_beside(mar: Path) -> dict[str, bytes]:
    beside = {"digits.mar.sig": SIGNATURE, "digits.mar.intoto.json": ENVELOPE, "digits.mar.cdx.json": SBOM}
    for name, data in beside.items():
        mar.with_name(name).write_bytes(data)
    return beside


def test_what_is_pushed_is_what_is_pulled(registry: str, mar: Path, tmp_path: Path):
    beside = with_all_beside(mar)
    sent = pushed(registry, mar, name="all/digits:1.0")
    came = pulled(registry, f"{tmp_path}/here/", "all/digits:1.0")
    assert files(tmp_path / "here") == {"digits.mar": mar.read_bytes(), **beside}
    assert came.digest == sent.digest
    assert came.archive == sent.archive == sha256(mar.read_bytes())
    assert sent.size == came.size == mar.stat().st_size
    assert {each.kind for each in sent.attached} == {each.kind for each in came.attached} == set(AttachmentKind)
    assert came.left == ()
    assert sent.reference == came.reference == f"oci://{registry}/all/digits:1.0@{sent.digest}"
    again = pushed(registry, mar, name="all/digits:1.0")
    assert again.sent == 0
    assert again.digest == sent.digest
    later = pulled(registry, f"{tmp_path}/later/", f"all/digits@{sent.digest}", attached=False)
    assert files(tmp_path / "later") == {"digits.mar": mar.read_bytes()}
    assert later.attached == ()


def test_what_a_registry_holds_is_an_artifact(registry: str, mar: Path):
    pushed(registry, mar, name="artifact/digits:1.0")
    manifest = served(registry, "/v2/artifact/digits/manifests/1.0")
    data = mar.read_bytes()
    assert manifest == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": ARCHIVE_TYPE,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(EMPTY), "size": 2},
        "layers": [
            {
                "mediaType": "application/vnd.marpack.mar.v1",
                "digest": sha256(data),
                "size": len(data),
                "annotations": {TITLE: "digits.mar"},
            }
        ],
        "annotations": {"org.marpack.model.name": "digits", "org.marpack.model.version": "1.0"},
    }


def test_another_tool_pulls_the_same(registry: str, mar: Path, tmp_path: Path):
    pushed(registry, mar, name="judged/digits:1.0")
    from oras.client import OrasClient

    client = OrasClient(insecure=True)
    (file,) = client.pull(target=f"{registry}/judged/digits:1.0", outdir=str(tmp_path / "theirs"))
    client.session.close()
    assert Path(file).read_bytes() == mar.read_bytes()


def test_referrers_are_listed_under_a_tag_once_each(registry: str, mar: Path, tmp_path: Path):
    for number in (1, 2):
        (tmp_path / f"{number}.json").write_bytes(STATEMENT + b" " * number)
    first = pushed(registry, mar, tmp_path / "1.json", name="twice/digits:1.0")
    second = pushed(registry, mar, tmp_path / "2.json", tmp_path / "1.json", name="twice/digits:1.0")
    assert first.digest == second.digest
    tag = first.digest.replace(":", "-")
    listed = served(registry, f"/v2/twice/digits/manifests/{tag}")["manifests"]
    assert [each["artifactType"] for each in listed] == ["application/vnd.in-toto+json"] * 2
    (tmp_path / "here").mkdir()
    pulled(registry, tmp_path / "here", "twice/digits:1.0")
    found = files(tmp_path / "here")
    assert found.keys() == {"digits.mar", "digits.mar.intoto.json", "digits.mar.2.intoto.json"}
    assert {found["digits.mar.intoto.json"], found["digits.mar.2.intoto.json"]} == {STATEMENT + b" ", STATEMENT + b"  "}


def test_a_registry_with_credentials(private_registry: str, mar: Path, tmp_path: Path, home: Path):
    with pytest.raises(RegistryError, check=has_code("credentials-missing")):
        pushed(private_registry, mar)
    log_in(home, private_registry, password="wrong")
    with pytest.raises(RegistryError, check=has_code("credentials-refused")):
        pushed(private_registry, mar)
    log_in(home, private_registry)
    sent = pushed(private_registry, mar)
    assert pulled(private_registry, f"{tmp_path}/here/").archive == sent.archive


@pytest.mark.parametrize("name", ["none/digits:1.0", "there/digits:2.0", f"there/digits@{sha256(b'')}"])
def test_what_is_not_there(name: str, registry: str, mar: Path, tmp_path: Path):
    pushed(registry, mar, name="there/digits:1.0")
    with pytest.raises(RegistryError, check=has_code("registry")):
        pulled(registry, f"{tmp_path}/here/", name)
    assert not (tmp_path / "here").exists()


def test_a_tgz_keeps_its_form(registry: str, tmp_path: Path, make_folder):
    folder, path = make_folder("x = 1\n"), tmp_path / "probe.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "probe")
    pushed(registry, path, name="tgz/probe:1")
    assert served(registry, "/v2/tgz/probe/manifests/1")["layers"][0]["mediaType"].endswith("tar+gzip")
    assert pulled(registry, f"{tmp_path}/here/", "tgz/probe:1").file == f"{tmp_path}/here/probe.tar.gz"


def test_the_tag_is_set_last(fake: FakeRegistry, mar: Path):
    with_all_beside(mar)
    sent = pushed(fake.host, mar)
    puts = [path.rpartition("/")[2] for path in fake.paths("PUT") if "/manifests/" in path]
    assert puts[0] == sent.digest
    assert puts[-1] == "1.0"
    assert len(puts) == 2 + 3 * 2


def test_a_registry_that_lists_referrers_itself_is_let_do_so(fake: FakeRegistry, mar: Path, tmp_path: Path):
    beside = with_all_beside(mar)

    def lists(asked: Asked) -> Reply | None:
        if "/referrers/" in asked.path:
            entries = [
                {
                    "mediaType": "m",
                    "digest": digest,
                    "size": len(data),
                    "artifactType": json.loads(data)["artifactType"],
                }
                for digest, data in fake.manifests.items()
                if b'"subject"' in data
            ]
            page = entries[:1] if "?" not in asked.path else entries[1:]
            data = json.dumps({"schemaVersion": 2, "mediaType": "i", "manifests": page}).encode()
            more = {} if "?" in asked.path else {"Link": f'<{asked.path}?last=1>; rel="next"'}
            return Reply(200, data, more)
        return None

    original = fake.usual

    def usual(asked: Asked, sent: bytes) -> Reply:
        reply = original(asked, sent)
        named = asked.method == "PUT" and b'"subject"' in sent
        return reply._replace(headers={**reply.headers, "OCI-Subject": "yes"}) if named else reply

    fake.usual = usual  # type: ignore[method-assign]
    fake.rules = [lists]
    pushed(fake.host, mar)
    assert not [path for path in fake.paths("PUT") if "/manifests/sha256-" in path]
    pulled(fake.host, f"{tmp_path}/here/")
    assert files(tmp_path / "here") == {"digits.mar": mar.read_bytes(), **beside}


def test_what_others_attached_is_left(fake: FakeRegistry, mar: Path, tmp_path: Path):
    sent = pushed(fake.host, mar)
    entries = [
        {"mediaType": "m", "digest": "sha512:abc", "size": 1, "artifactType": "application/x", "data": "e30="},
        {"mediaType": "m", "digest": "sha256:" + "0" * 64, "size": 1},
    ]
    listed = json.dumps({"schemaVersion": 2, "mediaType": "i", "manifests": entries}).encode()
    fake.manifests[sent.digest.replace(":", "-")] = listed
    assert pulled(fake.host, f"{tmp_path}/here/").left == ("unknown", "application/x")
    with_all_beside(mar)
    pushed(fake.host, mar)
    now = json.loads(fake.manifests[sent.digest.replace(":", "-")])["manifests"]
    assert now[:2] == entries
    assert len(now) == 5


UNFIT: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing": (lambda folder: folder / "none.mar", "the file does not exist"),
    "a folder": (lambda folder: folder, "a model folder cannot be pushed"),
    "another suffix": (lambda folder: (folder / "digits.mar").rename(folder / "digits.zip"), "must end in .mar"),
    "hidden": (lambda folder: (folder / "digits.mar").rename(folder / ".digits.mar"), "must end in .mar"),
    "a control character": (lambda folder: (folder / "digits.mar").rename(folder / "a\nb.mar"), "control"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_cannot_be_pushed(name: str, mar: Path, tmp_path: Path):
    make, message = UNFIT[name]
    with pytest.raises((UsageError, UnsafeArchiveError)) as caught:
        plan_push(make(tmp_path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"{", b"\xff", b'{"bomFormat": "SPDX"}', b"[" * 100_000, b"PK\x03\x04"]
)
def test_what_cannot_be_attached(data: bytes, mar: Path, tmp_path: Path):
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(UsageError, check=has_code("unknown-attachment")) as caught:
        plan_push(mar, [tmp_path / "x.json"])
    assert caught.value.where == f"--attach {tmp_path / 'x.json'}"


@pytest.mark.parametrize(("name", "message"), [("none.json", "cannot be read"), (".", "not a regular file")])
def test_what_is_no_file_cannot_be_attached(name: str, message: str, mar: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        plan_push(mar, [tmp_path / name])


def test_too_large_to_be_attached(mar: Path, tmp_path: Path):
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(UsageError, check=has_code("attachment-too-large", "67,108,864")):
        plan_push(mar, [tmp_path / "x.json"])


def test_what_lies_beside_may_be_left(mar: Path, tmp_path: Path):
    with_all_beside(mar)
    assert plan_push(mar, beside=False).attachments == ()
    assert len(plan_push(mar, [mar.with_name("digits.mar.sig")]).attachments) == 3


def test_a_file_that_changes_meanwhile(fake: FakeRegistry, mar: Path):
    plan = plan_push(mar)
    data = mar.read_bytes()
    mar.write_bytes(data[:-1] + b"x")
    with session_for(fake.host) as session, pytest.raises(RegistryError, check=has_code("upload-mismatch")):
        push(session, plan)
    mar.write_bytes(data + b"x")
    with session_for(fake.host) as session, pytest.raises(UsageError, check=has_code("file-changed")):
        push(session, plan)
    assert "1.0" not in fake.manifests


def manifest_of(data: bytes, **changes: Any) -> bytes:
    layer = {"mediaType": "application/vnd.marpack.mar.v1", "digest": sha256(data), "size": len(data)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": ARCHIVE_TYPE,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(EMPTY), "size": 2},
        "layers": [{**layer, "annotations": {TITLE: "digits.mar"}}],
    }
    return json.dumps(manifest | changes).encode()


DATA = b"what the registry holds"
LAYER = json.loads(manifest_of(DATA))["layers"][0]
NO_ARCHIVES: dict[str, tuple[bytes, type[MarpackError], str]] = {
    "a page": (b"<html>", NotAnArchiveError, "not an OCI registry"),
    "a list": (b"[]", NotAnArchiveError, "not an OCI registry"),
    "too deep": (b"[" * 100_000, NotAnArchiveError, "not an OCI registry"),
    "an index": (
        b'{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}',
        NotAnArchiveError,
        "an index of several manifests",
    ),
    "docker's index": (
        b'{"mediaType": "application/vnd.docker.distribution.manifest.list.v2+json"}',
        NotAnArchiveError,
        "an index of several manifests",
    ),
    "an image": (
        manifest_of(DATA, artifactType=None, config={"mediaType": "image", "digest": sha256(b""), "size": 0}),
        NotAnArchiveError,
        "not an archive, but image",
    ),
    "another artifact": (manifest_of(DATA, artifactType="x"), NotAnArchiveError, "not an archive, but x"),
    "no layer": (manifest_of(DATA, layers=[]), NotAnArchiveError, "this has 0 layers; an archive has one"),
    "two layers": (manifest_of(DATA, layers=[LAYER, LAYER]), NotAnArchiveError, "this has 2 layers"),
    "another layer": (
        manifest_of(DATA, layers=[{**LAYER, "mediaType": "y"}]),
        NotAnArchiveError,
        "not an archive, but y",
    ),
    "no digest": (manifest_of(DATA, layers=[{**LAYER, "digest": "md5:1"}]), DamagedArchiveError, "cannot be read"),
    "no size": (manifest_of(DATA, layers=[{**LAYER, "size": -1}]), DamagedArchiveError, "cannot be read"),
    "schema 1": (manifest_of(DATA, schemaVersion=1), DamagedArchiveError, "cannot be read"),
    "another size": (manifest_of(DATA, layers=[{**LAYER, "size": 5}]), DamagedArchiveError, "it has 23 bytes"),
    "another blob": (manifest_of(DATA, layers=[{**LAYER, "digest": sha256(b"x")}]), RegistryError, "not found"),
    "too large": (manifest_of(DATA, layers=[{**LAYER, "size": 1 << 40}]), LimitExceededError, "1,073,741,824"),
}


@pytest.mark.parametrize("name", NO_ARCHIVES)
def test_what_is_no_archive_is_refused(name: str, fake: FakeRegistry, tmp_path: Path):
    data, kind, message = NO_ARCHIVES[name]
    fake.blobs[sha256(DATA)] = DATA
    fake.manifests["1.0"] = data
    with pytest.raises(kind) as caught:
        pulled(fake.host, f"{tmp_path}/here/")
    assert message in str(caught.value)
    assert not (tmp_path / "here").exists()


def titled(title: str) -> bytes:
    return manifest_of(DATA, layers=[{**LAYER, "annotations": {TITLE: title}}])


@pytest.mark.parametrize(
    "title",
    ["../x.mar", "/etc/x.mar", "a/b.mar", ".x.mar", "x.tar.gz", "Makefile", "a\\b.mar", "a\x1b[0m.mar", "C:x.mar"],
)
def test_a_title_is_no_path(title: str, fake: FakeRegistry, tmp_path: Path):
    fake.blobs[sha256(DATA)] = DATA
    fake.manifests["1.0"] = titled(title)
    with pytest.raises(UnsafeArchiveError, check=has_code("unsafe-archive", ascii(title), "-o model.mar")) as caught:
        pulled(fake.host, f"{tmp_path}/here/")
    assert str(caught.value).isprintable()
    assert pulled(fake.host, tmp_path / "mine.mar").file == str(tmp_path / "mine.mar")


def test_without_a_title_it_is_named_after_the_repository(
    fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake.blobs[sha256(DATA)] = DATA
    fake.manifests["1.0"] = manifest_of(DATA, layers=[{**LAYER, "annotations": {}}])
    monkeypatch.chdir(tmp_path)
    assert pulled(fake.host, None).file == "digits.mar"


def test_a_registry_that_lies_keeps_nothing_here(fake: FakeRegistry, mar: Path, tmp_path: Path, pauses: list[float]):
    beside = with_all_beside(mar)
    sent = pushed(fake.host, mar)
    for digest in (sent.archive, *(each.digest for each in sent.attached)):
        honest = fake.blobs[digest]
        fake.blobs[digest] = honest[:-1] + b"x"
        with pytest.raises(DamagedArchiveError, check=has_code("digest-mismatch", digest)):
            pulled(fake.host, f"{tmp_path}/here/")
        assert not (tmp_path / "here").exists()
        fake.blobs[digest] = honest
    for name in list(fake.manifests):
        if name.startswith("sha256:") and b'"subject"' in fake.manifests[name]:
            honest = fake.manifests[name]
            fake.manifests[name] = honest + b" "
            with pytest.raises(DamagedArchiveError, check=has_code("digest-mismatch", name)):
                pulled(fake.host, f"{tmp_path}/here/")
            fake.manifests[name] = honest
    pulled(fake.host, f"{tmp_path}/here/")
    assert files(tmp_path / "here") == {"digits.mar": mar.read_bytes(), **beside}


def test_a_manifest_that_its_header_denies(fake: FakeRegistry, tmp_path: Path):
    fake.rules = [lambda asked: Reply(200, manifest_of(DATA), {"Docker-Content-Digest": sha256(b"")})]
    with pytest.raises(DamagedArchiveError, check=has_code("digest-mismatch", sha256(b""))):
        pulled(fake.host, f"{tmp_path}/here/")


def test_a_referrer_of_something_else_is_refused(fake: FakeRegistry, mar: Path, tmp_path: Path):
    mar.with_name("digits.mar.cdx.json").write_bytes(SBOM)
    first = pushed(fake.host, mar)
    mar.with_name("digits.mar.cdx.json").unlink()
    other = json.loads(fake.manifests["1.0"]) | {"annotations": {"x": "y"}}
    fake.manifests["1.0"] = json.dumps(other).encode()
    fake.manifests[sha256(fake.manifests["1.0"]).replace(":", "-")] = fake.manifests[first.digest.replace(":", "-")]
    with pytest.raises(DamagedArchiveError, check=has_code("referrer-mismatch")):
        pulled(fake.host, f"{tmp_path}/here/")


def test_a_tag_that_moves_while_it_is_pulled(fake: FakeRegistry, mar: Path, make_mar, tmp_path: Path):
    with_all_beside(mar)
    pushed(fake.host, mar)
    expected = mar.read_bytes()
    old = fake.manifests["1.0"]
    newer = make_mar("x = 2\n", name="newer")

    def moves(asked: Asked) -> Reply | None:
        if asked.method == "GET" and asked.path.endswith("/manifests/1.0"):
            data, fake.manifests["1.0"] = fake.manifests["1.0"], manifest_of(newer.read_bytes())
            return Reply(200, data)
        return None

    fake.rules = [moves]
    came = pulled(fake.host, f"{tmp_path}/here/")
    assert came.digest == sha256(old)
    assert (tmp_path / "here" / "digits.mar").read_bytes() == expected
    assert len(files(tmp_path / "here")) == 4
    assert fake.manifests["1.0"] != old


def test_nothing_is_replaced_unasked(fake: FakeRegistry, mar: Path, tmp_path: Path):
    mar.with_name("digits.mar.cdx.json").write_bytes(SBOM)
    pushed(fake.host, mar)
    here = tmp_path / "here"
    here.mkdir()
    for name in ("digits.mar", "digits.mar.cdx.json"):
        (here / name).write_bytes(b"mine")
        with pytest.raises(OutputExistsError, match="already exists"):
            pulled(fake.host, here)
        assert files(here) == {name: b"mine"}
        (here / name).unlink()
    (here / "digits.mar").write_bytes(b"mine")
    pulled(fake.host, here, replace=True)
    assert files(here) == {"digits.mar": mar.read_bytes(), "digits.mar.cdx.json": SBOM}


def test_all_files_appear_or_none(fake: FakeRegistry, mar: Path, tmp_path: Path):
    mar.with_name("digits.mar.cdx.json").write_bytes(SBOM)
    sent = pushed(fake.host, mar)
    here = tmp_path / "here"

    def appears(asked: Asked) -> Reply | None:
        if asked.path.endswith(sent.attached[0].digest):  # the last to be fetched, the first to get its name
            (here / "digits.mar").write_bytes(b"mine")
        return None

    fake.rules = [appears]
    with pytest.raises(OutputExistsError):
        pulled(fake.host, f"{here}/")
    assert files(here) == {"digits.mar": b"mine"}


def test_a_place_that_cannot_be_written(fake: FakeRegistry, mar: Path, tmp_path: Path):
    pushed(fake.host, mar)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, check=has_code("output", os.strerror(errno.EEXIST))):
        pulled(fake.host, tmp_path / "file" / "x.mar")
    with pytest.raises(UsageError, check=has_code("wrong-suffix", ".mar")):
        pulled(fake.host, tmp_path / "x.zip")


@pytest.mark.parametrize("name", ["team/digits@" + sha256(b""), "team/digits:1@" + sha256(b"")])
def test_only_tags_are_pushed_to(name: str, fake: FakeRegistry, mar: Path):
    with pytest.raises(UsageError, check=has_code("tag-required")):
        pushed(fake.host, mar, name=name)
    assert fake.asked == []


def test_a_registry_that_took_it_for_another(fake: FakeRegistry, mar: Path):
    fake.rules = [
        lambda asked: Reply(201, headers={"Docker-Content-Digest": sha256(b"")}) if asked.path.endswith("1.0") else None
    ]
    with pytest.raises(RegistryError, check=has_code("upload-mismatch", sha256(b""))):
        pushed(fake.host, mar)


def test_a_digest_is_of_the_file(mar: Path):
    assert plan_push(mar).layer.digest == f"sha256:{hashlib.sha256(mar.read_bytes()).hexdigest()}"
