"""Each example, built and run by the command line: its answers are those that its pictures and texts call for."""

import json
from pathlib import Path
from typing import Any

import pytest
from invoking import invoke

pytestmark = pytest.mark.usefixtures("uncovered")

NUMBERS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
MODULES = {
    "group-points": "cluster",
    "project-data": "decomposition",
    "average-trees": "ensemble",
    "fit-line": "linear_model",
    "roc-curve": "metrics",
    "scale-features": "preprocessing",
}
COUNTS = {"ninety-eight": "ninety nine\none hundred\none hundred one\none hundred two\none hundred three\n"}


def answers(project: Path, *flags: str, refused: bool = False) -> dict[str, dict[str, Any]]:
    """Return what `marpack run` says of each sample, by the file's stem; `refused`: one is, as it should be."""
    done = invoke("run", "--input", "samples/", "--json", *flags, cwd=project, code=int(refused))
    return {Path(result["input"]).stem: result for result in json.loads(done.stdout)["results"]}


def parsed(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {stem: json.loads(result["body"]) for stem, result in results.items() if result["status"] == 200}


def likeliest(probabilities: dict[str, float]) -> str:
    return max(probabilities, key=probabilities.__getitem__)


def test_digits(copy_of):
    bodies = parsed(answers(copy_of("digits")))
    right = [likeliest(body) == str(NUMBERS[stem.partition("-")[0]]) for stem, body in bodies.items()]
    assert len(right) == 12
    assert sum(right) >= 11
    assert all(list(body.values()) == sorted(body.values(), reverse=True) for body in bodies.values())


def test_digits_in_eager_form_answers_the_same(copy_of):
    project = copy_of("digits")
    scripted = answers(project)
    text = (project / "marpack.yaml").read_text()
    (project / "marpack.yaml").write_text(
        text.replace("weights: digits.pt", "weights: state_dict.pt\nmodel_file: model.py")
    )
    eager = answers(project)
    assert {stem: result["body"] for stem, result in eager.items()} == {
        stem: result["body"] for stem, result in scripted.items()
    }


def test_image_classifier(copy_of):
    bodies = parsed(answers(copy_of("image_classifier")))
    assert len(bodies) == 6
    assert {stem: likeliest(body) for stem, body in bodies.items()} == {stem: stem for stem in bodies}
    assert all(len(body) == 5 for body in bodies.values())


def test_image_segmenter(copy_of):
    bodies = parsed(answers(copy_of("image_segmenter")))
    assert len(bodies) == 3
    for pixels in bodies.values():
        assert (len(pixels), len(pixels[0]), len(pixels[0][0])) == (224, 224, 2)
        classes = {pixel[0] for row in pixels for pixel in row}
        assert 0.0 in classes
        assert len(classes) > 1


def test_object_detector(copy_of):
    finds = {
        stem: sorted(next(iter(found)) for found in body)
        for stem, body in parsed(answers(copy_of("object_detector"))).items()
    }
    assert finds == {"scene-1": ["cross"], "scene-2": ["cross", "triangle"], "scene-3": ["circle", "cross", "triangle"]}


def test_text_classifier(copy_of):
    bodies = parsed(answers(copy_of("text_classifier")))
    assert {stem: likeliest(body) for stem, body in bodies.items()} == {
        stem: f"sklearn.{module}" for stem, module in MODULES.items()
    }


@pytest.mark.parametrize("target", ["torchserve", "marpack"])
def test_onnx(copy_of, target):
    results = answers(copy_of("onnx"), "--target", target, refused=True)
    assert {stem: likeliest(body) for stem, body in parsed(results).items()} == {
        f"cultivar-{number}": f"cultivar {number}" for number in (1, 2, 3)
    }
    refused = results["incomplete"]
    assert refused["status"] == 400
    assert "malic_acid" in refused["body"]


@pytest.mark.slow
def test_safetensors_with_compile(copy_of):
    bodies = parsed(answers(copy_of("safetensors_compile")))
    assert len(bodies) == 3
    for body in bodies.values():
        assert 0 < body["from"] < body["progression"] < body["to"] < 400
    assert bodies["patient-1"]["progression"] == pytest.approx(264, abs=2)


@pytest.mark.slow
def test_torch_export(copy_of):
    bodies = parsed(answers(copy_of("torch_export")))
    assert {stem: body["digit"] for stem, body in bodies.items()} == {
        "digit-1": True,
        "digit-2": True,
        "cross": False,
        "square": False,
    }


def test_streaming_sends_each_number_as_a_piece(copy_of):
    results = answers(copy_of("streaming"), refused=True)
    for stem, body in COUNTS.items():
        assert results[stem]["body"] == body
        pieces = [chunk["content"] for chunk in results[stem]["chunks"]]
        assert pieces[:4] == body.splitlines(keepends=True)[:4]
    assert results["five-apples"]["status"] == 400


def test_function_handler(copy_of):
    results = answers(copy_of("function_handler"))
    assert {stem: result["body"] for stem, result in results.items()} == {
        stem: stem for stem in ("setosa", "versicolor", "virginica")
    }


@pytest.mark.parametrize("size", ["1", "3"])
def test_batches_do_not_change_the_answers_nor_does_a_bad_request(copy_of, size):
    results = answers(copy_of("batches_and_metrics"), "--batch-size", size, refused=True)
    assert json.loads(results["one-cell"]["body"]) == {"cells": ["benign"], "malignant": 0}
    assert json.loads(results["five-cells"]["body"])["malignant"] == 2
    assert results["five-cells"]["headers"] == {"x-malignant": "2"}
    assert results["too-short"]["status"] == 400
    assert any("CellsJudged" in line for result in results.values() for line in result["metrics"])
