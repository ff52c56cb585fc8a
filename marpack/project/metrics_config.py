"""The server's `metrics_config`, the YAML file that says which metrics its handlers find declared."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from marpack.errors import ProjectError
from marpack.project.load import SchemaReader, read_document

_HINT = "it needs model_metrics, with lists of name, unit and dimensions under counter, gauge or histogram"


class _Metric(Struct, frozen=True):
    """One metric."""

    name: str
    unit: str
    dimensions: list[str]


class _MetricsByType(Struct, frozen=True):
    """Metrics by their type; the server knows no other."""

    counter: list[_Metric] = []
    gauge: list[_Metric] = []
    histogram: list[_Metric] = []


def checked_metrics_config(file: Path) -> str:
    """Return the full path of a metrics file with which the server's workers start; they read model_metrics alone.

    Raises ProjectError if it cannot be read, or holding a finding for everything that is wrong with it.
    """
    if not file.is_file():
        hint = "name the YAML file that the server's metrics_config names"
        raise ProjectError("there is no such metrics file", where=str(file), hint=hint)
    document = read_document(file)
    declared = document.value.get("model_metrics") if isinstance(document.value, dict) else None
    if not isinstance(declared, dict) or not declared:
        raise ProjectError("this file declares no model_metrics", where=str(file), hint=_HINT)
    reading = SchemaReader(document)
    reading.struct(_MetricsByType, {kind: _known(metrics) for kind, metrics in declared.items()}, "model_metrics")
    if reading.findings:
        count = f"{len(reading.findings)} problems" if len(reading.findings) > 1 else "a problem"
        raise ProjectError(f"{file} has {count}", findings=tuple(reading.findings))
    return str(file.resolve())


def _known(metrics: Any) -> Any:  # Any: whatever YAML holds
    """Return metrics without the keys that a worker does not read, of which the frontend only logs a complaint."""
    if not isinstance(metrics, list):
        return metrics
    return [
        {key: metric[key] for key in metric if key in _Metric.__struct_fields__} if isinstance(metric, dict) else metric
        for metric in metrics
    ]
