import errno
import json
import os
import socket

import pytest
from refusals import has_code, has_facts

from marpack.archive.protocol import ArchiveForm, Limits
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, DamagedArchiveError, ExitCode, LimitExceededError, NotAnArchiveError

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}})


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "m"
    (folder / "MAR-INF").mkdir(parents=True)
    (folder / "MAR-INF" / "MANIFEST.json").write_text(MANIFEST)
    (folder / "h.py").write_text("x = 1\n")
    (folder / "data").mkdir()
    (folder / "data" / "labels.txt").write_text("one\n")
    return folder


def test_a_folder_is_an_archive_as_it_lies(model):
    with open_archive(model) as archive:
        assert archive.form is ArchiveForm.FOLDER
        assert archive.server_findings == ()
        assert list(archive.entries) == ["MAR-INF/MANIFEST.json", "data/labels.txt", "h.py"]
        assert archive.entries["h.py"].size == 6
        assert archive.manifest.model.name == "m"
        assert archive.materialize() == model
        with archive.open("data/labels.txt") as file:
            assert file.read() == b"one\n"
        with pytest.raises(KeyError):
            archive.open("../m/h.py")


def test_one_folder_inside_is_taken_for_the_model_as_the_server_does(model):
    with open_archive(model.parent) as archive:
        assert archive.materialize() == model


def test_links_are_followed_since_the_server_does(model, tmp_path):
    (tmp_path / "weights.pt").write_bytes(b"weights")
    (model / "w.pt").symlink_to(tmp_path / "weights.pt")
    with open_archive(model) as archive:
        assert archive.entries["w.pt"].size == 7


def unix_socket(model):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(model / "s"))


BAD = {
    "the member 'f' is neither a file nor a folder": lambda model: os.mkfifo(model / "f"),
    "the member 's' is neither a file nor a folder": unix_socket,
    "the folder 'up' is a link to a folder above it": lambda model: (model / "data" / "up").symlink_to(model),
    "the member 'gone' cannot be read: No such": lambda model: (model / "gone").symlink_to(model / "nowhere"),
    "the member 'a\\\\b' has a backslash in its name": lambda model: (model / "a\\b").touch(),
    "the member '\\udcff' has a control or invisible": lambda model: (model / os.fsdecode(b"\xff")).touch(),
    "it has no MAR-INF/MANIFEST.json": lambda model: (model / "MAR-INF" / "MANIFEST.json").unlink(),
}


@pytest.mark.parametrize("sentence", BAD)
def test_hostile_folders_are_refused(model, sentence):
    BAD[sentence](model)
    with pytest.raises(ArchiveError) as caught:
        open_archive(model)
    assert sentence in caught.value.what
    assert caught.value.where == str(model)


def test_a_folder_of_too_many_files_is_refused(model):
    with pytest.raises(LimitExceededError, check=has_facts(" 2 ", "--max-members")):
        open_archive(model, limits=Limits(members=2))
    assert len(open_archive(model, limits=Limits(members=3)).entries) == 3


def test_a_folder_in_a_folder_is_followed_down_to_a_depth(model):
    deep = model.joinpath(*"d" * 63)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    assert open_archive(model).entries["d/" * 63 + "file"].size == 0
    (deep / "d").mkdir()
    (deep / "d" / "file").touch()
    with pytest.raises(ArchiveError, match=r"more than 64 folders deep|lies too deep"):
        open_archive(model)


def test_members_that_are_asked_for_are_copied_and_counted(model, tmp_path):
    counts = []
    with open_archive(model) as archive:
        (tmp_path / "one").mkdir()
        archive.extract(tmp_path / "one", ["h.py"], counts.append)
        assert [path.name for path in (tmp_path / "one").iterdir()] == ["h.py"]
        assert sum(counts) == 6
        (tmp_path / "all").mkdir()
        archive.extract(tmp_path / "all")
    for name in ("h.py", "data/labels.txt", "MAR-INF/MANIFEST.json"):
        assert (tmp_path / "all" / name).read_bytes() == (model / name).read_bytes()


def test_a_file_that_is_gone_meanwhile_is_told(model):
    with open_archive(model) as archive:
        (model / "h.py").unlink()
        with pytest.raises(DamagedArchiveError, check=has_facts("'h.py'", os.strerror(errno.ENOENT))) as caught:
            archive.open("h.py")
    assert caught.value.where == str(model)


def test_no_such_path(tmp_path):
    with pytest.raises(NotAnArchiveError, check=has_facts(os.strerror(errno.ENOENT))) as caught:
        open_archive(tmp_path / "nothing.mar")
    assert caught.value.where == str(tmp_path / "nothing.mar")
    assert caught.value.exit_code is ExitCode.ARCHIVE


def test_a_fifo_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "f.mar")
    with pytest.raises(NotAnArchiveError, check=has_code("not-a-file")):
        open_archive(tmp_path / "f.mar")
