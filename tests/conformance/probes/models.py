"""Models: weights of every format behind BaseHandler, the pt2 section, labels, explanations (contract §6)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.probe import Batch, Call, Probe, handler

JSON = "application/json"
_ROW = "[1.5, -2.0, 0.25]"
_ASK = (
    Call("row", _ROW, JSON),
    Call("wrong-type", '"text"', JSON),
    Call("nothing", "", JSON),
    Call("bytes", b"\x01\x02"),
    Call("explained", _ROW, JSON, route="explanations"),
    Call("described", _ROW, JSON, headers=(("describe", "True"),)),
)

_EAGER = """
import torch
from torch import nn


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.shift = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return x * self.scale + self.shift
"""


def _one(name: str, write: Callable[[Path], Path]) -> Callable[[Path], Mapping[str, Path]]:
    return lambda folder: {name: write(folder / name)}


def _script(name: str) -> Callable[[Path], Mapping[str, Path]]:
    def write(path: Path) -> Path:
        from conformance import nets  # torch is not imported to collect tests

        return nets.script(nets.Affine(), path)

    return _one(name, write)


def _state(name: str, **changes: Any) -> Callable[[Path], Mapping[str, Path]]:
    def write(path: Path) -> Path:
        from conformance import nets

        state = {**nets.Affine().state_dict(), **changes}
        return nets.save({key: value for key, value in state.items() if value is not None}, path)

    return _one(name, write)


def _pickled(path: Path) -> Path:
    from conformance import nets

    return nets.save(nets.Affine(), path)


def _onnx(path: Path) -> Path:
    from conformance import nets

    return nets.onnx(path)


def _probe(
    name: str,
    make: Callable[[Path], Mapping[str, Path]] | None = None,
    *,
    files: Mapping[str, str] | None = None,
    config: str | None = None,
    **model: object,
) -> Probe:
    members: dict[str, str | bytes | Path] = {"handler.py": handler("rows"), **(files or {})}
    if config is not None:
        members["model-config.yaml"] = config
        model["configFile"] = "model-config.yaml"
    return Probe(name=f"model-{name}", files=members, make=make, model=model, steps=_ASK)


_FILES = {"model.py": _EAGER}
_EAGER_MODEL = {"modelFile": "model.py", "serializedFile": "w.pt"}

LOADED = (
    _probe("torchscript", _script("w.pt"), serializedFile="w.pt"),
    _probe("eager", _state("w.pt"), files=_FILES, **_EAGER_MODEL),
    _probe("eager-pth", _state("w.pth"), files=_FILES, modelFile="model.py", serializedFile="w.pth"),
    _probe("eager-without-weights", files=_FILES, modelFile="model.py"),
    _probe("onnx", _one("w.onnx", _onnx), serializedFile="w.onnx"),
)

REFUSED = (
    _probe("torchscript-pth", _script("w.pth"), serializedFile="w.pth"),
    _probe("eager-missing-key", _state("w.pt", shift=None), files=_FILES, **_EAGER_MODEL),
    _probe("eager-extra-key", _state("w.pt", more=1.0), files=_FILES, **_EAGER_MODEL),
    _probe("eager-two-classes", _state("w.pt"), files={"model.py": f"{_EAGER}\nclass B: pass\n"}, **_EAGER_MODEL),
    _probe("eager-no-class", _state("w.pt"), files={"model.py": "x = 1\n"}, **_EAGER_MODEL),
    _probe("eager-no-file", _state("w.pt"), **_EAGER_MODEL),
    _probe("eager-with-torchscript", _script("w.pt"), files=_FILES, **_EAGER_MODEL),
    _probe("eager-whole-pickle", _one("w.pt", _pickled), files=_FILES, **_EAGER_MODEL),
    _probe("state-dict-alone", _state("w.pt"), serializedFile="w.pt"),
    _probe("no-weights"),
    _probe("weights-not-there", serializedFile="w.pt"),
    _probe("weights-empty", files={"w.pt": ""}, serializedFile="w.pt"),
    _probe("weights-are-text", files={"w.pt": "hello"}, serializedFile="w.pt"),
    _probe("safetensors", files={**_FILES, "w.safetensors": "x"}, serializedFile="w.safetensors"),
)

_PT2 = {
    "eager": "pt2: eager\n",
    "unknown-backend": "pt2: magic\n",
    "dict": "pt2: {backend: eager, fullgraph: true}\n",
    "disabled": "pt2: {compile: {enable: false, backend: inductor}}\n",
    "enabled": "pt2: {compile: {enable: true, backend: aot_eager}}\n",
    "enabled-unknown": "pt2: {compile: {enable: true, backend: magic}}\n",
    "enable-missing": "pt2: {compile: {backend: eager}}\n",
    "wrong-option": "pt2: {backend: eager, speed: 11}\n",
    "list": "pt2: [eager]\n",
    "number": "pt2: 5\n",
    "null": "pt2:\n",
    "export-without-so": "pt2: {export: {aot_compile: true}}\n",
    "text-with-compile": "pt2: compile\n",
}

COMPILED = tuple(
    replace(_probe(f"pt2-{name}", _script("w.pt"), config=text, serializedFile="w.pt"), settled=True)
    for name, text in _PT2.items()
)

BATCHED = Probe(
    name="model-batch",
    files={"handler.py": handler("rows")},
    make=_script("w.pt"),
    model={"serializedFile": "w.pt"},
    batch_size=2,
    steps=(
        Batch("two", (Call("first", _ROW, JSON), Call("second", "[1, 2, 3]", JSON))),
        Batch("ragged", (Call("long", _ROW, JSON), Call("short", "[1]", JSON))),
        Batch("one-explained", (Call("explained", _ROW, JSON, route="explanations"), Call("not", _ROW, JSON))),
        Batch("one-described", (Call("told", _ROW, JSON, headers=(("describe", "True"),)), Call("untold", _ROW, JSON))),
    ),
)

_LABELS = {"lists": '{"0": ["n0", "cat"], "1": "dog"}', "broken": '{"0": ', "numbers": '{"0": 1}', "empty": ""}

LABELLED = tuple(
    replace(
        _probe(f"labels-{name}", _script("w.pt"), files={"index_to_name.json": text}, serializedFile="w.pt"),
        settled=True,
    )
    for name, text in _LABELS.items()
)

BASE = Probe(
    name="model-base-handler",
    make=_script("w.pt"),
    model={"serializedFile": "w.pt", "handler": "base_handler"},
    steps=(Call("row", _ROW, JSON), Call("described", _ROW, JSON, headers=(("describe", "True"),))),
)

PROFILED = Probe(
    name="model-profiled",
    files={"handler.py": handler("profiled"), "model-config.yaml": "handler: {profile: true}\n"},
    make=_script("w.pt"),
    model={"serializedFile": "w.pt", "configFile": "model-config.yaml"},
    steps=(Call("row", _ROW, JSON),),
)

MICRO = Probe(
    name="model-micro-batching",
    files={
        "handler.py": handler("micro"),
        "model-config.yaml": (
            "responseTimeout: 3\nmicro_batching: {micro_batch_size: 1, parallelism: {preprocess: 2, inference: 1}}\n"
        ),
    },
    make=_script("w.pt"),
    model={"serializedFile": "w.pt", "configFile": "model-config.yaml"},
    batch_size=3,
    options={"response_timeout": 3},  # what the model config says on the server
    steps=(
        Batch("three", tuple(Call(f"row-{n}", f"[{n}.5, 2]", JSON) for n in range(3))),
        Batch("one-fails", (Call("fine", "[1]", JSON), Call("broken", '"x"', JSON), Call("fine-too", "[2]", JSON))),
    ),
)

PROBES = (
    *LOADED,
    *(replace(probe, settled=True) for probe in REFUSED),
    *COMPILED,
    BATCHED,
    *LABELLED,
    BASE,
    PROFILED,
    MICRO,
)
