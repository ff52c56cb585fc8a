import io
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from refusals import has_code
from registries import FakeRegistry, served, sha256

from marpack.archive.oci.model_image import push_model_image
from marpack.archive.oci.pull import pull
from marpack.archive.oci.push import plan_push
from marpack.archive.oci.reference import Reference
from marpack.archive.oci.session import RegistrySession
from marpack.archive.transfers import PushReport
from marpack.errors import NotAnArchiveError, UsageError


@pytest.fixture
def mar(make_mar) -> Path:
    return make_mar("x = 1\n", name="digits", files={"w.bin": bytes(range(256)) * 1000})


def pushed(host: str, path: Path, *attach: Path) -> PushReport:
    with RegistrySession(Reference.parse(f"oci://{host}/team/image:1.0")) as session:
        return push_model_image(session, plan_push(path, attach, beside=False))


def json_of(data: bytes) -> Any:
    return msgspec.json.decode(data)


@pytest.mark.parametrize("name", ["digits.mar", f"{'n' * 120}.mar", "dígits.mar"])
def test_the_layer_holds_the_archive_below_models(name: str, fake: FakeRegistry, mar: Path):
    path = mar.rename(mar.with_name(name))
    report = pushed(fake.host, path)
    assert report.model_image
    assert report.archive == sha256(path.read_bytes())
    index = json_of(fake.manifests["1.0"])
    assert report.digest == sha256(fake.manifests["1.0"])
    assert [each["platform"] for each in index["manifests"]] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux"},
    ]
    for entry in index["manifests"]:
        manifest = json_of(fake.manifests[entry["digest"]])
        config = json_of(fake.blobs[manifest["config"]["digest"]])
        (layer,) = manifest["layers"]
        data = fake.blobs[layer["digest"]]
        assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar"
        assert layer["size"] == len(data)
        assert len(data) % 512 == 0
        assert config["rootfs"] == {"type": "layers", "diff_ids": [sha256(data)]}
        assert (config["os"], config["architecture"]) == ("linux", entry["platform"]["architecture"])
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
            found = [(each.name, each.isdir(), each.mode, each.mtime, each.uid) for each in archive]
        assert found == [("models", True, 0o755, 0, 0), (f"models/{name}", False, 0o644, 0, 0)]
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = archive.extractfile(f"models/{name}")
            assert member is not None
            assert member.read() == path.read_bytes()


def test_the_same_archive_is_the_same_image(fake: FakeRegistry, mar: Path):
    first = pushed(fake.host, mar)
    second = pushed(fake.host, mar)
    assert first.digest == second.digest
    assert second.sent == 0


def test_a_real_registry_takes_it(registry: str, mar: Path):
    report = pushed(registry, mar)
    index = served(registry, "/v2/team/image/manifests/1.0")
    assert len(index["manifests"]) == 2
    assert index["annotations"] == {"org.marpack.model.name": "digits", "org.marpack.model.version": "1.0"}
    assert report.reference.endswith(report.digest)


def test_it_is_no_archive_to_pull(fake: FakeRegistry, mar: Path, tmp_path: Path):
    report = pushed(fake.host, mar)
    entry = json_of(fake.manifests["1.0"])["manifests"][0]["digest"]
    for name, message in ((report.digest, "an index"), (entry, "no archive: it is application/vnd.oci.image.config")):
        with (
            RegistrySession(Reference.parse(f"oci://{fake.host}/team/image@{name}")) as session,
            pytest.raises(NotAnArchiveError, match=message),
        ):
            pull(session, f"{tmp_path}/here/", maximum=1 << 30)


def test_nothing_is_attached_to_it(fake: FakeRegistry, mar: Path, tmp_path: Path):
    (tmp_path / "x.json").write_text('{"bomFormat": "CycloneDX"}')
    with pytest.raises(UsageError, check=has_code("model-image-attachment", "--no-attach")):
        pushed(fake.host, mar, tmp_path / "x.json")
    assert fake.asked == []


def test_a_file_that_shrinks_meanwhile(fake: FakeRegistry, mar: Path):
    plan = plan_push(mar, beside=False)
    mar.write_bytes(b"short")
    with (
        RegistrySession(Reference.parse(f"oci://{fake.host}/team/image:1.0")) as session,
        pytest.raises(UsageError, check=has_code("file-changed")),
    ):
        push_model_image(session, plan)
