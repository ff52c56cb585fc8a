"""`marpack diff`, as one types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from lazy import torch
from msgspec import Struct

from marpack.cli.main import main
from marpack.render.console import cells

MakeMar = Callable[..., Path]
HANDLER = "def handle(data, context): return data\n"


class Outcome(Struct, frozen=True):
    code: int
    out: str
    err: str


Compare = Callable[..., Outcome]


@pytest.fixture
def compare(capfd: pytest.CaptureFixture[str]) -> Compare:
    def run(*arguments: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(["diff", *map(str, arguments)])
        out, err = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), out, err)

    return run


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


def test_the_same_is_exit_0(pair: tuple[Path, Path], compare: Compare) -> None:
    outcome = compare(pair[0], pair[0])

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("the same")


def test_a_difference_is_exit_1(pair: tuple[Path, Path], compare: Compare) -> None:
    outcome = compare(*pair)

    assert (outcome.code, outcome.err) == (1, "")
    for text in (
        "model.modelName  net0 → net1",
        "label 0 → label 1",
        "tensors of w.pt",
        "2 of 2 differ",
        "layer.weight  float32 [3, 2] → float32 [4, 2]",
        "layer.bias    float32 [2], other values",
    ):
        assert text in outcome.out


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_page_fits_its_width(
    columns: int, pair: tuple[Path, Path], compare: Compare, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)

    lines = compare(pair[0].name, pair[1].name).out.splitlines()

    assert max(map(cells, lines)) <= columns


def test_json_is_the_result_and_nothing_else(pair: tuple[Path, Path], compare: Compare) -> None:
    outcome = compare(*pair, "--json")

    assert outcome.code == 1
    assert json.loads(outcome.out)["same"] is False


def test_a_project_is_compared_with_its_archive(
    tmp_path: Path, compare: Compare, monkeypatch: pytest.MonkeyPatch, make_mar: MakeMar
) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    (tmp_path / "marpack.yaml").write_text("name: here\nversion: '1'\nhandler: handler.py\n")

    outcome = compare(tmp_path, make_mar(HANDLER, name="other"))

    assert outcome.code == 1
    assert "handler.py" not in outcome.out


WRONG = {  # words → exit code
    "a.mar": 2,
    "none.mar none.mar": 2,
    "here.txt here.txt": 3,
    "http://127.0.0.1:1/a.mar here.txt": 3,
    ". .": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code(
    words: str, compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    outcome = compare(*words.split())
    assert (outcome.code, outcome.out, bool(outcome.err)) == (WRONG[words], "", True)
