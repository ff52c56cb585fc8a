"""What is drawn of an answer, kind by kind."""

import json
from typing import Any

import pytest

from marpack.render.report.drawings import Bar, Drawing, DrawingContext, drawing_of
from marpack.render.report.page import TimeSeries, page_templates
from marpack.render.report.pictures import Overlay, Picture, picture_of
from marpack.runner.results import Percentiles, Result

PICTURE = Picture("data:,", 200, 100)


def drawn(answer: Any, *, picture: Picture | None = PICTURE, crop: float | None = None, **result: Any) -> Drawing:
    body = answer if isinstance(answer, str) else json.dumps(answer)
    values: dict[str, Any] = {
        "input": "x",
        "status": 200,
        "phrase": "",
        "headers": {},
        "content_type": None,
        "body": body,
        "body_encoding": "text",
        "stages": {},
        "seconds": 0.0,
    }
    parsed = None if isinstance(answer, str) else answer
    return drawing_of(Result(**(values | result)), parsed, DrawingContext(picture, {"0": "sky", "1": "tree"}, crop))


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ({"cat": 0.1, "dog": 0.9}, ["dog", "cat"]),
        ([{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}], ["cat", "dog"]),
        ([0.25, 0.75], ["tree", "sky"]),
    ],
)
def test_probabilities_are_bars_the_likeliest_first(answer: Any, labels: list[str]):
    assert [bar.label for bar in drawn(answer).bars] == labels


def test_many_classes_are_cut_short_and_counted():
    drawing = drawn({f"c{number}": number / 100 for number in range(40)})
    assert (len(drawing.bars), drawing.bars[0], drawing.more) == (12, Bar("c39", 0.39, 39.0), 28)


RARE = ({"words": ["a"], "importances": [0.5]}, {"boxes": [[20, 10, 120, 60]], "labels": ["cat"], "scores": [0.9]})


@pytest.mark.parametrize(
    "answer", [{"count": 17}, {"a": True}, {"a": "b"}, {}, [], [3, 4], [1], 5, None, "plain", [[]], *RARE]
)
def test_what_is_no_drawing_is_text(answer: Any):
    drawing = drawn(answer)
    assert drawing.text == (answer if isinstance(answer, str) else json.dumps(answer))
    assert not drawing.bars


@pytest.mark.parametrize(
    "answer",
    [
        [{"cat": [20, 10, 120, 60], "score": 0.9}],
        [{"box": [20, 10, 120, 60], "label": "cat", "score": 0.9}],
    ],
)
def test_boxes_are_placed_in_percent_of_the_picture(answer: Any):
    (box,) = drawn(answer).boxes
    assert (box.label, box.score) == ("cat", 0.9)
    assert (box.left, box.top, box.width, box.height) == (10, 10, 50, 50)
    assert not drawn(answer, picture=None).boxes


def test_a_mask_lies_where_the_handler_looked():
    mask = [[[row % 2, 0.9] for _ in range(16)] for row in range(16)]
    overlay = drawn(mask, crop=0.5).overlay
    assert isinstance(overlay, Overlay)
    assert (overlay.left, overlay.top, overlay.width, overlay.height) == (37.5, 25, 25, 50)
    assert [(share.label, share.share) for share in overlay.legend] == [("sky", 50), ("tree", 50)]
    whole = drawn([[0] * 16] * 16).overlay
    assert whole is not None
    assert (whole.left, whole.width) == (0, 100)


def test_attributions_are_a_heat_map():
    overlay = drawn([[[0.1 * column for column in range(16)]] * 16] * 3).overlay
    assert overlay is not None
    assert not overlay.legend


@pytest.mark.parametrize(
    "answer",
    [
        [[0.5] * 16] * 16,
        [[-1] * 16] * 16,
        [[999] * 16] * 16,
        [[0] * 16] * 15 + [[0] * 4],
        [["a"] * 16] * 16,
        [[float("inf")] * 16] * 16,
        [[[0]] * 16] * 16,
    ],
)
def test_nested_lists_that_are_no_mask_are_text(answer: Any):
    assert drawn(answer).overlay is None


def test_an_answer_that_is_a_picture_is_shown(png: bytes):
    import base64

    drawing = drawn(base64.b64encode(png).decode(), body_encoding="base64")
    assert drawing.picture is not None
    assert (drawing.picture.width, drawing.picture.height) == (8, 8)
    assert drawn("AAEC", body_encoding="base64").text == "3 bytes"


def test_a_failure_is_its_text():
    assert drawn({"code": 0.5}, status=503).text == '{"code": 0.5}'


def test_a_long_answer_is_cut_short():
    drawing = drawn("x" * 10_000)
    assert (len(drawing.text), drawing.more) == (4_000, 6_000)


def make_image(size: tuple[int, int], kind: str, mode: str = "RGB", **save: Any) -> bytes:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.effect_noise(size, 50).convert(mode).save(buffer, kind, **save)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "size", "kind"),
    [
        (make_image((8, 8), "PNG"), (8, 8), "png"),
        (make_image((900, 600), "PNG"), (900, 600), "webp"),
        (make_image((900, 600), "JPEG"), (900, 600), "webp"),
        (make_image((8, 8), "BMP"), (8, 8), "webp"),
        (make_image((400, 400), "TIFF", "CMYK"), (400, 400), "webp"),
        (make_image((400, 400), "PNG", "P", transparency=0), (400, 400), "webp"),
        (make_image((300, 300), "PNG", "I;16"), (300, 300), "webp"),
    ],
)
def test_pictures_of_every_kind_are_shown(data: bytes, size: tuple[int, int], kind: str):
    picture = picture_of(data)
    assert picture is not None
    assert (picture.width, picture.height) == size
    assert picture.uri.startswith(f"data:image/{kind};base64,")


@pytest.mark.parametrize(
    "data", [b"", b"no picture", make_image((64, 64), "PNG")[:200], make_image((64, 64), "JPEG")[:90]]
)
def test_what_is_no_whole_picture_is_none(data: bytes):
    assert picture_of(data) is None


def test_a_bomb_is_none(monkeypatch: pytest.MonkeyPatch):
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert picture_of(make_image((11, 11), "PNG")) is None
    assert picture_of(make_image((80, 80), "PNG")) is None


def test_a_course_keeps_its_shape_in_few_columns():
    course = TimeSeries()
    for number in range(10_000):
        course.add(1000.0 if number == 5_000 else 1.0)
    assert 100 < len(course.columns) <= 240
    assert course.stride == 64
    assert course.columns.index(1000) == 5_000 // 64
    assert course.columns.count(1) == len(course.columns) - 1


def test_a_plot_of_nothing_says_so_and_names_are_escaped():
    plot = page_templates().get_template("plot.svg.j2")
    assert "No input" in plot.render(stages={}, course=TimeSeries())
    assert "&lt;b&gt;" in plot.render(stages={"<b>": Percentiles(1, 2, 3)}, course=TimeSeries())
