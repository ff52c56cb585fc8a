"""The files written around an author's own weights: they parse, read well, and answer as they are."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import command
from days import by_day

from marpack.project.load import load_project
from marpack.project.scaffold.placing import place
from marpack.project.scaffold.proposal import Answers, assemble, propose
from marpack.project.scaffold.survey import survey
from marpack.project.scaffold.template import template_names

# What `saved` calls the weights, and what the handler then has to deal with.
OWN = {"few": "ImageClassifier", "gray": "SIDE", "numbers": "read_numbers", "pictures_onnx": "ImageClassifier"}


def started(folder: Path, weights: Path, **answers: str) -> Path:
    folder.mkdir()
    shutil.copy(weights, folder / f"own{weights.suffix}")
    proposal = propose(folder, survey(folder), Answers(**answers))
    place(folder, assemble(proposal), replace=False)
    return folder


@pytest.mark.parametrize("weights", OWN)
def test_a_handler_fits_the_weights(weights, tmp_path, saved):
    folder = started(tmp_path / "p", saved[weights])
    source = (folder / "handler.py").read_text()
    assert OWN[weights] in source
    assert load_project(folder).handler == "handler.py"


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("weights", ["few", "gray", "numbers", "pictures_onnx", "onnx"])
@pytest.mark.parametrize("template", [None, "custom", "function", "streaming", "onnx"])
def test_every_variant_parses_and_is_formatted(template, weights, labels, tmp_path, saved):
    assert template is None or template in template_names()
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    answers = {"labels": "../labels.txt"} if labels else {}
    if template:
        answers["template"] = template
    folder = started(tmp_path / "p", saved[weights], **answers)
    for path in folder.glob("*.py"):
        ast.parse(path.read_text())
    ruff = [sys.executable, "-m", "ruff"]
    for asked in (["check", "--select", "E,F,I,W"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *asked, "--isolated", "--line-length", "120", "."], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("weights", by_day([*OWN, "pictures", "onnx"], "pictures", "onnx"))
def test_own_weights_answer_their_stand_in(weights, tmp_path, saved):
    folder = started(tmp_path / "p", saved[weights])
    done = subprocess.run(command("run", "--input", "samples/"), cwd=folder, capture_output=True, text=True)
    if weights == "gray":  # whose size nobody can tell from the weights, but any will do for this net
        assert "SIDE = 28" in (folder / "handler.py").read_text()
    assert done.returncode == 0, done.stdout + done.stderr
