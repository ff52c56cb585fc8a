import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.errors import UsageError
from marpack.runner.inputs import Input
from marpack.runner.resume import ResultsLog
from marpack.torchserve.messages import Request

NAMES = st.lists(st.text(min_size=1, max_size=3), max_size=20)


def inputs(names: list[str]) -> list[Input]:
    return [Input(name, Request(id="", parts=())) for name in names]


def line(name: str, **more: Any) -> str:
    return json.dumps({"input": name, "status": 200, **more}) + "\n"


@given(answered=NAMES, asked=NAMES)
def test_of_each_name_as_many_are_left_out_as_are_answered(tmp_path_factory, answered: list[str], asked: list[str]):
    path = tmp_path_factory.mktemp("journal") / "r.jsonl"
    path.write_text("".join(map(line, answered)))
    with ResultsLog(str(path)) as results_log:
        left = [item.name for item in results_log.unanswered(inputs(asked))]
    assert Counter(left) == Counter(asked) - Counter(answered)


def test_what_fell_short_counts_as_answered_and_is_counted(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    with path.open("w") as file:
        file.write(line("a") + line("b", status=503) + line("c", reset=True))
        file.write("".join(line(f"d{status}", status=status) for status in (199, 299, 300)))
    with ResultsLog(str(path)) as results_log:
        assert (results_log.answered, results_log.short) == (6, 4)
        assert list(results_log.unanswered(inputs(["a", "b", "c", "d300"]))) == []


def test_a_torn_line_is_cut_off_and_asked_again(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_text(line("a") + line("b").rstrip())
    with ResultsLog(str(path)) as results_log:
        assert [item.name for item in results_log.unanswered(inputs(["a", "b"]))] == ["b"]
        results_log.write({"input": "b", "status": 200})
    assert [json.loads(text)["input"] for text in path.read_text().splitlines()] == ["a", "b"]


DEEP = '{"chunks": ' + "[" * 1500 + "]" * 1500 + "}\n"


@pytest.mark.parametrize("text", ["no json\n", '{"status": 200}\n', "[1]\n", '{"input": "a"}\n', "\xff\n", DEEP])
def test_what_is_no_results_file_is_left_as_it_is(tmp_path: Path, text: str):
    path = tmp_path / "notes"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="no result") as caught:
        ResultsLog(str(path))
    assert caught.value.where == f"{path}:1"
    assert path.read_text(encoding="latin-1") == text


def test_a_journal_that_is_not_there_is_begun(tmp_path: Path):
    with ResultsLog(str(tmp_path / "r.jsonl")) as results_log:
        assert results_log.answered == 0
    with pytest.raises(UsageError, match="cannot be written"):
        ResultsLog(str(tmp_path / "r.jsonl" / "x"))


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/full", "."])
def test_what_is_no_file_is_not_read(place: str):
    with pytest.raises(UsageError, match="this is none"):
        ResultsLog(place)
