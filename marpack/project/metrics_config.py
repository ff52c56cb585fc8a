"""The server's `metrics_config`, the YAML file that says which metrics it shows and its handlers find declared."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from marpack.errors import ProjectError
from marpack.project.load import Document, SchemaReader, read_document
from marpack.torchserve.metrics import MetricTypes
from marpack.torchserve.server_metrics import MODEL_METRICS, SERVER_METRICS, Declared, Section, handlers_metric

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
    reading = SchemaReader(_document(file))
    _models(reading)
    _raise_findings(reading)
    return str(file.resolve())


def declared_metrics(file: Path | None) -> tuple[Declared, ...]:
    """Return the metrics that a metrics file declares, those of a stock server without one.

    A file that says nothing of ts_metrics leaves the server those that it has; a name that is declared again is the
    later one's. Raises ProjectError as `checked_metrics_config` does, for ts_metrics too.
    """
    if file is None:
        return SERVER_METRICS + MODEL_METRICS
    reading = SchemaReader(_document(file))
    models, server = _models(reading), _server(reading)
    _raise_findings(reading)
    own = SERVER_METRICS if server is None else _declared(server, Section.SERVER)
    declared = own + _declared(models, Section.MODELS)
    return tuple({(metric.section, metric.name): metric for metric in declared}.values())


def _document(file: Path) -> Document:
    if not file.is_file():
        hint = "name the YAML file that the server's metrics_config names"
        raise ProjectError("there is no such metrics file", where=str(file), hint=hint, code="metrics-file-not-found")
    document = read_document(file)
    declared = document.value.get(Section.MODELS) if isinstance(document.value, dict) else None
    if not isinstance(declared, dict) or not declared:
        raise ProjectError("this file declares no model_metrics", where=str(file), hint=_HINT, code="no-model-metrics")
    return document


def _models(reading: SchemaReader) -> _MetricsByType:
    declared = reading.document.value[Section.MODELS]
    known = {kind: _known(metrics) for kind, metrics in declared.items()}
    return reading.struct(_MetricsByType, known, Section.MODELS)


def _server(reading: SchemaReader) -> _MetricsByType | None:
    declared = reading.document.value.get(Section.SERVER)
    if declared is None:
        return None
    if isinstance(declared, dict):  # the server passes over a type without metrics, a worker does not
        declared = {kind: _known(metrics) for kind, metrics in declared.items() if metrics is not None}
    found: _MetricsByType = reading.value(_MetricsByType, declared, Section.SERVER)
    return found


def _raise_findings(reading: SchemaReader) -> None:
    if reading.findings:
        count = f"{len(reading.findings)} problems" if len(reading.findings) > 1 else "a problem"
        raise ProjectError(f"{reading.document.file} has {count}", findings=tuple(reading.findings))


def _declared(metrics: _MetricsByType, section: Section) -> tuple[Declared, ...]:
    by_kind = {
        MetricTypes.COUNTER: metrics.counter,
        MetricTypes.GAUGE: metrics.gauge,
        MetricTypes.HISTOGRAM: metrics.histogram,
    }
    return tuple(_one(section, kind, metric) for kind, found in by_kind.items() for metric in found)


def _one(section: Section, kind: MetricTypes, metric: _Metric) -> Declared:
    dimensions = tuple(metric.dimensions)
    if section is Section.MODELS:
        return handlers_metric(kind, metric.name, metric.unit, dimensions)
    return Declared(section=section, kind=kind, name=metric.name, unit=metric.unit, labels=dimensions)


def _known(metrics: Any) -> Any:  # Any: whatever YAML holds
    """Return metrics without the keys that a worker does not read, of which the frontend only logs a complaint."""
    if not isinstance(metrics, list):
        return metrics
    return [
        {key: metric[key] for key in metric if key in _Metric.__struct_fields__} if isinstance(metric, dict) else metric
        for metric in metrics
    ]
