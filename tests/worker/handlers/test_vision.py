import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from worker.handlers.make_reference import FOLDER, chains, outcome, pixels

from marpack.protocol.messages import ModelOutput
from marpack.protocol.targets import Target
from marpack.worker.handlers import vision
from marpack.worker.handlers.vision import (
    CenterCrop,
    Compose,
    ImageClassifier,
    ImageNet,
    Normalize,
    ObjectDetector,
    Resize,
    ToTensor,
)
from marpack.worker.notes import drain_outputs
from marpack.worker.trouble import note_labels_gap

OPTIONS = {"handler": {"topk": 2, "resize": 40, "crop": 32}}


@pytest.fixture
def classify(make_context, save_averages):
    """Answer one body with a classifier of so many classes."""

    def ask(body, *, classes=6, target=Target.TORCHSERVE, config=None, labels=None):
        path = save_averages(classes)
        if labels is not None:
            (path.parent / "index_to_name.json").write_text(json.dumps(labels))
        handler, context = ImageClassifier(), make_context(target=target, config=config)
        handler.initialize(context)
        return handler.handle([{"body": body}], context)

    return ask


def photo(name="photo-131x97-progressive.jpg"):
    return bytearray((FOLDER / name).read_bytes())


def test_the_five_likeliest_labels(classify):
    [answer] = classify(photo())
    assert len(answer) == 5
    assert list(answer.values()) == sorted(answer.values(), reverse=True)
    assert drain_outputs() == {ModelOutput(6), ModelOutput(6, classes=True)}


def test_data_goes_before_body_and_a_batch_keeps_its_order_and_needs_one_shape(make_context, save_averages, notes):
    save_averages(5)
    handler = ImageClassifier()
    handler.initialize(make_context())
    zeros, ones = torch.zeros(3, 2, 2).tolist(), torch.ones(3, 2, 2).tolist()
    batch = handler.preprocess([{"data": ones, "body": zeros}, {"data": "", "body": zeros}])
    assert batch[:, 0, 0, 0].tolist() == [1.0, 0.0]
    with pytest.raises(RuntimeError):
        handler.preprocess([{"body": zeros}, {"body": torch.zeros(3, 2, 4).tolist()}])
    assert "(3, 2, 2), (3, 2, 4)" in notes()["shapes-differ"].message


WRONG = [
    # body, exception, note, words of the message, words of the hint
    (None, TypeError, "empty-body", "no picture", "curl"),
    (bytearray(), OSError, "empty-body", "no picture", "curl"),
    ({"data": "aGk="}, TypeError, "json-object", "JSON object (data)", "<base64>"),
    ("not base64!", ValueError, "not-base64", "not base64", "base64"),
    (["a"], ValueError, "not-numbers", "JSON list", "nested lists"),
    (photo("not-a-picture.jpg"), OSError, "not-a-picture", "not a picture that Pillow knows", "curl"),
    (bytearray(b'{"data": '), OSError, "undecoded-json", "application/json", "base64"),
    (photo("truncated.jpg"), OSError, "picture-damaged", "truncated", "file"),
    (photo("bomb-300-megapixels.png"), Image.DecompressionBombError, "picture-too-large", "300000000", "limit_max"),
    (photo("photo-16bit.png"), TypeError, "picture-mode", "131 x 97 in mode I;16 has more than 8 bits", "convert"),
    (photo("photo-gray.png"), RuntimeError, "picture-mode", "mode L has 1 channels", "convert"),
    (photo("photo-palette.png"), RuntimeError, "picture-mode", "mode P", "convert"),
    (photo("photo-la.png"), RuntimeError, "picture-mode", "mode LA has 2 channels", "convert"),
    (photo("photo-cmyk.jpg"), RuntimeError, "picture-mode", "mode CMYK", "convert"),
]


@pytest.mark.parametrize(("body", "exception", "kind", "message", "hint"), WRONG)
def test_what_the_server_refuses_is_refused_with_reason_and_fix(classify, notes, body, exception, kind, message, hint):
    with pytest.raises(exception):
        classify(body)
    trouble = notes()[kind]
    assert trouble.stage == "preprocess"
    assert message in trouble.message
    assert hint in trouble.hint


def test_target_marpack_takes_pictures_of_any_mode(make_context, save_averages, notes):
    save_averages()
    handler, context = ImageClassifier(), make_context(target=Target.MARPACK)
    handler.initialize(context)
    for path in FOLDER.glob("photo*"):
        [answer] = handler.handle([{"body": photo(path.name)}], context)
        assert (len(answer), notes()) == (5, {}), path.name


def test_16_bits_keep_their_upper_eight_under_target_marpack_and_exif_is_left_alone(classify):
    gray = Image.open(FOLDER / "photo-gray.png")
    for name in ("photo-16bit.png", "photo-16bit-big-endian.tiff"):
        assert vision.to_rgb(Image.open(FOLDER / name)).getpixel((60, 50)) == (gray.getpixel((60, 50)),) * 3, name
    assert classify(photo("photo-rotated-by-exif.jpg")) == classify(photo())


def test_too_few_classes(classify, notes):
    picture = photo("photo-rgb.png")
    with pytest.raises(RuntimeError):
        classify(picture, classes=3)
    assert re.findall(r"\d+", notes()["topk"].message) == ["5", "3"]
    [answer] = classify(picture, classes=3, target=Target.MARPACK)
    assert len(answer) == 3


def test_pillows_limit_is_lifted_when_the_server_is_told_to(make_context, save_averages, monkeypatch):
    limit = Image.MAX_IMAGE_PIXELS
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    save_averages()
    context = make_context()
    for limited in (True, False):
        context.system_properties["limit_max_image_pixels"] = limited
        ImageClassifier().initialize(context)
        assert limit == Image.MAX_IMAGE_PIXELS if limited else Image.MAX_IMAGE_PIXELS is None


def test_authors_set_topk_and_image_processing(make_context, save_averages):
    save_averages(6)

    class Small(ImageClassifier):
        topk = 2

        def image_processing(self, picture):
            return torch.full((3, 1, 1), float(picture.width))

    handler, context = Small(), make_context(config=OPTIONS, target=Target.MARPACK)
    handler.initialize(context)
    assert handler.preprocess([{"body": photo()}]).shape == (1, 3, 1, 1)  # an author's own steps are not resized
    assert [len(answer) for answer in handler.handle([{"body": photo()}], context)] == [2]
    handler.set_max_result_classes(1)
    assert handler.get_max_result_classes() == 1
    assert [list(answer) for answer in handler.handle([{"body": photo()}], context)] == [["5"]]


def test_options_of_the_config_count_under_target_marpack_only(classify, make_context, save_averages, notes):
    [answer] = classify(photo(), config=OPTIONS, target=Target.MARPACK)
    assert len(answer) == 2
    handler = ImageClassifier()
    handler.initialize(make_context(config=OPTIONS, target=Target.MARPACK))
    assert handler.preprocess([{"body": photo()}]).shape == (1, 3, 32, 32)
    assert ImageClassifier.image_processing.sizes == {"resize": 256, "crop": 224}
    assert not notes()
    assert classify(photo(), config=OPTIONS) == classify(photo())
    assert "handler.topk, handler.resize, handler.crop" in notes()["handler-options"].message


def test_options_that_make_no_sense(classify):
    for key, value in (("topk", 0), ("topk", "3"), ("topk", True), ("resize", 2.5), ("crop", -1)):
        with pytest.raises(Exception, match=f"handler.{key}") as failure:
            classify(photo(), config={"handler": {key: value}}, target=Target.MARPACK)
        assert key in failure.value.hint


def test_the_least_that_options_may_be(make_context, save_averages):
    save_averages()
    handler, options = ImageClassifier(), {"topk": 1, "resize": 1, "crop": 1}
    handler.initialize(make_context(config={"handler": options}, target=Target.MARPACK))
    assert handler.preprocess([{"body": photo()}]).shape == (1, 3, 1, 1)
    assert handler.topk == 1
    for threshold in (0, 0.0, 1, 0.25):
        detector = ObjectDetector()
        detector.initialize(make_context(config={"handler": {"threshold": threshold}}, target=Target.MARPACK))
        assert detector.threshold == threshold


REFERENCE = json.loads((FOLDER / "reference.json").read_text())["pictures"]


@pytest.mark.parametrize("name", [name for name, entry in REFERENCE.items() if entry.keys() > {"pixels"}])
def test_equals_torchvision_bit_for_bit(name):
    with Image.open(FOLDER / name) as picture:
        if pixels(picture) != REFERENCE[name]["pixels"]:
            assert not name.endswith((".png", ".bmp")), "lossless pictures decode everywhere alike"
            pytest.skip("this Pillow decodes the file to other pixels than the one that torchvision was asked with")
    for step in REFERENCE[name].keys() - {"pixels"}:
        assert outcome(chains(vision)[step], FOLDER / name) == REFERENCE[name][step], step


def test_steps_on_arrays_round_half_to_even_and_leave_their_input_alone():
    for edge, left in ((7, 2), (9, 2), (6, 1)):
        picture = Image.fromarray(np.arange(edge, dtype=np.uint8)[None, :].repeat(edge, 0))
        assert np.asarray(CenterCrop(4)(picture))[0, 0] == left
    gray, tensor = np.full((2, 3), 51, dtype=np.uint8), torch.ones(1, 2, 2)
    assert ToTensor()(gray).tolist() == torch.full((1, 2, 3), 0.2).tolist()
    assert ToTensor()(np.zeros((2, 3, 4), dtype=np.float64)).shape == (4, 2, 3)
    Normalize([1.0], [2.0])(tensor)
    assert tensor.eq(1).all()
    picture = Image.new("RGB", (64, 80))
    assert Resize(64)(picture) is picture
    chain = ImageNet()  # its steps can be read and changed like torchvision's
    assert [type(step).__name__ for step in chain.transforms] == ["Resize", "CenterCrop", "ToTensor", "Normalize"]
    assert Compose(chain.transforms[:2])(Image.new("L", (30, 40))).size == (224, 224)
    assert ImageNet(crop=32)(Image.new("RGB", (64, 64))).shape == (3, 32, 32)


PICTURE = {"body": photo("photo-rgb.png")}


class Boxes(torch.nn.Module):
    """Three detections per picture [3, H, W]: the same boxes, surer the wider the picture."""

    def forward(self, pictures: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        found: list[dict[str, torch.Tensor]] = []
        for picture in pictures:
            sure = torch.tensor([0.5, 0.4999, 0.9])
            boxes = torch.arange(12.0).view(3, 4) + picture.shape[2]
            found.append({"boxes": boxes, "labels": torch.tensor([1, 2, 0]), "scores": sure})
        return found


@pytest.fixture
def ready(make_context, tmp_path):
    def make(handler, model, *, labels=None, **settings):
        torch.jit.script(model).save(tmp_path / "model.pt")
        if labels is not None:
            (tmp_path / "index_to_name.json").write_text(json.dumps(labels))
        context = make_context(**settings)
        handler.initialize(context)
        return handler, context

    return make


def test_detections_of_at_least_the_threshold(ready):
    handler, context = ready(ObjectDetector(), Boxes(), labels={"0": "cat", "1": "dog", "2": "eel"})
    [found] = handler.handle([PICTURE], context)
    assert found == [
        {"dog": [131.0, 132.0, 133.0, 134.0], "score": 0.5},
        {"cat": [139.0, 140.0, 141.0, 142.0], "score": pytest.approx(0.9)},
    ]
    for target, boxes in ((Target.TORCHSERVE, 2), (Target.MARPACK, 1)):
        handler, context = ready(ObjectDetector(), Boxes(), target=target, config={"handler": {"threshold": 0.6}})
        assert len(handler.handle([PICTURE], context)[0]) == boxes


def test_a_class_without_a_label(ready, notes):
    handler, context = ready(ObjectDetector(), Boxes(), labels={"0": "cat"})
    with pytest.raises(KeyError) as failure:
        handler.handle([PICTURE], context)
    note_labels_gap(failure.value, handler)
    assert "class 1" in notes()["labels-gap"].message
