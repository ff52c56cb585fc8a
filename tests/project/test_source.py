"""SOURCE: archives pass, projects are built when they must be, and only then."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from marpack.archive.reader import open_archive
from marpack.errors import MarpackError, NoProjectError, ProjectError, UsageError
from marpack.project.load import load_project
from marpack.project.plan import pack
from marpack.project.planning import plan_project
from marpack.project.source import ResolvedSource, resolve, unpacked

HEAD = "name: tiny\nversion: '1.0'\nhandler: handler.py\n"
EVERYTHING = HEAD + "labels: labels.txt\nconfig: {batchSize: 2}\nfiles: [big.bin, data]\nsamples: [{input: s.png}]\n"
HANDLER = "import near\n\n\ndef handle(data, context):\n    return [1 for _ in data or []]\n"
FILES = {
    "handler.py": HANDLER,
    "near.py": "",
    "labels.txt": "a\nb\n",
    "big.bin": bytes(2 << 20),
    "data/x.json": "{}",
    "s.png": b"png",
}


@pytest.fixture
def project(make_project: Callable[..., Path]) -> Path:
    return make_project(EVERYTHING, **FILES)


def built(folder: Path) -> bool:
    found = resolve(str(folder))
    assert found.path == folder / "tiny.mar"
    assert found.project is not None
    with open_archive(found.path) as archive:
        assert archive.manifest.model.name == "tiny"
    return found.built is not None


def test_builds_what_is_missing_and_then_leaves_it(project: Path) -> None:
    assert built(project)
    before = (project / "tiny.mar").stat()
    assert not built(project)
    after = (project / "tiny.mar").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def edit(folder: Path, name: str, old: str, new: str) -> None:
    (folder / name).write_text((folder / name).read_text().replace(old, new))


def same_size(folder: Path) -> None:
    """Change a large file but neither its size nor, as `mv` and `cp -p` would, to a newer time."""
    (folder / "other").write_bytes(b"\1" * (2 << 20))
    os.utime(folder / "other", (1, 1))
    (folder / "other").replace(folder / "big.bin")


# What makes an archive stale: other text in a file, a file's whole content, or something else.
EDITS = {
    "handler": ("handler.py", "return [1", "return [2"),
    "labels": ("labels.txt", "b", "c"),
    "config": ("marpack.yaml", "batchSize: 2", "batchSize: 4"),
    "version": ("marpack.yaml", "'1.0'", "'1.1'"),
    "target": ("marpack.yaml", "samples:", "target: marpack\nsamples:"),
    "metadata": ("marpack.yaml", "samples:", "metadata: {license: MIT}\nsamples:"),
    "expectation": ("marpack.yaml", "s.png}", "s.png, expect: {status: 200}}"),
}
CONTENTS: dict[str, tuple[str, bytes]] = {
    "a module that it imports": ("near.py", b"x = 1\n"),
    "sample": ("s.png", b"gnp"),
    "a file in a tree": ("data/y.json", b"{}"),
    "large file, same size": ("big.bin", b"\1" * (2 << 20)),
    "archive of someone else": ("tiny.mar", b"PK\5\6" + bytes(18)),
}
CHANGES: dict[str, Callable[[Path], object]] = {
    **{name: lambda folder, change=change: edit(folder, *change) for name, change in EDITS.items()},
    **{name: lambda folder, new=new: (folder / new[0]).write_bytes(new[1]) for name, new in CONTENTS.items()},
    "a module more": lambda folder: (
        edit(folder, "handler.py", "import near\n", "import near, far\n"),
        (folder / "far.py").touch(),
    ),
    "a file gone from a tree": lambda folder: (folder / "data/x.json").rename(folder / "gone"),
    "large file, same size and older": same_size,
    "archive cut short": lambda folder: os.truncate(folder / "tiny.mar", 1000),
    "archive gone": lambda folder: (folder / "tiny.mar").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_builds_again_what_a_change_made_stale(project: Path, change: Callable[[Path], object]) -> None:
    assert built(project)
    change(project)
    assert built(project)
    assert not built(project)


def test_a_touch_alone_makes_nothing_stale_that_is_small(project: Path) -> None:
    assert built(project)
    for name in ("marpack.yaml", "handler.py", "near.py", "labels.txt", "s.png", "data/x.json"):
        (project / name).touch()
    assert not built(project)


@pytest.mark.parametrize(("size", "is_stale"), [(1 << 20, False), ((1 << 20) + 1, True)])
def test_of_over_a_megabyte_the_time_tells_and_not_the_content(project: Path, size: int, is_stale: bool) -> None:
    (project / "big.bin").write_bytes(bytes(size))
    assert built(project)
    (project / "big.bin").touch()
    assert built(project) is is_stale


def test_a_date_and_a_commit_that_only_a_build_sets_make_nothing_stale(project: Path) -> None:
    pack(replace(plan_project(load_project(project), created_on="01/01/2026 00:00:00").plan, source_commit="a" * 40))
    assert not built(project)


def test_with_no_source_it_is_the_project_here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    found = resolve(None)
    assert found.path == Path("tiny.mar")
    assert found.built is not None
    assert resolve("marpack.yaml").path == Path("tiny.mar")


def test_archives_and_model_folders_pass(project: Path, tmp_path: Path) -> None:
    archive = resolve(str(project)).path
    assert resolve(str(archive)) == ResolvedSource(path=archive)
    (tmp_path / "model" / "MAR-INF").mkdir(parents=True)
    (tmp_path / "model" / "MAR-INF" / "MANIFEST.json").touch()
    assert resolve(str(tmp_path / "model")) == ResolvedSource(path=tmp_path / "model")
    (tmp_path / "not.an.archive").touch()
    assert resolve(str(tmp_path / "not.an.archive")) == ResolvedSource(path=tmp_path / "not.an.archive")


def test_what_is_no_source(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: str | None) -> MarpackError:
        with pytest.raises(MarpackError) as caught:
            resolve(source)
        return caught.value

    assert refused(str(tmp_path / "nowhere.mar")).code == "source-not-found"
    assert refused("a" * 300).code == "unusable-path"
    error = refused("https://ann:secret@example.org/a.mar?token=secret")
    assert error.code == "unpinned-address"
    assert "secret" not in f"{error} {error.hint}"
    assert "https://example.org/a.mar?…#sha256=…" in str(error.hint)
    assert "--trust-url" in str(error.hint)
    (tmp_path / "model.pt").touch()
    error = refused(str(tmp_path / "model.pt"))
    assert error.code == "weights-not-archive"
    assert f"marpack init --weights {tmp_path}/model.pt" in str(error.hint)
    (tmp_path / "empty").mkdir()
    assert isinstance(refused(str(tmp_path / "empty")), NoProjectError)
    monkeypatch.chdir(tmp_path / "empty")
    assert isinstance(refused(None), NoProjectError)
    (project / "s.png").unlink()
    assert [finding.code for finding in refused(str(project)).findings] == ["missing-file"]
    assert not (project / "tiny.mar").exists()


def test_a_project_is_laid_out_as_its_archive_would_be(project: Path) -> None:
    with unpacked(str(project)) as resolved:
        found = {str(path.relative_to(resolved.path)) for path in resolved.path.rglob("*") if path.is_file()}
        members = {"handler.py", "near.py", "index_to_name.json", "model-config.yaml", "big.bin", "data/x.json"}
        assert found == members | {"MAR-INF/MANIFEST.json", "MAR-INF/samples/s.png"}
        assert (resolved.path / "handler.py").resolve() == project / "handler.py"
        assert resolved.project is not None
    assert not resolved.path.exists()


def test_a_model_folder_is_used_itself_and_others_are_refused(make_folder, make_mar, tmp_path: Path) -> None:
    folder = make_folder("")
    with unpacked(str(folder)) as resolved:
        assert resolved.path == folder
    with pytest.raises(UsageError) as caught, unpacked(str(make_mar(""))):
        pass
    assert caught.value.code == "source-not-a-folder"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProjectError), unpacked(str(tmp_path / "empty")):
        pass
