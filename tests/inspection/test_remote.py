"""Archives elsewhere: how little is fetched, and what is said when it cannot be."""

import base64
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fsspec
import pytest
from lazy import torch
from refusals import has_code

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, DamagedArchiveError, MissingExtraError, NotAnArchiveError
from marpack.inspection.inspect import inspect
from marpack.inspection.pickles import PickleVerdict
from marpack.project.plan import Plan, PlannedMember, Role, pack

HANDLER = b"from ts.torch_handler.base_handler import BaseHandler\n\n\nclass Own(BaseHandler):\n    pass\n"


def packed(folder: Path, weights: Path, *more: PlannedMember) -> Path:
    model = ManifestModel(name="net", handler="handler.py", version="1.0", serialized_file=weights.name)
    members = (PlannedMember(weights.name, weights, Role.WEIGHTS), PlannedMember("handler.py", HANDLER), *more)
    output = folder / "net.mar"
    pack(Plan(manifest=Manifest(model=model), members=members, output=output))
    return output


@pytest.fixture
def small(tmp_path: Path) -> Path:
    torch.save({"a": torch.arange(5000.0), "b": torch.zeros(3)}, tmp_path / "net.pt")
    return packed(tmp_path, tmp_path / "net.pt")


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """One GiB in three hundred tensors, all of it holes."""
    weights = tmp_path / "net.pt"
    tensors = {
        f"encoder.layers.{number // 4}.block{number % 4}.weight": torch.empty(873, 1024) for number in range(300)
    }
    with torch.serialization.skip_data():
        torch.save(tensors, weights)
    yield packed(tmp_path, weights)
    weights.unlink()
    (tmp_path / "net.mar").unlink()


@pytest.mark.nightly
def test_a_gibibyte_is_inspected_in_a_quarter_of_a_mebibyte(large: Path, serve: Any) -> None:
    with open_archive(f"{serve.url}/net.mar") as archive:
        facts = inspect(archive)

    assert large.stat().st_size > 1_000_000_000
    assert facts.weights[0].tensors == 300
    assert facts.weights[0].bytes == 873 * 1024 * 4 * 300
    assert facts.pickles.verdict is PickleVerdict.SAFE
    assert serve.sent <= 256 * 1024, serve.requests
    assert len(serve.requests) <= 20


def test_it_tells_the_same_as_of_the_local_file(small: Path, serve: Any) -> None:
    with open_archive(small) as archive:
        local = inspect(archive)
    with open_archive(f"{serve.url}/net.mar") as archive:
        remote = inspect(archive)

    assert remote.content_digest == local.content_digest
    assert remote.members == local.members
    assert remote.weights == local.weights
    assert remote.pickles.pickles == local.pickles.pickles
    assert remote.pickles.unfetched == 2
    assert not remote.findings


def test_verify_reads_all_of_it(small: Path, serve: Any) -> None:
    with open_archive(f"{serve.url}/net.mar") as archive:
        assert inspect(archive, verify=True).verified.intact

    assert serve.sent >= small.stat().st_size


def test_a_remote_archive_can_be_materialized(small: Path, serve: Any) -> None:
    with open_archive(f"{serve.url}/net.mar") as archive:
        assert (archive.materialize() / "handler.py").read_bytes() == HANDLER


def test_what_fsspec_reaches_is_read_by_range(small: Path) -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/models/net.mar", small.read_bytes())

    with open_archive("memory://models/net.mar") as archive:
        assert inspect(archive).weights[0].tensors == 2

    with pytest.raises(NotAnArchiveError, check=has_code("fetch-failed")):
        open_archive("memory://models/other.mar")


def test_a_compressed_member_is_not_fetched_whole(tmp_path: Path, serve: Any, make_mar: Callable[..., Path]) -> None:
    import random
    import zipfile

    path = make_mar("def handle(data, context): ...")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("vocab.txt", random.Random(1).randbytes(300_000).hex())

    with open_archive(f"{serve.url}/{path.name}") as archive:
        facts = inspect(archive)

    assert [part.where for part in facts.pickles.unscanned] == ["vocab.txt"]
    assert serve.sent < path.stat().st_size / 2


# --- Servers that do not do what they should -----------------------------------------------------------------------


def answer(code: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


def refused(address: str) -> ArchiveError:
    with pytest.raises(ArchiveError) as caught:
        open_archive(address)
    assert caught.value.where
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("send", "text"),
    [
        (answer(403), "403"),
        (answer(500), "500"),
        (answer(416), "416"),
        (answer(206, b"x" * 10), "which part"),
        (answer(200, Content_Length=str(1 << 40)), "range requests"),
        (answer(200, b"<html>sign in</html>"), "not a zip"),
        (answer(206, b"", Content_Range="bytes 0-0/1"), ""),
        (answer(302, Location="file:///etc/passwd"), "302"),
        (answer(302, Location="ftp://127.0.0.1/x"), "redirects (302)"),
    ],
)
def test_a_server_that_fails_is_one_sentence(
    send: Callable[[BaseHTTPRequestHandler], None], text: str, serve: Any
) -> None:
    serve.answers["/x.mar"] = send

    assert text in refused(f"{serve.url}/x.mar").what


def test_a_missing_file_and_a_missing_server(serve: Any) -> None:
    missing = refused(f"{serve.url}/nothing.mar")
    assert missing.code == "unexpected-status"
    assert "404" in missing.what
    assert refused("http://127.0.0.1:1/x.mar").code == "unreachable"
    assert refused("http://")
    assert refused("https:///x.mar")
    assert refused("http://[x/y.mar")


def test_a_server_without_ranges_still_gives_small_archives(small: Path, serve: Any) -> None:
    serve.answers["/whole.mar"] = answer(200, small.read_bytes())

    with open_archive(f"{serve.url}/whole.mar") as archive:
        assert inspect(archive).weights[0].tensors == 2
    assert len(serve.requests) == 1


def test_an_archive_that_changes_meanwhile_is_not_mixed(small: Path, serve: Any) -> None:
    torch.save({f"t{number}": torch.zeros(200_000) for number in range(3)}, small.parent / "big.pt")
    large = packed_as(small.parent / "big.mar", small.parent / "big.pt")
    archive = open_archive(f"{serve.url}/big.mar")
    large.touch()

    with pytest.raises(DamagedArchiveError, match="replaced"), archive:
        archive.open("big.pt").read(10)


def packed_as(output: Path, weights: Path) -> Path:
    model = ManifestModel(name="big", handler="base_handler", version="1.0", serialized_file=weights.name)
    members = (PlannedMember(weights.name, weights, Role.WEIGHTS),)
    pack(Plan(manifest=Manifest(model=model), members=members, output=output))
    return output


def test_credentials_are_sent_and_never_shown(small: Path, serve: Any) -> None:
    address = serve.url.replace("http://", "http://me:se%40cret@")

    with open_archive(f"{address}/net.mar?token=secret") as archive:
        shown = json.dumps(inspect(archive).source)

    expected = base64.b64encode(b"me:se@cret").decode()
    assert serve.headers[0]["Authorization"] == f"Basic {expected}"
    assert "cret" not in shown
    assert "token" not in refused(f"{address}/nothing.mar?token=secret").where


def test_credentials_stay_at_the_server_they_are_for(small: Path, serve: Any) -> None:
    serve.answers["/moved.mar"] = answer(302, Location=f"{serve.url}/net.mar")

    with open_archive(f"{serve.url.replace('http://', 'http://me:pw@')}/moved.mar"):
        pass

    assert "Authorization" in serve.headers[0]
    assert "Authorization" not in serve.headers[1]


def test_a_tar_elsewhere_is_refused_with_the_way_out(tmp_path: Path, serve: Any) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8b" + bytes(100))

    assert "download" in (refused(f"{serve.url}/x.tar.gz").hint or "")


def test_a_missing_package_is_named_with_its_extra() -> None:
    pytest.importorskip("fsspec")
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match="s3fs"):
            open_archive("s3://bucket/x.mar")
    else:
        pytest.skip("s3fs is installed here")


def test_an_unknown_kind_of_address_is_refused() -> None:
    with pytest.raises(NotAnArchiveError):
        open_archive("gopher://host/x.mar")
