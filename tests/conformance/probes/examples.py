"""The repository's own examples: each packed by marpack's builder and asked with its samples."""

from collections.abc import Callable
from pathlib import Path

from conformance.probe import Call, Probe

import marpack
from marpack.runner.inputs import type_of

EXAMPLES = Path(__file__).parents[3] / "examples"
# Project → its model's name. The other examples are of formats that the server cannot load.
_NUMERIC = {
    "batches_and_metrics": "cells",
    "digits": "digits",
    "image_classifier": "shapes",
    "object_detector": "finder",
    "onnx": "wine",
    "text_classifier": "topics",
}
_EXACT = {"function_handler": "iris", "streaming": "counting"}
_LARGE = {"image_segmenter": "segments"}  # 2 MB an answer


def _builder(folder: str) -> Callable[[Path], Path]:
    def build(target: Path) -> Path:
        return Path(marpack.build(EXAMPLES / folder, output=target).path)

    return build


def _probe(folder: str, name: str, *, numeric: bool = False, live_only: bool = False) -> Probe:
    samples = sorted((EXAMPLES / folder / "samples").iterdir())
    calls = tuple(Call(path.name, path, type_of(path.name, path.read_bytes())) for path in samples)
    return Probe(name=name, archive=_builder(folder), numeric=numeric, live_only=live_only, steps=calls)


PROBES = (
    *(_probe(folder, name, numeric=True) for folder, name in _NUMERIC.items()),
    *(_probe(folder, name) for folder, name in _EXACT.items()),
    *(_probe(folder, name, live_only=True) for folder, name in _LARGE.items()),
)
