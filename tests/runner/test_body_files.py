import pytest

from marpack.runner.body_files import file_name, suffix_of


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
        (None, b"\xff\xd8\xff\xe0", ".jpg"),
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
