"""Two archives compared, each of real weights."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from inspection.conftest import members_of, packed
from safetensors.torch import save_file

from marpack.archive.reader import open_archive
from marpack.errors import DamagedArchiveError
from marpack.inspection.diff import Change, Diff, diff
from marpack.project.plan import Format

Build = Callable[..., Path]
TENSORS = {
    "same": torch.arange(6.0).reshape(2, 3),
    "values": torch.zeros(3),
    "shape": torch.zeros(2, 2),
    "dtype": torch.zeros(4),
    "gone": torch.ones(2),
}
CHANGED = {
    "same": torch.arange(6.0).reshape(2, 3),
    "values": torch.tensor([0.0, 5.0, 0.0]),
    "shape": torch.zeros(4, 1),
    "dtype": torch.zeros(4, dtype=torch.float16),
    "new": torch.ones(7, dtype=torch.int64),
}


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def build(output: str, tensors: dict[str, Any] = TENSORS, *, weights: str = "net.pt", **files: Any) -> Path:
        source = tmp_path / f"weights of {output}" / weights  # torch.save puts the file's name into the file
        source.parent.mkdir()
        (save_file if weights.endswith(".safetensors") else torch.save)(tensors, source)
        options = {key: files.pop(key) for key in ("form", "version", "samples") if key in files}
        texts = {
            "handler__py": "def handle(data, context): ...\n",
            "model-config__yaml": "batchSize: 4\npt2: {compile: {enable: true}}\n",
            "index_to_name__json": '{"0": "cat", "1": "dog"}',
        }
        members = members_of({**texts, **files})
        return packed(tmp_path / output, source, *members, config_file="model-config.yaml", **options)

    return build


def compared(before: Path, after: Path, **options: Any) -> Diff:
    with open_archive(before) as old, open_archive(after) as new:
        return diff(old, new, **options)


@pytest.mark.parametrize("verify", [False, True])
def test_an_archive_is_the_same_as_itself_in_every_form(verify: bool, build: Build) -> None:
    plain = build("a.mar")
    others = [build("b.mar"), build("c.tar.gz", form=Format.TGZ), build("d", form=Format.NO_ARCHIVE)]
    for other in [plain, *others]:
        found = compared(plain, other, verify=verify)
        assert found.same
        assert found == Diff(before=str(plain), after=str(other), same=True)


def test_manifest_config_labels_and_members(build: Build) -> None:
    before = build("a.mar", old__txt="x", handler__py="def handle(data, context): ...\n")
    after = build(
        "b.mar",
        version="1.1",
        handler__py="def handle(data, context): return data\n",
        index_to_name__json='{"0": "cat", "1": "wolf", "2": "fox"}',
        new__txt="y",
        **{"model-config__yaml": "batchSize: 8\nmaxWorkers: 1\n"},
    )
    found = compared(before, after)

    assert not found.same
    assert [(part.name, part.before, part.after) for part in found.manifest] == [("model.modelVersion", "1.0", "1.1")]
    assert [(part.name, part.change) for part in found.config] == [
        ("batchSize", Change.CHANGED),
        ("pt2.compile.enable", Change.REMOVED),
        ("maxWorkers", Change.ADDED),
    ]
    assert [(part.name, part.before, part.after) for part in found.labels] == [("1", "dog", "wolf"), ("2", None, "fox")]
    assert {part.name: part.change for part in found.members} == {
        "handler.py": Change.CHANGED,
        "index_to_name.json": Change.CHANGED,
        "model-config.yaml": Change.CHANGED,
        "old.txt": Change.REMOVED,
        "new.txt": Change.ADDED,
    }
    assert found.tensors == ()


def test_a_member_is_told_by_size_and_digest(build: Build) -> None:
    changed, gone = compared(build("a.mar", x__txt="one", y__txt="y"), build("b.mar", x__txt="three")).members
    assert (changed.name, gone.name, gone.after) == ("x.txt", "y.txt", None)
    assert changed.before == {"size": 3, "sha256": hashlib.sha256(b"one").hexdigest()}
    assert changed.after == {"size": 5, "sha256": hashlib.sha256(b"three").hexdigest()}
    assert gone.before == {"size": 1, "sha256": hashlib.sha256(b"y").hexdigest()}


def test_what_the_index_records_beside_the_members(build: Build) -> None:
    found = compared(build("a.mar"), build("b.mar", samples=({"input": "x", "expect": {"status": 200}},)))
    assert [(part.name, part.change) for part in found.recorded] == [("samples.0", Change.ADDED)]


@pytest.mark.parametrize("other", ["net.pt", "net.safetensors"])
def test_tensors_are_compared_across_files_and_formats(other: str, build: Build) -> None:
    found = compared(build("a.mar"), build("b.mar", CHANGED, weights=other))
    (tensors,) = found.tensors

    assert (tensors.member, tensors.other) == ("net.pt", other)
    assert (tensors.same, tensors.uncompared) == (1, 0)
    assert {part.name: part.change for part in tensors.differences} == {
        "values": Change.CHANGED,
        "shape": Change.RESHAPED,
        "dtype": Change.RETYPED,
        "gone": Change.REMOVED,
        "new": Change.ADDED,
    }
    reshaped = next(part for part in tensors.differences if part.name == "shape")
    assert (reshaped.before, reshaped.after) == (
        {"dtype": "float32", "shape": [2, 2]},
        {"dtype": "float32", "shape": [4, 1]},
    )


def test_the_same_numbers_in_another_format_are_the_same_tensors(build: Build) -> None:
    found = compared(build("a.mar"), build("b.mar", weights="net.safetensors"))
    assert found.tensors[0].differences == ()
    assert found.tensors[0].same == len(TENSORS)
    assert not found.same  # another file it is all the same


def forge(before: Path, after: Path, member: str, old: bytes, new: bytes) -> None:
    """Copy an archive with other bytes in one member and the index as it was."""
    with zipfile.ZipFile(before) as source, zipfile.ZipFile(after, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content.replace(old, new) if name == member else content)


@pytest.mark.parametrize("verify", [False, True])
def test_a_forged_index_is_seen_through_by_the_crc_or_by_reading(verify: bool, build: Build, tmp_path: Path) -> None:
    before = build("a.mar")
    forge(before, tmp_path / "b.mar", "handler.py", b"...", b"1,2")
    assert [part.name for part in compared(before, tmp_path / "b.mar", verify=verify).members] == ["handler.py"]


@pytest.mark.parametrize("forged", [0, 1])
def test_a_manifest_may_name_weights_that_are_not_there(build: Build, tmp_path: Path, forged: int) -> None:
    pair = [build("a.mar"), tmp_path / "b.mar"]
    forge(*pair, "MAR-INF/MANIFEST.json", b"net.pt", b"not.pt")
    found = compared(pair[forged], pair[1 - forged])
    assert [item.name for item in found.manifest] == ["model.serializedFile"]
    assert found.tensors == ()


def test_config_and_labels_that_cannot_be_read_are_compared_as_text(build: Build) -> None:
    before = build("a.mar", index_to_name__json="{", **{"model-config__yaml": "a: ["})
    after = build("b.mar", index_to_name__json="[", **{"model-config__yaml": "a: ]"})
    found = compared(before, after)
    assert [part.name for part in (*found.config, *found.labels)] == ["(text)", "(text)"]


def test_damage_ends_it(build: Build) -> None:
    before, after = build("a.mar"), build("b.mar", CHANGED)
    content = bytearray(after.read_bytes())
    content[content.index(b"def handle")] ^= 1
    after.write_bytes(content)
    with pytest.raises(DamagedArchiveError):
        compared(before, after, verify=True)


def test_progress_counts_what_is_read(build: Build) -> None:
    path, read = build("a.mar"), []
    compared(path, path, progress=read.append)
    assert not read  # the recorded digests are enough
    compared(path, path, verify=True, progress=read.append)
    with open_archive(path) as archive:
        sizes = [entry.size for name, entry in archive.entries.items() if not name.startswith("MAR-INF/")]
    assert sum(read) == 2 * sum(sizes)


def test_the_result_is_what_its_type_says(build: Build) -> None:
    found = compared(build("a.mar"), build("b.mar", CHANGED, version="2"))
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Diff) == found
    assert json.loads(text)["tensors"][0]["differences"]
