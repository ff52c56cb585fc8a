"""`marpack diff`, as one types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from invoking import Invoked, invoke

HANDLER = "def handle(data, context): return data\n"


def compare(*arguments: str | Path) -> Invoked:
    return invoke("diff", *map(str, arguments), code=None)


def test_a_project_is_compared_with_an_archive_and_json_is_the_result_and_nothing_else(
    tmp_path: Path, make_mar: Callable[..., Path]
) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    (tmp_path / "marpack.yaml").write_text("name: here\nversion: '1'\nhandler: handler.py\n")
    outcome = compare(tmp_path, make_mar(HANDLER, name="other"), "--json")
    assert (outcome.returncode, outcome.stderr) == (1, "")
    assert json.loads(outcome.stdout)["same"] is False


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
