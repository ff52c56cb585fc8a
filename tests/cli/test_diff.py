"""`marpack diff`, as one types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from invoking import Invoked, invoke
from lazy import torch

MakeMar = Callable[..., Path]
HANDLER = "def handle(data, context): return data\n"


def compare(*arguments: str | Path) -> Invoked:
    return invoke("diff", *map(str, arguments), code=None)


@pytest.fixture
def pair(make_mar: MakeMar, tmp_path: Path) -> tuple[Path, Path]:
    archives = []
    for number, size in enumerate((3, 4)):
        torch.save(
            {"layer.weight": torch.full((size, 2), 1.0), "layer.bias": torch.full((2,), float(number))},
            tmp_path / "w.pt",
        )
        files = {"w.pt": (tmp_path / "w.pt").read_bytes(), "index_to_name.json": f'{{"0": "label {number}"}}'}
        archives.append(make_mar(HANDLER, name=f"net{number}", files=files))
    return archives[0], archives[1]


def test_json_is_the_result_and_nothing_else(pair: tuple[Path, Path]) -> None:
    outcome = compare(*pair, "--json")

    assert outcome.returncode == 1
    assert json.loads(outcome.stdout)["same"] is False


def test_a_project_is_compared_with_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_mar: MakeMar
) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    (tmp_path / "marpack.yaml").write_text("name: here\nversion: '1'\nhandler: handler.py\n")

    outcome = compare(tmp_path, make_mar(HANDLER, name="other"))

    assert outcome.returncode == 1
    assert "handler.py" not in outcome.stdout


WRONG = {  # words → exit code
    "a.mar": 2,
    "none.mar none.mar": 2,
    "here.txt here.txt": 3,
    "http://127.0.0.1:1/a.mar here.txt": 3,
    ". .": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    outcome = compare(*words.split())
    assert (outcome.returncode, outcome.stdout, bool(outcome.stderr)) == (WRONG[words], "", True)
