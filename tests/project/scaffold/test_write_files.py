"""Files appear all together or not at all, and what was there is never lost."""

from pathlib import Path

import pytest

from marpack.errors import ScaffoldError
from marpack.project.scaffold.write_files import write_files


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fails(path: Path) -> None:
    raise OSError(28, "No space left on device")


def test_a_new_folder_appears_whole(tmp_path):
    placed = write_files(tmp_path / "a" / "b", {"x": b"1", "y/z": lambda path: path.write_bytes(b"2")}, replace=False)
    assert tree(tmp_path) == {"a/b/x": b"1", "a/b/y/z": b"2"}
    assert (placed.written, placed.skipped) == (("x", "y/z"), ())


def test_a_new_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ScaffoldError, match="No space left") as caught:
        write_files(tmp_path / "a" / "b", {"x": b"1", "y": fails}, replace=False)
    assert caught.value.where == str(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replace", [False, True])
def test_existing_files_are_replaced_only_when_asked(tmp_path, replace):
    (tmp_path / "x").write_bytes(b"old")
    placed = write_files(tmp_path, {"x": b"new", "y": b"2"}, replace=replace)
    assert tree(tmp_path) == {"x": b"new" if replace else b"old", "y": b"2"}
    assert (placed.written, placed.replaced, placed.skipped) == (("y",), *((("x",), ()) if replace else ((), ("x",))))


def test_a_link_is_something_that_is_there(tmp_path):
    (tmp_path / "x").symlink_to(tmp_path / "nowhere")
    assert write_files(tmp_path, {"x": b"new"}, replace=False).skipped == ("x",)


@pytest.mark.parametrize("replace", [False, True])
def test_a_failure_leaves_an_existing_folder_as_it_was(tmp_path, replace):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(ScaffoldError):
        write_files(tmp_path, {"x": b"new", "sub/y": b"2", "z": fails}, replace=replace)
    assert tree(tmp_path) == {"x": b"old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_failure_while_moving_puts_everything_back(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"old")
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if path.name == "z":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)  # a disk that fails half-way
    with pytest.raises(ScaffoldError, match="Input/output error"):
        write_files(tmp_path, {"x": b"new", "sub/y": b"2", "z": b"3"}, replace=True)
    assert tree(tmp_path) == {"x": b"old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_folder_or_a_file_in_the_way_is_reported(tmp_path):
    (tmp_path / "marpack.yaml").mkdir()
    (tmp_path / "samples").touch()
    for name, place, code in (
        ("marpack.yaml", "marpack.yaml", "not-a-file"),
        ("samples/a.png", "samples", "not-a-folder"),
    ):
        with pytest.raises(ScaffoldError) as caught:
            write_files(tmp_path, {"x": b"", name: b""}, replace=True)
        assert (caught.value.code, caught.value.where) == (code, str(tmp_path / place))
        assert not (tmp_path / "x").exists()
