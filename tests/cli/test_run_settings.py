"""The server's settings that a handler finds: the batch size it is registered with, the metrics that are declared."""

import json
from pathlib import Path

import pytest
from cli.running import marpack, results
from gate.archives import project

import marpack as api

TELLS = """
class Handler:
    def initialize(self, context):
        self.size = context.system_properties["batch_size"]

    def handle(self, data, context):
        return [{"size": self.size, "now": context.system_properties["batch_size"]} for _ in data]
"""
COUNTS = """
class Handler:
    def initialize(self, context):
        self.metric = context.metrics.get_metric("Asked")

    def handle(self, data, context):
        self.metric.add_or_update(1, ["probe", "Model"])
        keys = context.metrics.cache_keys()
        return [{"asked": "counter:Asked" in keys, "servers own": "gauge:HandlerTime" in keys} for _ in data]
"""
METRICS = """
dimensions: [&model ModelName, &level Level]
ts_metrics:
  counter: [{name: Requests2XX, unit: Count, dimensions: [*level, Hostname]}]
model_metrics:
  counter:
    - {name: Asked, unit: count, dimensions: [*model, *level], help: of the frontend}
"""


@pytest.mark.parametrize(
    ("config", "options", "size"),
    [
        ({}, (), 1),
        ({}, ("--batch-size", "3"), 3),
        ({"batchSize": 4}, (), 4),
        ({"batchSize": 4}, ("--batch-size", "2"), 2),
    ],
    ids=["neither", "the option", "the config", "the option before the config"],
)
def test_the_handler_is_told_the_batch_size_it_is_registered_with(
    tmp_path: Path, config: dict[str, int], options: tuple[str, ...], size: int
):
    folder = project(tmp_path / "p", TELLS, config=config)
    (found,) = results(str(folder), "--data", "x", *options)
    assert json.loads(found["body"]) == {"size": size, "now": size}


def test_python_runs_batches_of_one_unless_told_otherwise_and_load_keeps_the_configs(tmp_path: Path):
    folder = project(tmp_path / "p", TELLS, config={"batchSize": 4})
    for given, size in (({}, 1), ({"batch_size": 2}, 2)):
        (found,) = api.run(folder, ["x"], **given).results
        assert found.json()["size"] == size
    with api.load(folder) as model:
        assert model.predict("x").json()["size"] == 4


def test_sequences_are_warned_of_once_and_torchruns_ranks_refused(tmp_path: Path):
    handler = "def handle(data, context):\n    return ['x' for _ in data or ()]\n"
    config = {"sequenceBatching": True, "sequenceMaxIdleMSec": 1000}
    done = marpack("run", str(project(tmp_path / "p", handler, config=config)), "--data", "x", "--data", "y")
    assert done.stderr.count("(sequence-batching)") == 1
    config = {"parallelType": "tp", "torchrun": {"nproc-per-node": 2}}
    marpack("run", str(project(tmp_path / "q", handler, config=config)), "--data", "x", code=4)


def test_metrics_of_the_servers_file_are_declared(tmp_path: Path):
    folder = project(tmp_path / "p", COUNTS)
    (tmp_path / "metrics.yaml").write_text(METRICS)
    assert "is not declared" in marpack("run", "p", "--data", "x", cwd=tmp_path, code=4).stderr
    for source in ("p", "p/probe.mar"):
        (found,) = results(source, "--data", "x", "--metrics-config", "metrics.yaml", cwd=tmp_path)
        # The file stands in the place of the server's own.
        assert json.loads(found["body"]) == {"asked": True, "servers own": False}
    assert not (folder / "metrics.yaml").exists()


def test_a_project_names_the_servers_file_for_run_and_check(tmp_path: Path):
    folder = project(tmp_path / "p", COUNTS, metrics_config="../metrics.yaml", labels=None)
    (tmp_path / "metrics.yaml").write_text(METRICS)
    (found,) = results("p", "--data", "x", cwd=tmp_path)
    assert json.loads(found["body"])["asked"]
    marpack("check", "p", cwd=tmp_path)
    assert "metrics.yaml" not in marpack("inspect", "p/probe.mar", cwd=tmp_path).stdout
    (tmp_path / "metrics.yaml").write_text("model_metrics: {counts: []}")
    for command in (["run", "p", "--data", "x"], ["check", "p"]):
        assert "model_metrics.counts: " in marpack(*command, cwd=tmp_path, code=2).stderr
    assert folder.is_dir()
