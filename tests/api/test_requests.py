"""What is sent for a value, and what cannot be sent."""

import io
import json
from collections import OrderedDict
from datetime import date
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from lazy import torch
from PIL import Image
from refusals import has_code

from marpack.api.declaring import valid
from marpack.api.requests import PredictOptions, defaults_of, payload, request_for, request_from_form, requests_from
from marpack.errors import UsageError

SHAPE = defaults_of(PredictOptions(max_request_size=1 << 20))
ITSELF: list[Any] = []
ITSELF.append(ITSELF)


def png(image: Image.Image) -> Image.Image:
    """Return the picture that is sent for another."""
    sent = payload(image, "data")
    assert sent.content_type == "image/png"
    return Image.open(io.BytesIO(sent.content))


@pytest.mark.parametrize(
    ("value", "content_type", "content"),
    [
        (None, "", b""),
        ("héllo", "text/plain", "héllo".encode()),
        ("", "text/plain", b""),
        ("a\0b", "text/plain", b"a\0b"),
        ("https://host/cat.png", "text/plain", b"https://host/cat.png"),
        (b"\x00\xff", "", b"\x00\xff"),
        (bytearray(b"ab"), "", b"ab"),
        (memoryview(b"abcd")[::2], "", b"ac"),
    ],
)
def test_text_and_bytes_go_as_they_are(value: Any, content_type: str, content: bytes) -> None:
    sent = payload(value, "data")
    assert (sent.content_type, sent.content) == (content_type, content)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
        (5, 5),
        (False, False),
        ((1, 2), [1, 2]),
        (date(2026, 1, 2).timetuple()[:3], [2026, 1, 2]),
        (OrderedDict(b=1), {"b": 1}),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
        (np.zeros((2, 1, 2), np.uint8), [[[0, 0]], [[0, 0]]]),
        (np.array(1.5, np.float32), 1.5),
        (np.array([1, None], object), [1, None]),
        (np.array([], np.int64), []),
        (np.arange(6).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]]),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        ({"pixels": np.array([1, 2]), "n": np.int64(3)}, {"pixels": [1, 2], "n": 3}),
        (lambda: [np.array([1]), torch.tensor([2])], [[1], [2]]),
        (lambda: torch.tensor([[1, 2]]), [[1, 2]]),
        (lambda: torch.tensor(2.5), 2.5),
        (lambda: torch.tensor([0.5, 1.5], dtype=torch.bfloat16), [0.5, 1.5]),
        (lambda: torch.tensor([1.0], requires_grad=True) * 2, [2.0]),
        (lambda: torch.tensor([True, False]), [True, False]),
    ],
)
def test_everything_else_goes_as_json(value: Any, same: Any) -> None:
    sent = payload(value() if isinstance(value, FunctionType) else value, "data")
    assert (sent.content_type, json.loads(sent.content)) == ("application/json", same)


MODES = "1:1 L:L LA:LA P:P RGB:RGB RGBA:RGBA CMYK:RGB YCbCr:RGB HSV:RGB LAB:RGB RGBX:RGB RGBa:RGBA PA:RGBA La:LA I:I;16"


@pytest.mark.parametrize(("mode", "sent"), [pair.split(":") for pair in MODES.split()])
def test_a_picture_goes_as_png(mode: str, sent: str) -> None:
    assert (png(Image.new(mode, (3, 2))).mode, png(Image.new(mode, (3, 2))).size) == (sent, (3, 2))


def test_a_pictures_pixels_stay_what_they_are() -> None:
    picture = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    assert png(picture).tobytes() == picture.tobytes()
    deep = Image.fromarray(np.array([[0, 65_535]], np.int32))
    assert np.asarray(png(deep)).tolist() == [[0, 65_535]]


def test_a_file_goes_with_its_type(tmp_path: Path) -> None:
    for name, content, content_type in (
        ("a.txt", b"hi", "text/plain"),
        ("a.bin", b"\x89PNG\r\n\x1a\n", "application/octet-stream"),
        ("named", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("-", b"x", "application/octet-stream"),  # which is stdin to the command, and a file here
    ):
        (tmp_path / name).write_bytes(content)
        sent = payload(tmp_path / name, "data")
        assert (sent.content_type, sent.content) == (content_type, content)


def test_a_text_that_names_a_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    long = "x" * 255
    for name in ("cat.png", "a b", long):
        Path(name).write_bytes(b"")
        note = payload(name, "data").note
        assert note.kind == "text-names-a-file"
        assert f"predict(Path({name!r}))" in str(note.hint)
    Path("folder").mkdir()
    Path("two\nlines").touch()
    for text in ("dog.png", "", "folder", "two\nlines", "a\0b", "x" * 256):
        assert payload(text, "data").note is None


def test_a_form_holds_values_of_the_same_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    form = {"text": "a", "raw": b"\x00", "file": tmp_path / "a.png", "json": {"n": np.int8(1)}, "none": None}
    parts = request_from_form(SHAPE, "form", 0, form).request.parts
    assert [(part.name, part.value, part.content_type) for part in parts] == [
        ("text", b"a", ""),
        ("raw", b"\x00", ""),
        ("file", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("json", b'{"n": 1}', "application/json"),
        ("none", b"", ""),
    ]
    picture = request_from_form(SHAPE, "form", 0, {"picture": Image.new("L", (1, 1))}).request.parts[0]
    assert (picture.content_type, picture.value[:4]) == ("image/png", b"\x89PNG")


def test_several_are_called_by_their_path_or_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hi")
    inputs = requests_from(iter([tmp_path / "a.txt", "text", {"a": 1}]), SHAPE)
    assert [each.name for each in inputs] == [str(tmp_path / "a.txt"), "inputs[1]", "inputs[2]"]
    shape = defaults_of(PredictOptions(content_type="text/csv", max_request_size=100))
    assert request_for(shape, "x", 0, "a,b").request.parts[0].content_type == "text/csv"


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), "data"),
        ({"a": [1.0, float("-inf")]}, "data['a'][1]"),
        (np.array([[0.0, 1.0], [2.0, np.nan]]), "data[1][1]"),
        (lambda: torch.tensor([1.0, float("inf")]), "data[1]"),
        (lambda: [{"x": torch.tensor([float("nan")])}], "data[0]['x'][0]"),
        ({1, 2}, "data"),
        ({"day": date(2026, 1, 1)}, "data['day']"),
        (object(), "data"),
        ((x for x in ()), "data"),
        ({"raw": b"x"}, "data['raw']"),
        ({"file": Path("x.png")}, "data['file']"),
        ([Image.new("L", (1, 1))], "data[0]"),
        ({(1, 2): 3}, "data[(1, 2)]"),
        ({np.int64(1): 3}, "data[np.int64(1)]"),
        (1j, "data"),
        (np.array(["2026-01-01"], "M8[ns]"), "data"),
        (np.longdouble(1), "data"),
        (lambda: torch.ones(2).to_sparse(), "data"),
        (lambda: torch.ones(2, device="meta"), "data"),
        (ITSELF, "data"),
        ([10**5000], "data"),
        ("\ud800", "data"),
        (Path("no such thing"), "no such thing"),
        (Path("a\0b"), "a\0b"),
        (Path("x" * 9000), None),
        (Path(), "."),
        (Image.new("F", (1, 1)), "data"),
        (Image.new("I", (1, 1), 70_000), "data"),
        (Image.new("I", (1, 1), -1), "data"),
        (Image.new("L", (0, 1)), "data"),
    ],
)
def test_a_value_that_cannot_be_sent_is_refused(value: Any, where: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        request_for(SHAPE, "x", 0, value() if isinstance(value, FunctionType) else value)
    assert where is None or caught.value.where == where
    assert "\n" not in caught.value.what
    assert len(str(caught.value)) < 400


def test_a_picture_that_is_closed_or_cut_off_is_told() -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "PNG")
    closed = Image.open(io.BytesIO(buffer.getvalue()))
    closed.close()
    for broken in (closed, Image.open(io.BytesIO(buffer.getvalue()[:1000]))):
        with pytest.raises(UsageError, check=has_code("invalid-picture", where="data")):
            payload(broken, "data")


@pytest.mark.parametrize(
    "options",
    [
        *({"headers": headers} for headers in ({"X": 5}, {"": "a"}, {"X Y": "a"}, {"X": "a\r\nY: b"}, 5, ["X"])),
        *({"content_type": content_type} for content_type in (5, "text/\ud800")),
    ],
)
def test_values_that_http_cannot_carry_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        defaults_of(valid(PredictOptions(**options)))
    assert caught.value.where in options


@pytest.mark.parametrize("form", [[("a", "b")], {5: "a"}, {"a": {1}}, {"a": Path("no such thing")}, {"a": "\ud800"}])
def test_an_unusable_form_is_refused(form: Any) -> None:
    with pytest.raises(UsageError):
        request_from_form(SHAPE, "form", 0, form)
