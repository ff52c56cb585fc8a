from pathlib import Path

import pytest

from marpack.errors import OutputError, UsageError
from marpack.runner.client import BatchResult
from marpack.runner.outputs import BodyFolder, file_name, suffix_of
from marpack.runner.results import Result, results_of
from marpack.torchserve.http import Response


def answered(name: str, body: bytes, status: int = 200) -> Result:
    return results_of((name,), BatchResult(responses=(Response(status=status, body=body),)))[0]


@pytest.mark.parametrize(
    ("content_type", "body", "suffix"),
    [
        ("application/json", b"", ".json"),
        ("Text/Plain; charset=utf-8", b"", ".txt"),
        ("image/jpeg", b"", ".jpg"),
        ("image/webp", b"", ".webp"),
        ("text/html", b"", ".html"),
        ("application/octet-stream", b"\x89PNG\r\n\x1a\n", ".png"),
        ("nonsense/nonsense", b"{}", ".json"),
        (None, b'{"a": 1}', ".json"),
        (None, b'{"a": NaN}', ".json"),
        (None, b"[1, 2", ".txt"),
        (None, b"17", ".txt"),
        (None, b"hello", ".txt"),
        (None, b"", ".txt"),
        (None, b" \n[1]", ".json"),
        (None, b"[" * 100_000, ".txt"),
        (None, b"\xff\xd8\xff\xe0", ".jpg"),
        (None, b"RIFF\0\0\0\0WAVE", ".txt"),
        (None, b"PK\x03\x04" + b"\0" * 499 + b"/data.pkl", ".pt"),
        (None, b"PK\x03\x04" + b"\0" * 500 + b"/data.pkl", ".zip"),
        (None, b"RIFF\0\0\0\0WEBPVP8 ", ".webp"),
        (None, b"\x93NUMPY\1\0", ".npy"),
        (None, b"PK\x03\x04" + b"\0" * 26 + b"archive/data.pkl", ".pt"),
        (None, b"PK\x03\x04 something else", ".zip"),
        (None, b"\x00\xff\xfe", ".bin"),
    ],
)
def test_a_suffix_goes_by_type_then_by_content(content_type: str | None, body: bytes, suffix: str):
    assert suffix_of(content_type, body) == suffix


def test_what_torch_saves_is_a_pt_file():
    torch = pytest.importorskip("torch")
    import io

    buffer = io.BytesIO()
    torch.save(torch.zeros(2), buffer)
    assert suffix_of(None, buffer.getvalue()) == ".pt"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("in/a.png", "a.png"),
        ("/abs/a.png", "a.png"),
        ("https://host/x/a.png?key=1&b=/etc", "a.png"),
        ("https://host/", "host"),
        ("data[0]", "data[0]"),
        ("r.jsonl:12", "r.jsonl:12"),
        ("..", "answer"),
        ("a/..", "answer"),
        ("", "answer"),
        ("in/", "answer"),
        ("a\0b\nc", "a_b_c"),
    ],
)
def test_a_file_is_called_like_its_input_and_lies_nowhere_else(name: str, file: str):
    assert file_name(name) == file


def test_long_names_stay_apart():
    one, other = (file_name("é" * 300 + letter) for letter in "ab")
    assert one != other
    assert len(one.encode()) <= 180
    assert file_name("a" * 180) == "a" * 180
    assert file_name("a" * 181).startswith("a" * 171 + "-")
    assert len(file_name("a" * 181)) == 180


def test_no_file_is_ever_replaced(tmp_path: Path):
    (tmp_path / "a.txt").write_text("of an earlier run")
    folder = BodyFolder(str(tmp_path), may_hold_files=True)
    saved = [
        folder.save(answered(f"in/{name}", body))
        for name, body in (("a", b"1"), ("a", b"2"), ("a", b"{}"), ("b", b"3"))
    ]
    assert [Path(each.file).name for each in saved] == ["a-2.txt", "a-3.txt", "a.json", "b.txt"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.txt": "of an earlier run", "a-2.txt": "1", "a-3.txt": "2", "a.json": "{}", "b.txt": "3",
    }  # fmt: skip


def test_what_is_no_answer_has_no_file(tmp_path: Path):
    folder = BodyFolder(str(tmp_path / "new" / "folder"), may_hold_files=False)
    assert folder.save(answered("a", b"", status=0)).file is None
    assert folder.save(answered("a", b"no", status=500)).file == str(tmp_path / "new" / "folder" / "a.txt")
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 1


def test_a_folder_that_is_none_or_is_used_is_not_taken(tmp_path: Path):
    (tmp_path / "file").touch()
    for path, code in ((tmp_path / "file", "not-a-folder"), (tmp_path, "folder-not-empty")):
        with pytest.raises(UsageError) as refused:
            BodyFolder(str(path), may_hold_files=False)
        assert (refused.value.code, refused.value.where) == (code, str(path))
    with pytest.raises(OutputError) as unmade:
        BodyFolder(str(tmp_path / "file" / "x"), may_hold_files=False)
    assert unmade.value.where == str(tmp_path / "file" / "x")
    (tmp_path / "gone").mkdir()
    folder = BodyFolder(str(tmp_path / "gone"), may_hold_files=False)
    (tmp_path / "gone").rmdir()
    with pytest.raises(OutputError) as unwritten:
        folder.save(answered("a", b""))
    assert str(unwritten.value.where).startswith(str(tmp_path / "gone" / "a"))
