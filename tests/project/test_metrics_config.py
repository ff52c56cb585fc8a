"""The server's metrics_config: what its workers start with, and what is told of a file with which they would not."""

from pathlib import Path

import pytest

from marpack.errors import ExitCode, ProjectError
from marpack.project.load import checked_metrics_config, declared_metrics
from marpack.torchserve.metrics import SERVER_METRICS, Declared, MetricTypes, Section

METRIC = "{name: a, unit: ms, dimensions: [Level]}"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "metrics.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "text",
    [
        f"model_metrics: {{gauge: [{METRIC}], histogram: []}}",
        f"mode: log\nts_metrics: 5\nmodel_metrics: {{counter: [{METRIC}]}}",  # a worker reads model_metrics alone
        "model_metrics: {counter: [{name: a, unit: ms, dimensions: [], help: text}]}",
    ],
)
def test_a_file_with_which_workers_start_is_taken(tmp_path: Path, text: str):
    assert checked_metrics_config(written(tmp_path, text)) == str(tmp_path.resolve() / "metrics.yaml")


@pytest.mark.parametrize("text", ["", "[1]", "a: 1", "model_metrics:", "model_metrics: [1]", "model_metrics: {}"])
def test_a_file_without_metrics_is_told_what_it_needs(tmp_path: Path, text: str):
    with pytest.raises(ProjectError) as caught:
        checked_metrics_config(written(tmp_path, text))
    assert (caught.value.code, caught.value.exit_code) == ("no-model-metrics", ExitCode.USAGE)


@pytest.mark.parametrize(
    ("inner", "where", "code"),
    [
        ("  counts: []\n", "2: model_metrics.counts", "unknown-key"),
        ("  counter:\n", "2: model_metrics.counter", "empty-key"),
        ("  gauge:\n  - name: a\n    unit: ms\n", "3: model_metrics.gauge[0]", "missing-key"),
        ("  gauge: [a]\n", "2: model_metrics.gauge[0]", "wrong-type"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, inner: str, where: str, code: str):
    with pytest.raises(ProjectError) as caught:
        checked_metrics_config(written(tmp_path, "model_metrics:\n" + inner))
    (finding,) = caught.value.findings
    assert (finding.where, finding.code) == (f"{tmp_path / 'metrics.yaml'}:{where}", code)


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(ProjectError) as caught:
        checked_metrics_config(tmp_path / "gone.yaml")
    assert (caught.value.code, caught.value.where) == ("metrics-file-not-found", str(tmp_path / "gone.yaml"))


def test_a_file_without_ts_metrics_leaves_the_server_its_own(tmp_path: Path):
    declared = declared_metrics(written(tmp_path, f"ts_metrics:\nmodel_metrics: {{histogram: [{METRIC}]}}"))
    handlers = [metric for metric in declared if metric.section is Section.MODELS]
    assert declared == (*SERVER_METRICS, *handlers)
    histogram = MetricTypes.HISTOGRAM
    assert handlers == [
        Declared(section=Section.MODELS, kind=histogram, name="a", unit="ms", labels=("Level", "Hostname"))
    ]


def test_a_file_with_ts_metrics_says_all_that_the_server_shows(tmp_path: Path):
    text = f"ts_metrics: {{counter: [{METRIC}], gauge: }}\nmodel_metrics: {{gauge: [{METRIC}]}}"
    server, handlers = declared_metrics(written(tmp_path, text))
    assert (server.section, server.kind, server.labels) == (Section.SERVER, MetricTypes.COUNTER, ("Level",))
    assert (handlers.section, handlers.kind) == (Section.MODELS, MetricTypes.GAUGE)


def test_of_metrics_with_one_name_the_last_counts(tmp_path: Path):
    text = f"ts_metrics: {{}}\nmodel_metrics: {{histogram: [{METRIC}], counter: [{METRIC}]}}"
    (metric,) = declared_metrics(written(tmp_path, text))
    assert metric.kind is MetricTypes.HISTOGRAM  # the server reads counters first


@pytest.mark.parametrize(
    ("server", "code"),
    [("5", "wrong-type"), ("{meter: []}", "unknown-key"), ("{gauge: [{name: a, unit: ms}]}", "missing-key")],
)
def test_a_mistake_in_ts_metrics_is_reported(tmp_path: Path, server: str, code: str):
    with pytest.raises(ProjectError) as caught:
        declared_metrics(written(tmp_path, f"ts_metrics: {server}\nmodel_metrics: {{gauge: [{METRIC}]}}"))
    assert [finding.code for finding in caught.value.findings] == [code]
