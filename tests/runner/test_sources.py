import random
from pathlib import Path

import pytest

from marpack.errors import UsageError
from marpack.runner import inputs
from marpack.runner.inputs import check_sources, count_of, in_order, paths_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "a.json", "sub/c.txt", ".hidden", "sub/.x/y"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return tmp_path


def names(folder: Path, *sources: str) -> list[str]:
    return [str(Path(path).relative_to(folder)) for path in paths_of(sources)]


def test_folders_are_walked_in_order_without_hidden_files(folder: Path):
    assert names(folder, str(folder)) == ["a.json", "b.png", "sub/c.txt"]
    assert count_of([str(folder), "https://x/y", "-"]) == 5


def test_only_wanted_files_of_a_folder_count_but_every_file_named(folder: Path):
    name_filter = paths_of([str(folder), f"{folder}/a.json"], name_filter=lambda name: name.endswith(".png"))
    assert [Path(path).name for path in name_filter] == ["b.png", "a.json"]


def test_globs_match_files_recursively(folder: Path):
    assert names(folder, f"{folder}/**/*.txt") == ["sub/c.txt"]
    assert count_of([f"{folder}/*.png"]) is None


def test_a_file_whose_name_looks_like_a_glob_is_a_file(folder: Path):
    (folder / "x[1].png").touch()
    assert names(folder, f"{folder}/x[1].png") == ["x[1].png"]


def test_lists_name_further_inputs(folder: Path):
    (folder / "list").write_text(f"# comment\n{folder}/b.png\n\n{folder}/sub\n")
    assert names(folder, f"@{folder}/list") == ["b.png", "sub/c.txt"]


def test_what_a_list_names_in_vain_is_left_to_its_reader(folder: Path):
    (folder / "list").write_text(f"{folder}/gone.png\n{folder}/*.gone\n")
    assert names(folder, f"@{folder}/list") == ["gone.png", "*.gone"]


@pytest.mark.parametrize(
    ("source", "words"),
    [("nowhere.png", "the input does not exist"), ("*.nothing", "matches no file"), ("@nolist", "cannot be read")],
)
def test_what_is_not_there_is_said_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str):
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=words) as caught:
        check_sources(["a.json", source])
    assert caught.value.exit_code == 2


def test_an_empty_folder_is_no_input(tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        list(paths_of([str(tmp_path)]))
    assert (caught.value.code, caught.value.where) == ("no-matching-input", str(tmp_path))


def test_links_are_followed_to_files_but_not_to_folders(folder: Path):
    (folder / "z-loop").symlink_to(folder)
    (folder / "z-link").symlink_to(folder / "a.json")
    (folder / "z-gone").symlink_to(folder / "nowhere")
    assert names(folder, str(folder)) == ["a.json", "b.png", "z-gone", "z-link", "sub/c.txt"]


def test_names_are_sorted_however_many_in_flat_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inputs, "_AT_ONCE", 100)
    there = [f"n\n{number}\udcff ä" for number in range(1234)]
    shuffled = random.Random(0).sample(there, len(there))
    assert list(in_order(shuffled)) == sorted(there)
