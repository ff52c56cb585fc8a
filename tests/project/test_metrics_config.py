"""The server's metrics_config: what its workers start with, and what is told of a file with which they would not."""

from pathlib import Path

import pytest

from marpack.errors import ExitCode, ProjectError
from marpack.project.metrics_config import checked_metrics_config

METRIC = "{name: a, unit: ms, dimensions: [Level]}"


def checked(tmp_path: Path, text: str) -> str:
    file = tmp_path / "metrics.yaml"
    file.write_text(text)
    return checked_metrics_config(file)


@pytest.mark.parametrize(
    "text",
    [
        f"model_metrics: {{gauge: [{METRIC}], histogram: []}}",
        f"mode: log\nts_metrics: 5\nmodel_metrics: {{counter: [{METRIC}]}}",  # a worker reads model_metrics alone
        "model_metrics: {counter: [{name: a, unit: ms, dimensions: [], help: text}]}",
    ],
)
def test_a_file_with_which_workers_start_is_taken(tmp_path: Path, text: str):
    assert checked(tmp_path, text) == str(tmp_path.resolve() / "metrics.yaml")


@pytest.mark.parametrize("text", ["", "[1]", "a: 1", "model_metrics:", "model_metrics: [1]", "model_metrics: {}"])
def test_a_file_without_metrics_is_told_what_it_needs(tmp_path: Path, text: str):
    with pytest.raises(ProjectError, match="this file declares no model_metrics") as caught:
        checked(tmp_path, text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "name, unit and dimensions" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("model_metrics:\n  counts: []\n", "2: model_metrics.counts", "there is no key counts"),
        ("model_metrics:\n  counter:\n", "2: model_metrics.counter", "model_metrics.counter is empty"),
        (
            "model_metrics:\n  gauge:\n  - name: a\n    unit: ms\n", "3: model_metrics.gauge[0]",
            "dimensions is missing",
        ),
        (
            "model_metrics:\n  gauge: [a]\n", "2: model_metrics.gauge[0]",
            "model_metrics.gauge[0] must be a mapping of name, unit, dimensions, not 'a'",
        ),
    ],
    ids=["another type", "an empty type", "a key short", "no mapping"],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, where: str, message: str):
    with pytest.raises(ProjectError) as caught:
        checked(tmp_path, text)
    (finding,) = caught.value.findings
    assert finding.where == f"{tmp_path / 'metrics.yaml'}:{where}"
    assert finding.message == message


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(ProjectError, match="there is no such metrics file") as caught:
        checked_metrics_config(tmp_path / "gone.yaml")
    assert caught.value.where == str(tmp_path / "gone.yaml")
