"""What the headers of weights tell about their model: the template that fits, and samples that it can take."""

import json
from collections.abc import Sequence

import pytest

from marpack.project.scaffold.folder_scan import FolderScan as Scan
from marpack.project.scaffold.folder_scan import Weights
from marpack.project.scaffold.proposal import TemplateChoice as Choice
from marpack.project.scaffold.proposal import choose_samples, choose_template
from marpack.project.scaffold.template import load_template, templates
from marpack.project.schema import Expectation
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import Port, ScriptMethod, StoredTensor, Tensor, WeightsSummary

Shape = tuple[int | str, ...]
CONV, GRAY, LINEAR, BIAS = (2, 3, 5, 5), (2, 1, 5, 5), (7, 13), (7,)
WORDS = Scan(vocabulary="source_vocab.pt")
SCRIPT, STATE, ONNX = WeightsFormat.TORCHSCRIPT, WeightsFormat.STATE_DICT, WeightsFormat.ONNX


def weights(
    kind: WeightsFormat = SCRIPT,
    *tensors: Sequence[int],
    inputs: Sequence[Shape | None] = (),
    outputs: Sequence[Shape | None] = (),
    **methods: str,
) -> Weights:
    contents = WeightsSummary(
        kind=kind,
        tensors=tuple(StoredTensor(tensor=Tensor(name="t", dtype="float32", shape=tuple(shape))) for shape in tensors),
        methods=tuple(ScriptMethod(name, signature) for name, signature in methods.items()),
        inputs=tuple(Port(name="x", shape=shape) for shape in inputs),
        outputs=tuple(Port(name="y", shape=shape) for shape in outputs),
    )
    return Weights(name="model.pt", size=1, contents=contents)


FITS: dict[str, tuple[Scan, Weights | None, int | None, Choice]] = {
    "no weights": (Scan(), None, None, Choice(template="image_classifier")),
    "pictures, as many labels": (
        Scan(), weights(SCRIPT, CONV, LINEAR, BIAS), 5, Choice(template="image_classifier", pictures=True, classes=5)
    ),
    "gray pictures": (Scan(), weights(SCRIPT, GRAY, LINEAR), None, Choice(template="custom", gray=True, classes=7)),
    "numbers": (Scan(), weights(STATE, (20, 4), (3, 20), (3,)), None, Choice(template="custom", classes=3)),
    "a vocabulary and its offsets": (
        WORDS, weights(SCRIPT, (5, 2), forward="(text: Tensor, offsets: Tensor) -> Tensor"), None,
        Choice(template="text_classifier", classes=5),
    ),
    "a vocabulary, but one argument": (
        WORDS, weights(SCRIPT, LINEAR, forward="(x: Tensor) -> Tensor"), None, Choice(template="custom", classes=7)
    ),
    "words and a state_dict": (WORDS, weights(STATE, LINEAR), None, Choice(template="text_classifier", classes=7)),
    "no vocabulary": (
        Scan(), weights(SCRIPT, (5, 2), forward="(text: Tensor, offsets: Tensor) -> Tensor"), None,
        Choice(template="custom", classes=5),
    ),
    "boxes": (
        Scan(), weights(SCRIPT, CONV, forward="(x: Tensor) -> Tuple[Tensor, List[Dict[str, Tensor]]]"), None,
        Choice(template="object_detector"),
    ),
    "another method's mask": (
        Scan(),
        weights(SCRIPT, LINEAR, mask="(x: Tensor) -> Dict[str, Tensor]", forward="(x: Tensor) -> Tensor"), None,
        Choice(template="custom", classes=7),
    ),
    "ONNX with pictures": (
        Scan(), weights(ONNX, inputs=[("n", 3, 224, 224)], outputs=[("n", 7), ("n", 9)]), None,
        Choice(template="onnx", pictures=True, classes=7),
    ),
    "ONNX with gray pictures beside numbers": (
        Scan(), weights(ONNX, inputs=[None, ("n", 13), ("n", 1, 28, 28)]), None,
        Choice(template="onnx", gray=True),
    ),
    "ONNX with pictures of any channels": (
        Scan(), weights(ONNX, LINEAR, CONV, inputs=[("n", "c", 224, 224)], outputs=[("n", "k")]), None,
        Choice(template="onnx", pictures=True, classes=2),
    ),
    "ONNX with numbers": (Scan(), weights(ONNX, inputs=[("n", 13)]), 4, Choice(template="onnx", classes=4)),
}  # fmt: skip


@pytest.mark.parametrize(("found", "own", "labels", "expected"), FITS.values(), ids=FITS)
def test_the_template_that_fits(found: Scan, own: Weights | None, labels: int | None, expected: Choice) -> None:
    assert choose_template(found, own, labels) == expected


def samples(
    template: str, own: Weights | None = None, found: Sequence[str] = (), **fits: bool
) -> tuple[list[str], dict[str, bytes], bool]:
    there = Scan(pictures=tuple(found))
    choice = Choice(template=template, **fits)
    chosen = choose_samples(load_template(template), there, own or weights(), choice, None)
    assert {sample.expect for sample in chosen.listed} == {Expectation(status=200)}
    return [sample.input for sample in chosen.listed], chosen.brought, chosen.stand_ins


def test_pictures_that_are_there_are_samples_five_at_most() -> None:
    names = [f"{number}.png" for number in range(6)]
    assert samples("image_classifier", found=names) == (names[:5], {}, False)
    assert samples("custom", found=names, gray=True) == (names[:5], {}, False)


@pytest.mark.parametrize(
    ("template", "fits", "picture"),
    [
        ("image_classifier", {}, "red.png"),
        ("object_detector", {}, "red.png"),
        ("custom", {"pictures": True}, "red.png"),
        ("custom", {"gray": True}, "gray.png"),
        ("onnx", {"gray": True}, "gray.png"),
    ],
)
def test_a_picture_stands_in_where_the_handler_takes_one(template: str, fits: dict[str, bool], picture: str) -> None:
    content = (templates() / "init" / picture).read_bytes()
    assert samples(template, **fits) == (["samples/stand-in.png"], {"samples/stand-in.png": content}, True)


def test_numbers_or_a_text_stand_in_elsewhere() -> None:
    row, own = [0.5] * 13, weights(SCRIPT, LINEAR)
    for template, pictures, value in (
        ("custom", False, row),
        ("function", True, row),
        ("streaming", False, [row, row]),
    ):
        listed, brought, stand_ins = samples(template, own, ["a.png"], pictures=pictures)
        assert (listed, stand_ins) == (["samples/stand-in.json"], True)
        assert json.loads(brought["samples/stand-in.json"]) == value
    text = load_template("text_classifier")
    assert samples("text_classifier")[1] == {"samples/stand-in.txt": text.read(text.samples[0].input)}


@pytest.mark.parametrize(
    ("own", "width"),
    [
        (weights(ONNX, (2, 9), inputs=[None, (), ("n", 4)]), 4),
        (weights(ONNX, (2, 9), inputs=[("n", "k")]), 9),
        (weights(SCRIPT, (5,), (2, 3, 3, 3), (2, 4097), (2, 0), (2, 4096), (2, 2)), 4096),
        (weights(), 3),
    ],
)
def test_a_row_is_as_wide_as_the_first_layer_that_tells(own: Weights, width: int) -> None:
    _, brought, _ = samples("custom", own)
    assert len(json.loads(brought["samples/stand-in.json"])) == width
