"""The files written around an author's own weights: they parse, read well, and answer as they are."""

import ast
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from days import by_day
from invoking import invoke

from marpack.project.load import load_project
from marpack.project.scaffold.folder_scan import scan_folder
from marpack.project.scaffold.proposal import Answers, assemble, propose
from marpack.project.scaffold.template import template_names
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


VARIANTS = list(
    product(
        [None, "custom", "function", "streaming", "onnx"],
        ["few", "gray", "numbers", "pictures_onnx", "onnx"],
        [True, False],
    )
)


@pytest.fixture(scope="module")
def complaints(tmp_path_factory, saved):
    """Return the folder of every variant, each a project, and what Ruff says of all of them."""
    every = tmp_path_factory.mktemp("variants")
    (every / "labels.txt").write_text("a\nb\nc\n")
    for number, (template, weights, labels) in enumerate(VARIANTS):
        answers = {"labels": "../labels.txt"} if labels else {}
        started(every / f"{number}", saved[weights], **answers, **({"template": template} if template else {}))
    asked = (["check", "--select", "E,F,I,W", "--output-format", "concise"], ["format", "--check"])
    done = [
        subprocess.run(
            [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "120", "."],
            cwd=every, capture_output=True, text=True,
        )
        for words in asked
    ]  # fmt: skip
    assert all(each.returncode in {0, 1} for each in done), done
    return every, [line for each in done for line in each.stdout.splitlines()]


@pytest.mark.parametrize(("number", "template"), [(number, template) for number, (template, *_) in enumerate(VARIANTS)])
def test_every_variant_parses_and_is_formatted(number, template, complaints):
    every, lines = complaints
    assert template is None or template in template_names()
    sources = list((every / f"{number}").glob("*.py"))
    assert sources
    for path in sources:
        ast.parse(path.read_text())
    assert [line for line in lines if re.search(rf"\b{number}/\w+\.py\b", line)] == []


def test_ruff_has_nothing_to_say(complaints):
    assert complaints[1][-1].endswith("files already formatted")
    assert complaints[1][:-1] == ["All checks passed!"]


@pytest.mark.parametrize("weights", by_day([*OWN, "pictures", "onnx"], "pictures", "onnx"))
def test_own_weights_answer_their_stand_in(weights, tmp_path, saved):
    folder = started(tmp_path / "p", saved[weights])
    invoke("run", "--input", "samples/", cwd=folder)
    if weights == "gray":  # whose size nobody can tell from the weights, but any will do for this net
        assert "SIDE = 28" in (folder / "handler.py").read_text()
