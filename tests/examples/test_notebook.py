"""The notebook among the examples, run as a new user runs it: every cell answers, and what is shown are its tables."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "notebook.ipynb"
CODE = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
# Code cell, from 0 → what its output shows.
SHOWN = {
    1: ["image_classifier/shapes.mar", "10 members"],
    2: ["shapes 1.0", "TorchScript", "pickles", "index_to_name.json"],
    3: ["may be deployed", "batch-contract", "samples"],
    4: ["data:image/", "star", "bar"],
    5: ["data:image/", "star"],
    6: ["star", "[[["],
    8: ["sklearn.linear_model", "Fit a line with an L1 penalty"],
    9: ["manifest", "model.modelVersion", "1.0 → 2.0", "members"],
}


def test_it_has_ten_cells_of_code_and_no_outputs() -> None:
    assert len(CODE) == 10
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in CODE)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Return what each cell of code puts out."""
    demanded = os.environ.get("MARPACK_REQUIRE_NOTEBOOK") == "1"
    try:
        import ipykernel  # noqa: F401 - the kernel is a process that imports it
        import nbclient
        import nbformat
    except ImportError as error:
        (pytest.fail if demanded else pytest.skip)(f"no {error.name} here: the notebook is not run")
    folder = tmp_path_factory.mktemp("examples")
    for name in ("image_classifier", "text_classifier"):
        shutil.copytree(EXAMPLES / name, folder / name, ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.peer  # a kernel, three workers that import torch, a whole check
@pytest.mark.filterwarnings("default")  # of jupyter's own packages
def test_every_cell_shows_its_result(outputs: list[list[dict[str, Any]]]) -> None:
    for number, words in SHOWN.items():
        (output,) = [each for each in outputs[number] if each["output_type"] == "execute_result"]
        page = output["data"]["text/html"]
        assert page.startswith('<div class="marpack">')
        assert [word for word in words if word not in page] == []
        assert len(output["data"]["text/plain"]) < 200
    printed = "".join(each["text"] for each in outputs[7])  # as it came, in however many pieces
    assert printed.split()[:4] == ["circle.jpg", "circle", "cross.jpg", "cross"]


@pytest.mark.peer
@pytest.mark.filterwarnings("default")  # as above
def test_nothing_else_is_said(outputs: list[list[dict[str, Any]]]) -> None:
    kinds = {each["output_type"] for cell in outputs for each in cell}
    assert kinds == {"execute_result", "stream"}
    assert [each for cell in outputs for each in cell if each.get("name") == "stderr"] == []
