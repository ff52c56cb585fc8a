"""The built-in handlers of pictures, on inputs of every kind (contract §7)."""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance.probe import PICTURES, Batch, Call, Field, Form, Probe

JSON = "application/json"
_SMALL = PICTURES.joinpath("mode-RGB.png").read_bytes()
_BASE64 = base64.b64encode(_SMALL).decode()
_TENSOR = [[[0.5, -0.5], [0.25, 1.0]]] * 3
_CLASSES = 6
_NAMES = {str(index): name for index, name in enumerate(("red", "green", "blue", "red", "grey", "black"))}


def _script(net: str, *arguments: int) -> Callable[[Path], Mapping[str, Path]]:
    def make(folder: Path) -> Mapping[str, Path]:
        from conformance import nets  # torch is not imported to collect tests

        return {"w.pt": nets.script(getattr(nets, net)(*arguments), folder / "w.pt")}

    return make


def _picture_calls() -> tuple[Call, ...]:
    return (
        *(Call(path.name, path, "image/png") for path in sorted(PICTURES.iterdir())),
        Call("untyped", _SMALL),
        Call("form-file", Form(fields=(Field("data", _SMALL, "a.png", "image/png"),))),
        Call("form-field", Form(fields=(Field("data", _SMALL),))),
        Call("form-body", Form(fields=(Field("body", _SMALL, "a.png"),))),
        Call("form-other-name", Form(fields=(Field("image", _SMALL, "a.png"),))),
        Call("form-empty-data", Form(fields=(Field("data", b""), Field("body", _SMALL)))),
        Call("text-base64", _BASE64, "text/plain"),
        Call("text-base64-lines", "\n".join(_BASE64[i : i + 76] for i in range(0, len(_BASE64), 76)), "text/plain"),
        Call("text-base64-cut", _BASE64[:-7], "text/plain"),
        Call("text-data-url", f"data:image/png;base64,{_BASE64}", "text/plain"),
        Call("text", "hello", "text/plain"),
        Call("json-base64", json.dumps(_BASE64), JSON),
        Call("json-object", json.dumps({"data": _BASE64}), JSON),
        Call("json-list", json.dumps(_TENSOR), JSON),
        Call("json-ragged", "[[1, 2], [3]]", JSON),
        Call("json-number", "5", JSON),
        Call("json-null", "null", JSON),
        Call("nothing", ""),
        Call("not-a-picture", b"\x00\x01\x02\x03"),
        Call("described", _SMALL, "image/png", (("describe", "True"),)),
    )


def _probe(
    name: str, handler: str, net: str, *arguments: int, steps: tuple[Call | Batch, ...], **options: Any
) -> Probe:
    make, model = _script(net, *arguments), {"handler": handler, "serializedFile": "w.pt"}
    return Probe(name=name, make=make, model=model, steps=steps, **{"numeric": True, **options})


_ONE = (Call("picture", _SMALL, "image/png"),)
_TOP_TWO = """
from ts.torch_handler.image_classifier import ImageClassifier


class Top(ImageClassifier):
    topk = 2

    def postprocess(self, data):
        answers = super().postprocess(data)
        self.set_max_result_classes(1)
        return [[answers[0], self.get_max_result_classes(), list(data.shape)]]
"""
_CLASSIFIER = "image_classifier"
_TARGET = Field("data", _SMALL, "a.png")

PROBES = (
    _probe(
        *("classifier", _CLASSIFIER, "Shades", _CLASSES),
        files={"index_to_name.json": json.dumps(_NAMES)},
        steps=_picture_calls(),
    ),
    _probe("classifier-unlabelled", _CLASSIFIER, "Shades", 7, steps=_ONE),
    _probe("classifier-few-classes", _CLASSIFIER, "Shades", 3, steps=_ONE, numeric=False),
    _probe(
        *("classifier-short-labels", _CLASSIFIER, "Shades", _CLASSES),
        files={"index_to_name.json": '{"0": "a", "1": "b"}'},
        steps=_ONE,
        numeric=False,
    ),
    Probe(
        name="classifier-subclassed",
        files={"handler.py": _TOP_TWO},
        make=_script("Shades", _CLASSES),
        model={"serializedFile": "w.pt"},
        numeric=True,
        steps=(Call("first", _SMALL, "image/png"), Call("second", _SMALL, "image/png")),
    ),
    _probe(
        *("classifier-batch", _CLASSIFIER, "Shades", _CLASSES),
        batch_size=2,
        steps=(
            Batch("two", (Call("first", _SMALL, "image/png"), Call("second", PICTURES / "320x49.png", "image/png"))),
            Batch("one-gray", (Call("colour", _SMALL), Call("gray", PICTURES / "mode-L.png"))),
            Batch("list-and-picture", (Call("list", json.dumps(_TENSOR), JSON), Call("picture", _SMALL))),
        ),
    ),
    _probe(  # attributions of 150,528 pixels: too long to record
        *("classifier-explained", _CLASSIFIER, "Shades", _CLASSES),
        live_only=True,
        numeric=False,
        options={"response_timeout": 20},
        steps=(
            Call("picture", _SMALL, "image/png", route="explanations"),
            Call("target", Form(fields=(_TARGET, Field("target", b"2", "t", JSON))), route="explanations"),
            Call("target-bytes", Form(fields=(_TARGET, Field("target", b"2"))), route="explanations"),
        ),
    ),
    _probe(  # attributions of a few numbers: the same code on inputs that fit a recording
        *("classifier-explained-list", _CLASSIFIER, "Shades", _CLASSES),
        steps=(
            Call("list", json.dumps(_TENSOR), JSON, route="explanations"),
            Call("not-explained", json.dumps(_TENSOR), JSON),
            Call("bad-picture", b"x", route="explanations"),
        ),
    ),
    _probe(
        *("detector", "object_detector", "Finder"),
        files={"index_to_name.json": '{"1": "thing", "2": ["n", "part"]}'},
        steps=(
            Call("small", _SMALL, "image/png"),
            Call("wide", PICTURES / "320x49.png", "image/png"),
            Call("gray", PICTURES / "mode-L.png", "image/png"),
            Call("alpha", PICTURES / "mode-RGBA.png", "image/png"),
            Call("palette", PICTURES / "mode-P.png", "image/png"),
            Call("list", json.dumps(_TENSOR), JSON),
            Call("not-a-picture", b"x"),
        ),
    ),
    _probe(
        *("detector-unlabelled", "object_detector", "Finder"),
        batch_size=2,
        steps=(
            Batch("same-size", (Call("first", _SMALL), Call("second", PICTURES / "plain.bmp"))),
            Batch("two-sizes", (Call("small", _SMALL), Call("large", PICTURES / "256x256.png"))),
        ),
    ),
    _probe(  # two numbers for each of 224 by 224 pixels: too long to record
        *("segmenter", "image_segmenter", "Segments"),
        live_only=True,
        numeric=False,
        steps=(
            Call("picture", PICTURES / "256x256.png", "image/png"),
            Call("gray", PICTURES / "mode-L.png", "image/png"),
            Call("list", json.dumps(_TENSOR), JSON),
        ),
    ),
    _probe("segmenter-list", "image_segmenter", "Segments", steps=(Call("list", json.dumps(_TENSOR), JSON),)),
)
