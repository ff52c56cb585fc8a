"""Handlers in the styles that public archives have them: none of them may be found wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inspection.lint.case import Case, told
from inspection.lint.weights_files import weights

from marpack.findings import Severity

FOLDER = Path(__file__).parents[2] / "data" / "handlers"
NEED = "N requirements-need-setting requirements.txt"


def style(name: str, handler: str, *expected: str, packed: dict[str, str] | None = None, **model: str) -> Case:
    """Return an archive of a folder's files and of these weights, whose kinds are given by member."""
    folder = FOLDER / name
    files: dict[str, str | bytes | Callable[[], bytes]] = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    for member, kind in (packed or {}).items():
        files[member] = weights(kind)
    return Case(name, files, expected, model={"handler": handler, **model})


STATE = {"model.pt": "state_dict"}
SCRIPT = {"model.pt": "script"}
CASES = [
    style("mnist", "mnist_handler.py", packed=STATE, serialized_file="model.pt", model_file="net.py"),
    style("service", "custom_service.py", packed=STATE, serialized_file="model.pt", model_file="model.py"),
    style(
        "transformers_text", "transformer_handler.py", NEED, "N weights-suffix model.bin",
        "W pretrained-file transformer_handler.py:36",  # without a tokenizer, this style would fail
        packed={"model.bin": "script"}, serialized_file="model.bin", requirements_file="requirements.txt",
    ),
    style(
        "multifile", "handler.py", packed=SCRIPT, serialized_file="model.pt", config_file="model-config.yaml"
    ),
    style(
        "function", "entry.py:predict", NEED, packed={"model.onnx": "onnx"}, serialized_file="model.onnx",
        requirements_file="requirements.txt",
    ),
    style(
        "detector", "detector.py", "N labels-duplicate index_to_name.json", packed=SCRIPT, serialized_file="model.pt"
    ),
    style("micro", "handler.py", packed=SCRIPT, serialized_file="model.pt", config_file="model-config.yaml"),
    style(
        "streaming", "stream_handler.py", "N ts-needs-engine stream_handler.py:9",
        "W import-unlisted stream_handler.py:6",
        config_file="model-config.yaml",
    ),
    style("ultra", "handler.py", "N weights-pickled yolo.pt", packed={"yolo.pt": "whole"}, serialized_file="yolo.pt"),
    style(
        "text", "text_handler.py", "N handler-shadows-built-in text_handler.py",
        packed={**SCRIPT, "source_vocab.pt": "vocabulary"}, serialized_file="model.pt",
    ),
    style(
        "zipped", "handler.py", "N import-not-packed handler.py:22", "N import-not-packed handler.py:23",
        "N weights-absent weights.bin", serialized_file="weights.bin",
    ),
    style("diffusion", "stable_diffusion_handler.py", NEED, requirements_file="requirements.txt"),
    style("tabular", "handler.py", packed=SCRIPT, serialized_file="model.pt"),
    style("fallback", "handler.py"),
]  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_finds_nothing_wrong(case: Case) -> None:
    found = case.findings()
    assert not [finding for finding in found if finding.severity is Severity.ERROR]
    assert told(found) == sorted(case.expected)


def test_every_folder_is_tried() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {case.name for case in CASES}
