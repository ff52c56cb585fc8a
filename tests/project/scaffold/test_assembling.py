"""The files written around an author's own weights: they parse, read well, and answer as they are."""

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from invoking import invoke

from marpack.project.load import load_project
from marpack.project.scaffold.folder_scan import scan_folder
from marpack.project.scaffold.proposal import Answers, assemble, propose
from marpack.project.scaffold.write_files import write_files
from marpack.runner.process import convert_safetensors

# What `saved` calls the weights, and what the handler then has to deal with.
OWN = {"few": "ImageClassifier", "gray": "SIDE", "numbers": "read_numbers", "pictures_onnx": "ImageClassifier"}


def started(folder: Path, weights: Path, **answers: str) -> Path:
    folder.mkdir()
    shutil.copy(weights, folder / f"own{weights.suffix}")
    proposal = propose(folder, scan_folder(folder), Answers(**answers))
    write_files(folder, assemble(proposal, convert_safetensors), replace=False)
    return folder


@pytest.mark.parametrize("weights", OWN)
def test_a_handler_fits_the_weights(weights, tmp_path, saved):
    folder = started(tmp_path / "p", saved[weights])
    source = (folder / "handler.py").read_text()
    assert OWN[weights] in source
    assert load_project(folder).handler == "handler.py"


def test_the_sources_of_every_variant_are_clean_and_formatted(tmp_path, saved):
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    templates = [None, "custom", "function", "streaming", "onnx"]
    variants = product(templates, ["few", "gray", "numbers", "pictures_onnx", "onnx"])
    for number, (template, weights) in enumerate(variants):
        answers = ({"labels": "../labels.txt"} if number % 2 else {}) | ({"template": template} if template else {})
        assert list(started(tmp_path / f"{number}", saved[weights], **answers).glob("*.py"))
    for words in (["check", "--select", "E,F,I,W"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "120", "."]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("weights", ["pictures", "onnx", *(pytest.param(each, marks=pytest.mark.slow) for each in OWN)])
def test_own_weights_answer_their_stand_in(weights, tmp_path, saved):
    folder = started(tmp_path / "p", saved[weights])
    invoke("run", "--input", "samples/", cwd=folder)
    if weights == "gray":  # whose size nobody can tell from the weights, but any will do for this net
        assert "SIDE = 28" in (folder / "handler.py").read_text()
