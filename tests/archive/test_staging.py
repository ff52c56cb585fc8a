import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from refusals import has_code, has_facts

from marpack.archive import staging
from marpack.archive.staging import staged_file, staged_folder, temporary_folder
from marpack.errors import OutputExistsError

WRITES = """
import sys, time
from pathlib import Path
from marpack.archive import staging
with getattr(staging, sys.argv[1])(Path(sys.argv[2]), replace=True) as output:
    (output / "half").write_text("half") if isinstance(output, Path) else output.write(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


def model_folder(path: Path, text: str) -> Path:
    (path / "MAR-INF").mkdir(parents=True)
    (path / "MAR-INF/MANIFEST.json").write_text(text)
    return path


def half(write: Callable[[bytes], object], error: BaseException) -> NoReturn:
    write(b"half")
    raise error


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def writer(function: str, target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITES, function, target], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "writing\n"
    return process


def end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new/folder/x.mar"
    with staged_file(target, replace=False) as file:
        file.write(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert listing(target.parent) == ["x.mar"]


def test_a_file_that_fails_leaves_nothing_not_even_its_folders(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staged_file(tmp_path / "new/folder/x.mar", replace=False) as file:
        half(file.write, KeyboardInterrupt())
    assert listing(tmp_path) == []


def test_an_existing_file_stays_until_it_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "x.mar"
    target.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), staged_file(target, replace=True) as file:
        half(file.write, ZeroDivisionError())
    assert target.read_bytes() == b"old"
    with staged_file(target, replace=True) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert listing(tmp_path) == ["x.mar"]


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "x.mar").write_bytes(b"old")
    with pytest.raises(OutputExistsError, check=has_facts("--force")), staged_file(tmp_path / "x.mar", replace=False):
        raise AssertionError


def test_a_file_that_appears_meanwhile_is_not_replaced_unasked(tmp_path: Path) -> None:
    target = tmp_path / "x.mar"
    with pytest.raises(OutputExistsError), staged_file(target, replace=False):
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert listing(tmp_path) == ["x.mar"]


def test_mode_is_that_of_the_umask_or_of_the_file_replaced(tmp_path: Path) -> None:
    target, before = tmp_path / "x.mar", os.umask(0o027)
    try:
        with staged_file(target, replace=True):
            pass
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        target.chmod(0o604)
        with staged_file(target, replace=True):
            pass
        assert stat.S_IMODE(target.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_a_link_is_kept_and_what_it_points_at_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "latest.mar"
    link.symlink_to("real/x.mar")
    with staged_file(link, replace=False) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (tmp_path / "real/x.mar").read_bytes() == b"new"
    assert listing(tmp_path / "real") == ["x.mar"]


def test_a_target_with_the_longest_name_there_is(tmp_path: Path) -> None:
    for target in (tmp_path / ("x" * 251 + ".mar"), tmp_path / ("漢" * 83 + ".mar")):
        with staged_file(target, replace=False):
            pass
        with staged_folder(target.with_suffix(""), replace=False):
            pass
    assert len(listing(tmp_path)) == 4


@pytest.mark.parametrize("what", ["folder", "fifo", "device"])
def test_what_is_no_file_is_never_replaced_by_one(tmp_path: Path, what: str) -> None:
    target = tmp_path / "x.mar"
    if what == "folder":
        target.mkdir()
    elif what == "fifo":
        os.mkfifo(target)
    else:
        target.symlink_to("/dev/null")
    with pytest.raises(OutputExistsError), staged_file(target, replace=True):
        raise AssertionError
    assert listing(tmp_path) == ["x.mar"]


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new/digits"
    with staged_folder(target, replace=False) as folder:
        (folder / "a").write_text("whole")
        assert not target.exists()
    assert (target / "a").read_text() == "whole"
    assert listing(target.parent) == ["digits"]


def test_a_folder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staged_folder(tmp_path / "new/digits", replace=False) as folder:
        half((folder / "a").write_bytes, KeyboardInterrupt())
    assert listing(tmp_path) == []


def test_a_model_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = model_folder(tmp_path / "digits", "old")
    (target / "only-in-the-old").touch()
    with staged_folder(target, replace=True) as folder:
        model_folder(folder, "new")
        assert (target / "MAR-INF/MANIFEST.json").read_text() == "old"
    assert listing(target) == ["MAR-INF"]
    assert (target / "MAR-INF/MANIFEST.json").read_text() == "new"
    assert listing(tmp_path) == ["digits"]


def test_a_build_that_comes_second_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, rename = model_folder(tmp_path / "digits", "old"), Path.rename

    def race(path: Path, new: Path) -> None:
        rename(path, new)
        if path == target and not target.exists():
            model_folder(target, "theirs")

    monkeypatch.setattr(Path, "rename", race)
    with pytest.raises(OSError, match="not empty"), staged_folder(target, replace=True) as folder:
        model_folder(folder, "ours")
    assert (target / "MAR-INF/MANIFEST.json").read_text() == "theirs"


def test_a_swap_that_fails_half_way_puts_the_old_folder_back(tmp_path: Path) -> None:
    target = model_folder(tmp_path / "digits", "old")
    with pytest.raises(FileNotFoundError):
        staging._move_folder(tmp_path / "nowhere", target)
    assert (target / "MAR-INF/MANIFEST.json").read_text() == "old"
    assert listing(tmp_path) == ["digits"]


@pytest.mark.parametrize("replace", [False, True])  # --force, which would be refused, is not the remedy of either
def test_a_folder_of_other_files_is_never_replaced(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/thesis.tex").touch()
    foreign = has_code("output-holds-other-files")
    with pytest.raises(OutputExistsError, check=foreign), staged_folder(tmp_path / "src", replace=replace):
        raise AssertionError
    assert listing(tmp_path / "src") == ["thesis.tex"]


def test_an_empty_folder_may_be_replaced_when_asked(tmp_path: Path) -> None:
    target = tmp_path / "digits"
    target.mkdir()
    with pytest.raises(OutputExistsError, match="already exists"), staged_folder(target, replace=False):
        raise AssertionError
    with staged_folder(target, replace=True) as folder:
        (folder / "a").touch()
    assert listing(target) == ["a"]


def test_a_file_in_the_folders_place_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "digits").touch()
    file = has_code("output-not-a-folder")
    with pytest.raises(OutputExistsError, check=file), staged_folder(tmp_path / "digits", replace=True):
        raise AssertionError


def test_a_folder_that_appears_meanwhile_is_not_replaced_unasked(tmp_path: Path) -> None:
    with pytest.raises(OutputExistsError), staged_folder(tmp_path / "digits", replace=False):
        model_folder(tmp_path / "digits", "theirs")
    assert listing(tmp_path) == ["digits"]


@pytest.mark.parametrize("function", ["staged_file", "staged_folder"])
def test_what_a_kill_leaves_the_next_build_of_the_target_removes(tmp_path: Path, function: str) -> None:
    end(writer(function, tmp_path / "x"), signal.SIGKILL)
    (left,) = listing(tmp_path)
    assert left.startswith(".x.")
    assert left.endswith(".marpack-tmp")
    written = time.time() - 3700
    for path in (tmp_path / left, *(tmp_path / left).rglob("*")):
        os.utime(path, (written, written))
    with getattr(staging, function)(tmp_path / "another", replace=False):
        assert left in listing(tmp_path)
    with getattr(staging, function)(tmp_path / "x", replace=False):
        pass
    assert listing(tmp_path) == ["another", "x"]


def test_what_a_kill_leaves_may_be_left_to_who_keeps_the_folder(tmp_path: Path) -> None:
    end(writer("staged_file", tmp_path / "x"), signal.SIGKILL)
    (left,) = listing(tmp_path)
    os.utime(tmp_path / left, (0, 0))
    with staged_file(tmp_path / "x", replace=False, sweep=False) as file:
        file.write(b"1")
    assert sorted(listing(tmp_path)) == [left, "x"]


@pytest.mark.parametrize("function", ["staged_file", "staged_folder"])
def test_what_another_build_is_writing_is_left_alone(tmp_path: Path, function: str) -> None:
    process = writer(function, tmp_path / "x")
    if function == "staged_folder":  # which holds a file that was written just now
        os.utime(tmp_path / listing(tmp_path)[0], (0, 0))
    with getattr(staging, function)(tmp_path / "x", replace=False):
        assert len(listing(tmp_path)) == 2
    assert len(listing(tmp_path)) == 2
    end(process, signal.SIGINT)
    assert listing(tmp_path) == ["x"]


def test_a_folder_nobody_may_write_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="proc"), staged_file(Path("/proc/x.mar"), replace=False):
        raise AssertionError


def test_a_temporary_folder_is_deleted_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "link").symlink_to("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "link"))
    with temporary_folder() as folder:
        (folder / "inside").touch()
        assert folder.parent == tmp_path / "tmp"
        assert folder.stat().st_mode & 0o077 == 0
    assert not listing(tmp_path / "tmp")
