"""Remote archives: marpack fetches little of them and reports what it cannot fetch."""

import base64
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from inspection.conftest import packed
from lazy import torch
from refusals import has_code

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, NotAnArchiveError
from marpack.inspection.inspect import inspect
from marpack.inspection.pickles import PickleVerdict
from marpack.project.plan import PlannedMember

HANDLER = PlannedMember(
    "handler.py", b"from ts.torch_handler.base_handler import BaseHandler\n\n\nclass Own(BaseHandler):\n    pass\n"
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    torch.save({"a": torch.arange(5000.0), "b": torch.zeros(3)}, tmp_path / "net.pt")
    return packed(tmp_path / "net.mar", tmp_path / "net.pt", HANDLER)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """One GiB in three hundred tensors, all of it holes."""
    weights = tmp_path / "net.pt"
    tensors = {
        f"encoder.layers.{number // 4}.block{number % 4}.weight": torch.empty(873, 1024) for number in range(300)
    }
    with torch.serialization.skip_data():
        torch.save(tensors, weights)
    yield packed(tmp_path / "net.mar", weights, HANDLER)
    weights.unlink()
    (tmp_path / "net.mar").unlink()


@pytest.mark.slow
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


def test_what_fsspec_reaches_is_read_by_range(small: Path) -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/models/net.mar", small.read_bytes())
    with open_archive("memory://models/net.mar") as archive:
        assert inspect(archive).weights[0].tensors == 2
    with pytest.raises(NotAnArchiveError, check=has_code("fetch-failed")):
        open_archive("memory://models/other.mar")


def test_a_compressed_member_is_not_fetched_whole(tmp_path: Path, serve: Any, make_mar: Callable[..., Path]) -> None:
    path = make_mar("def handle(data, context): ...")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("vocab.txt", random.Random(1).randbytes(300_000).hex())
    with open_archive(f"{serve.url}/{path.name}") as archive:
        facts = inspect(archive)
    assert [part.where for part in facts.pickles.unscanned] == ["vocab.txt"]
    assert serve.sent < path.stat().st_size / 2


def test_credentials_are_sent_and_never_shown(small: Path, serve: Any) -> None:
    address = serve.url.replace("http://", "http://me:se%40cret@")
    with open_archive(f"{address}/net.mar?token=secret") as archive:
        shown = json.dumps(inspect(archive).source)
    expected = base64.b64encode(b"me:se@cret").decode()
    assert serve.headers[0]["Authorization"] == f"Basic {expected}"
    assert "cret" not in shown
    with pytest.raises(ArchiveError) as caught:
        open_archive(f"{address}/nothing.mar?token=secret")
    assert "token" not in (caught.value.where or "")
