"""The server's settings that a handler finds: the batch size it is registered with, the metrics that are declared."""

import json
from pathlib import Path

from cli.running import marpack, results
from gate.archives import project

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


def test_the_handler_is_told_the_batch_size_it_is_registered_with(tmp_path: Path):
    plain, batches = project(tmp_path / "p", TELLS, config={}), project(tmp_path / "q", TELLS)  # which has 4
    for folder, options, size in (
        (plain, (), 1),
        (plain, ("--batch-size", "3"), 3),
        (batches, (), 4),
        (batches, ("--batch-size", "2"), 2),
    ):
        (found,) = results(str(folder), "--data", "x", *options)
        assert json.loads(found["body"]) == {"size": size, "now": size}


def test_metrics_of_the_servers_file_are_declared(tmp_path: Path):
    project(tmp_path / "p", COUNTS)
    (tmp_path / "metrics.yaml").write_text(METRICS)
    assert "is not declared" in marpack("run", "p", "--data", "x", cwd=tmp_path, code=4).stderr
    (found,) = results("p/probe.mar", "--data", "x", "--metrics-config", "metrics.yaml", cwd=tmp_path)
    # The file stands in the place of the server's own.
    assert json.loads(found["body"]) == {"asked": True, "servers own": False}


def test_a_project_names_the_servers_file_for_run_and_check(tmp_path: Path):
    project(tmp_path / "p", COUNTS, metrics_config="../metrics.yaml", labels=None)
    (tmp_path / "metrics.yaml").write_text(METRICS)
    (found,) = results("p", "--data", "x", cwd=tmp_path)
    assert json.loads(found["body"])["asked"]
    marpack("check", "p", "--only", "loads", cwd=tmp_path)
    assert "metrics.yaml" not in marpack("inspect", "p/probe.mar", cwd=tmp_path).stdout
    (tmp_path / "metrics.yaml").write_text("model_metrics: {counts: []}")
    for command in (["run", "p", "--data", "x"], ["check", "p"]):
        assert "model_metrics.counts: " in marpack(*command, cwd=tmp_path, code=2).stderr
