"""What is drawn of an answer, kind by kind."""

import base64
import io
import json
from typing import Any

import pytest

from marpack.render.article import Drawing, Overlay, Picture, drawing_of, page_templates, picture_of
from marpack.render.report import TimeSeries
from marpack.runner.results import Percentiles, Result

PICTURE = Picture("data:,", 200, 100)


def drawn(answer: Any, *, picture: Picture | None = PICTURE, crop: float | None = None, **result: Any) -> Drawing:
    body = answer if isinstance(answer, str) else json.dumps(answer)
    values: dict[str, Any] = {"input": "x", "status": 200, "phrase": "", "headers": {}, "content_type": None}
    values |= {"body": body, "body_encoding": "text", "stages": {}, "seconds": 0.0}
    return drawing_of(Result(**(values | result)), picture, {"0": "sky", "1": "tree"}, crop)


RARE = ({"words": ["a"], "importances": [0.5]}, {"boxes": [[20, 10, 120, 60]], "labels": ["cat"], "scores": [0.9]})


@pytest.mark.parametrize(
    "answer", [{"count": 17}, {"a": True}, {"a": "b"}, {}, [], [3, 4], [1], 5, None, "plain", [[]], *RARE]
)
def test_other_responses_are_text(answer: Any):
    drawing = drawn(answer)
    assert drawing.text == (answer if isinstance(answer, str) else json.dumps(answer))
    assert not drawing.bars


@pytest.mark.parametrize(
    "answer", [[{"cat": [20, 10, 120, 60], "score": 0.9}], [{"box": [20, 10, 120, 60], "label": "cat", "score": 0.9}]]
)
def test_boxes_are_placed_in_percent_of_the_picture(answer: Any):
    (box,) = drawn(answer).boxes
    assert (box.label, box.score) == ("cat", 0.9)
    assert (box.left, box.top, box.width, box.height) == (10, 10, 50, 50)
    assert not drawn(answer, picture=None).boxes


def test_an_answer_that_is_a_picture_is_shown(png: bytes):
    drawing = drawn(base64.b64encode(png).decode(), body_encoding="base64")
    assert drawing.picture is not None
    assert (drawing.picture.width, drawing.picture.height) == (8, 8)
    assert drawn("AAEC", body_encoding="base64").text == "3 bytes"


def make_image(size: tuple[int, int], kind: str, mode: str = "RGB", **save: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.effect_noise(size, 50)
    if mode.endswith("A"):
        image.putalpha(Image.new("L", size, 0))
    image.convert(mode).save(buffer, kind, **save)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("size", "saved_as", "mode", "options", "kind"),
    [
        ((8, 8), "PNG", "RGB", {}, "png"),
        ((900, 600), "PNG", "RGB", {}, "webp"),
        ((900, 600), "JPEG", "RGB", {}, "webp"),
        ((8, 8), "BMP", "RGB", {}, "webp"),
        ((400, 400), "TIFF", "CMYK", {}, "webp"),
        ((400, 400), "PNG", "P", {"transparency": 0}, "webp"),
        ((400, 400), "PNG", "LA", {}, "webp"),
        ((400, 400), "PNG", "RGBA", {}, "webp"),
        ((300, 300), "PNG", "I;16", {}, "webp"),
    ],
)
def test_pictures_of_every_kind_are_shown(
    size: tuple[int, int], saved_as: str, mode: str, options: dict[str, Any], kind: str
):
    picture = picture_of(make_image(size, saved_as, mode, **options))
    assert picture is not None
    assert (picture.width, picture.height) == size
    assert picture.uri.startswith(f"data:image/{kind};base64,")
    shown = image_of(picture.uri)
    assert shown.size == tuple(min(side, side * 384 // max(size)) for side in size)
    assert (shown.mode == "RGBA") == ("transparency" in options or mode.endswith("A"))


def test_data_that_is_not_a_whole_picture_or_a_bomb_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    for data in (b"", b"no picture", make_image((64, 64), "PNG")[:200], make_image((64, 64), "JPEG")[:90]):
        assert picture_of(data) is None
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 100)
    assert picture_of(make_image((11, 11), "PNG")) is None
    assert picture_of(make_image((80, 80), "PNG")) is None


def test_a_plot_escapes_names_and_merges_columns_when_they_are_full():
    plot = page_templates().get_template("plot.svg.j2")
    assert "No input" in plot.render(stages={}, course=TimeSeries())
    assert "&lt;b&gt;" in plot.render(stages={"<b>": Percentiles(1, 2, 3)}, course=TimeSeries())
    course = TimeSeries()
    for number in range(240):
        course.add(float(number))
    assert (course.columns, course.stride) == ([float(number) for number in range(240)], 1)
    for number in (7, 9, 8):
        course.add(float(number))
    assert (course.columns, course.stride) == ([*(float(2 * number + 1) for number in range(120)), 9.0, 8.0], 2)


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ({"a": 0, "b": 1.001}, ["b", "a"]),
        ({"a": 1.002}, []),
        ({"a": -0.1, "b": 0.5}, []),
        ([0.5, 0.509], ["tree", "sky"]),
        ([0.5, 0.511], []),
        ([0.5, 0.489], []),
        ([True, False], []),
        ([{"class": "a", "probability": 0.5}], ["a"]),
        ([{"name": "a", "confidence": 0.5}], ["a"]),
        ([{"label": "cat", "score": 0.1}, {"label": "dog", "score": 0.9}], ["cat", "dog"]),
        ([{"label": "a"}], []),
        ([{"label": "a", "score": 0.5}, {"label": "b", "score": "high"}], []),
        ([{"label": "a", "score": 0.5}, {"score": 0.5}], []),
    ],
)
def test_probabilities_are_bars(answer: Any, labels: list[str]):
    assert [label for label, _ in drawn(answer).bars] == labels


@pytest.mark.parametrize("more", [0, 1, 28])
def test_long_drawings_are_cut_and_counted(more: int):
    bars = drawn({f"c{number}": number / 100 for number in range(12 + more)})
    assert (len(bars.bars), bars.bars[0], bars.more) == (12, (f"c{11 + more}", 11.0 + more), more)
    boxes = drawn([{"cat": [0, 0, 1, 1], "score": 0.5}] * (200 + more))
    assert (len(boxes.boxes), boxes.more) == (200, more)
    text = drawn("x" * (4_000 + more))
    assert (len(text.text), text.more) == (4_000, more)
    assert drawn({"cat": 1.0009}).bars == (("cat", 100.0),)


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ([{"cat": [0, 0, 9, 9]}, {"dog": [0, 0, 9, 9]}], ["cat", "dog"]),
        ([{"1": [0, 0, 9, 9]}], ["tree"]),
        ([{"bbox": [0, 0, 9, 9]}], [""]),
        ([{"cat": [0, 0, 9, 9]}, {"dog": [0, 0, 9]}], []),
        ([{"cat": [0, 0, 9, True]}], []),
        ([{"cat": [0, 0, 9, 9], "dog": [0, 0, 9, 9]}], []),
        ([{"cat": [0, 0, 9, 9]}, 5], []),
    ],
)
def test_responses_that_are_boxes(answer: Any, labels: list[str]):
    boxes = drawn(answer).boxes
    assert [box.label for box in boxes] == labels
    assert {box.score for box in boxes} <= {None}
    one, same, other = drawn([{"cat": [0, 0, 9, 9]}, {"cat": [1, 1, 5, 5]}, {"dog": [0, 0, 9, 9]}]).boxes
    assert one.hue == same.hue != other.hue
    assert 0 <= min(one.hue, other.hue) <= max(one.hue, other.hue) < 360


def image_of(uri: str) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def pixels(overlay: Overlay | None) -> Any:
    """Return an overlay's pixels with their opacity, column by column."""
    assert overlay is not None
    return image_of(overlay.uri).convert("RGBA").load()


def test_a_mask_is_transparent_on_the_background_with_a_color_for_each_class():
    found = pixels(drawn([[0] * 8] + [[1, 2, 3, 4, 5, 6, 255, 0]] * 7).overlay)
    row = [found[column, 1] for column in range(8)]
    assert [alpha for *_, alpha in row] == [165] * 7 + [0]
    assert len(set(row)) == 8
    assert found[0, 0][3] == 0
    assert [pixel[:3] for pixel in row[:6]] == [  # all around the wheel
        (40, 230, 95),
        (151, 40, 230),
        (230, 206, 40),
        (40, 198, 230),
        (230, 40, 143),
        (87, 230, 40),
    ]


def test_a_legend_names_the_eight_largest_classes_in_the_colors_of_the_mask():
    mask = [[index] * 10 for index in range(10)] + [[1] * 10]
    overlay = drawn(mask).overlay
    assert overlay is not None
    found = pixels(overlay)
    assert [(share["label"], share["share"]) for share in overlay.legend[:2]] == [("tree", 18.2), ("sky", 9.1)]
    assert [share["label"] for share in overlay.legend[2:]] == ["2", "3", "4", "5", "6", "7"]
    assert overlay.legend[1]["color"] == "transparent"
    assert overlay.legend[0]["color"] == "rgb({}, {}, {})".format(*found[0, 1][:3]).replace(",", "")


def test_heat_is_the_sum_of_absolute_channels_and_outliers_do_not_hide_the_rest():
    rows = [[[0.0] * 4 + [-1.0] * 4 + [0.5] * 8] * 8, [[0.0] * 4 + [1.0] * 4 + [0.5] * 8] * 8]
    found = pixels(drawn(rows).overlay)
    cold, hot, warm = found[0, 0], found[4, 0], found[8, 0]
    assert (cold[3], hot[3], warm[3]) == (0, 63 * 220 // 64, 32 * 220 // 64)
    assert (cold[:3], hot[:3], warm[:3]) == ((255, 60, 0), (255, 60 + 2 * 63, 0), (255, 60 + 2 * 32, 0))
    flat = [1.0] * 399 + [1000.0]
    found = pixels(drawn([[flat[20 * row : 20 * row + 20] for row in range(20)]]).overlay)
    assert found[0, 0] == found[19, 19]
    lonely = [0.0] * 399 + [1.0]
    found = pixels(drawn([[lonely[20 * row : 20 * row + 20] for row in range(20)]]).overlay)
    assert (found[0, 0][3], found[19, 19][3] > 200) == (0, True)
    assert pixels(drawn([[[0.0] * 8] * 8]).overlay)[0, 0][3] == 0


@pytest.mark.parametrize(
    ("answer", "is_overlay"),
    [
        ([[0] * 32] * 2, True),
        ([[0] * 64], False),  # one row is no picture
        ([[0] * 21] * 3, False),  # 63 pixels
        ([[255] * 8] * 8, True),
        ([[256] * 8] * 8, False),
        ([[0.5] * 16] * 16, False),
        ([[-1] * 16] * 16, False),
        ([[0] * 16] * 15 + [[0] * 4], False),
        ([["a"] * 16] * 16, False),
        ([[float("inf")] * 16] * 16, False),
        ([[[0]] * 16] * 16, False),
        ([[[0.5] * 8] * 8] * 4, True),
        ([[[0.5] * 8] * 8] * 5, False),
        ([[[0.5] * 8] * 8, [[0.5] * 9] * 8], False),
        ([[["a"] * 8] * 8], False),
        ([[[1, 0.5, 3]] * 8] * 8, False),
    ],
)
def test_responses_that_are_masks_or_heat_maps(answer: Any, is_overlay: bool):
    assert (drawn(answer).overlay is not None) == is_overlay
    assert drawn(answer, picture=None).overlay is None


@pytest.mark.parametrize(
    ("size", "place"), [((200, 100), (25.0, 0.0, 50.0, 100.0)), ((100, 200), (0.0, 25.0, 100.0, 50.0))]
)
def test_a_mask_covers_the_crop_of_the_handler(size: tuple[int, int], place: tuple[float, ...]):
    mask = [[[row % 2, 0.9] for _ in range(16)] for row in range(16)]
    overlay = drawn(mask, crop=0.5).overlay
    assert isinstance(overlay, Overlay)
    assert (overlay.left, overlay.top, overlay.width, overlay.height) == (37.5, 25, 25, 50)
    assert [(share["label"], share["share"]) for share in overlay.legend] == [("sky", 50), ("tree", 50)]
    overlay = drawn([[0] * 8] * 8, picture=Picture("data:,", *size), crop=1.0).overlay
    assert overlay is not None
    assert (overlay.left, overlay.top, overlay.width, overlay.height) == place
    overlay = drawn([[0] * 8] * 8, picture=Picture("data:,", *size)).overlay
    assert overlay is not None
    assert (overlay.left, overlay.top, overlay.width, overlay.height) == (0, 0, 100, 100)
