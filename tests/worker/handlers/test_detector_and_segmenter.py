import json

import pytest
import torch
from worker.handlers.make_reference import FOLDER

from marpack.protocol.targets import Target
from marpack.worker.handlers.vision import ImageSegmenter, ObjectDetector
from marpack.worker.hints import note_labels_gap


class Boxes(torch.nn.Module):
    """Three detections per picture [3, H, W]: the same boxes, surer the wider the picture."""

    def forward(self, pictures: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        found: list[dict[str, torch.Tensor]] = []
        for picture in pictures:
            sure = torch.tensor([0.5, 0.4999, 0.9])
            boxes = torch.arange(12.0).view(3, 4) + picture.shape[2]
            found.append({"boxes": boxes, "labels": torch.tensor([1, 2, 0]), "scores": sure})
        return found


class Planes(torch.nn.Module):
    """Logits [N, 3, H, W]: the picture's own channels."""

    def forward(self, pictures: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": pictures, "aux": pictures[:, :1]}


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


def picture():
    return {"body": bytearray((FOLDER / "photo-rgb.png").read_bytes())}


def test_detections_of_at_least_the_threshold(ready):
    handler, context = ready(ObjectDetector(), Boxes(), labels={"0": "cat", "1": "dog", "2": "eel"})
    [found] = handler.handle([picture()], context)
    assert found == [
        {"dog": [131.0, 132.0, 133.0, 134.0], "score": 0.5},
        {"cat": [139.0, 140.0, 141.0, 142.0], "score": pytest.approx(0.9)},
    ]


def test_detections_without_labels_go_by_number_and_a_batch_keeps_its_order(ready):
    handler, context = ready(ObjectDetector(), Boxes())
    first, second = handler.handle([picture(), picture()], context)
    assert first == second
    assert [list(box) for box in first] == [["1", "score"], ["0", "score"]]


def test_the_detector_takes_gray_pictures_as_the_server_does(ready):
    handler, _ = ready(ObjectDetector(), Boxes())
    body = {"body": bytearray((FOLDER / "photo-gray.png").read_bytes())}
    assert handler.preprocess([body]).shape == (1, 1, 97, 131)


@pytest.mark.parametrize(("target", "boxes"), [(Target.TORCHSERVE, 2), (Target.MARPACK, 1)])
def test_threshold_in_the_config(ready, target, boxes):
    handler, context = ready(ObjectDetector(), Boxes(), target=target, config={"handler": {"threshold": 0.6}})
    assert len(handler.handle([picture()], context)[0]) == boxes


def test_a_class_without_a_label(ready, notes):
    handler, context = ready(ObjectDetector(), Boxes(), labels={"0": "cat"})
    with pytest.raises(KeyError) as failure:
        handler.handle([picture()], context)
    note_labels_gap(failure.value, handler)
    assert "class 1" in notes()["labels-gap"].message


def test_segments_are_class_and_probability_of_every_pixel(ready):
    handler, context = ready(ImageSegmenter(), Planes())
    answer = torch.tensor(handler.handle([picture()], context))
    assert answer.shape == (1, 224, 224, 2)
    logits = handler.preprocess([picture()])
    assert torch.equal(answer[..., 0], logits.argmax(1).float())
    assert torch.equal(answer[..., 1], torch.softmax(logits, 1).amax(1))
