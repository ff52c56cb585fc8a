import json

import numpy as np
import pytest
import torch
from PIL import Image
from worker.handlers.make_reference import FOLDER, chains, outcome, pixels

from marpack.worker.handlers import vision
from marpack.worker.handlers.vision import CenterCrop, Compose, ImageNet, Normalize, Resize, ToTensor

REFERENCE = json.loads((FOLDER / "reference.json").read_text())["pictures"]


@pytest.mark.parametrize("name", [name for name, entry in REFERENCE.items() if entry.keys() > {"pixels"}])
def test_equals_torchvision_bit_for_bit(name):
    with Image.open(FOLDER / name) as picture:
        if pixels(picture) != REFERENCE[name]["pixels"]:
            pytest.skip("this Pillow decodes the file to other pixels than the one that torchvision was asked with")
    for step in REFERENCE[name].keys() - {"pixels"}:
        assert outcome(chains(vision)[step], FOLDER / name) == REFERENCE[name][step], step


def test_lossless_pictures_decode_everywhere_as_they_did_for_the_reference():
    lossless = [name for name in REFERENCE if name.endswith((".png", ".bmp")) and "bomb" not in name]
    assert len(lossless) > 8
    for name in lossless:
        with Image.open(FOLDER / name) as picture:
            assert pixels(picture) == REFERENCE[name]["pixels"]


@pytest.mark.parametrize(
    ("size", "shorter", "wanted"),
    [
        ((500, 333), 256, (384, 256)),  # 384.38 is rounded down
        ((333, 500), 256, (256, 384)),
        ((100, 100), 256, (256, 256)),
        ((1, 10_000), 2, (2, 20_000)),
        ((3, 2), 1, (1, 1)),
    ],
)
def test_resized(size, shorter, wanted):
    assert Resize(shorter)(Image.new("L", size)).size == wanted


def test_a_picture_of_the_right_size_is_passed_on_as_it_is():
    picture = Image.new("RGB", (64, 80))
    assert Resize(64)(picture) is picture


@pytest.mark.parametrize(("edge", "left"), [(7, 2), (9, 2), (6, 1)])
def test_center_crop_rounds_half_to_even(edge, left):
    picture = Image.fromarray(np.arange(edge, dtype=np.uint8)[None, :].repeat(edge, 0))
    assert np.asarray(CenterCrop(4)(picture))[0, 0] == left


def test_to_tensor_takes_arrays_as_the_detector_is_given_them():
    gray = np.full((2, 3), 51, dtype=np.uint8)
    assert ToTensor()(gray).tolist() == torch.full((1, 2, 3), 0.2).tolist()
    assert ToTensor()(np.zeros((2, 3, 4), dtype=np.float64)).shape == (4, 2, 3)


def test_normalize_leaves_its_input_alone():
    tensor = torch.ones(1, 2, 2)
    Normalize([1.0], [2.0])(tensor)
    assert tensor.eq(1).all()


def test_the_steps_can_be_read_and_changed_like_torchvisions():
    chain = ImageNet()
    assert [type(step).__name__ for step in chain.transforms] == ["Resize", "CenterCrop", "ToTensor", "Normalize"]
    assert Compose(chain.transforms[:2])(Image.new("L", (30, 40))).size == (224, 224)
    assert ImageNet.resized(chain, crop=32)(Image.new("RGB", (64, 64))).shape == (3, 32, 32)
