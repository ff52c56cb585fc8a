"""The metrics that a stock server tells of itself and of its models: names, types, units and dimensions."""

from enum import StrEnum

from msgspec import Struct

from marpack.torchserve.metrics import MetricTypes

HOSTNAME = "Hostname"


class Section(StrEnum):
    """Whose metrics the two parts of a metrics_config declare: the server's own, or its models' handlers'."""

    SERVER = "ts_metrics"
    MODELS = "model_metrics"


class Declared(Struct, frozen=True, kw_only=True):
    """One metric as it is declared."""

    section: Section
    kind: MetricTypes
    name: str
    unit: str
    labels: tuple[str, ...]  # the last one is the host's name


def handlers_metric(kind: MetricTypes, name: str, unit: str, dimensions: tuple[str, ...]) -> Declared:
    """Declare a metric of handlers, to whose dimensions the server adds the host's name."""
    labels = (*dimensions, HOSTNAME)
    return Declared(section=Section.MODELS, kind=kind, name=name, unit=unit, labels=labels)


def _own(kind: MetricTypes, unit: str, labels: tuple[str, ...], *names: str) -> tuple[Declared, ...]:
    return tuple(Declared(section=Section.SERVER, kind=kind, name=name, unit=unit, labels=labels) for name in names)


_HOST = ("Level", HOSTNAME)
_WORKER = ("WorkerName", *_HOST)
_DEVICE = ("Level", "DeviceId", HOSTNAME)
_MODEL = ("model_name", "model_version", "hostname")
_COUNTER, _GAUGE = MetricTypes.COUNTER, MetricTypes.GAUGE

SERVER_METRICS = (
    *_own(_COUNTER, "Count", _HOST, "Requests2XX", "Requests4XX", "Requests5XX"),
    *_own(_COUNTER, "Count", _MODEL, "ts_inference_requests_total"),
    *_own(_COUNTER, "Microseconds", _MODEL, "ts_inference_latency_microseconds", "ts_queue_latency_microseconds"),
    *_own(_GAUGE, "Milliseconds", _HOST, "QueueTime", "WorkerThreadTime"),
    *_own(_GAUGE, "Milliseconds", _WORKER, "WorkerLoadTime"),
    *_own(_GAUGE, "Percent", _HOST, "CPUUtilization", "MemoryUtilization", "DiskUtilization"),
    *_own(_GAUGE, "Megabytes", _HOST, "MemoryUsed", "MemoryAvailable"),
    *_own(_GAUGE, "Gigabytes", _HOST, "DiskUsage", "DiskAvailable"),
    *_own(_GAUGE, "Percent", _DEVICE, "GPUMemoryUtilization", "GPUUtilization"),
    *_own(_GAUGE, "Megabytes", _DEVICE, "GPUMemoryUsed"),
)
MODEL_METRICS = tuple(
    handlers_metric(_GAUGE, name, "ms", ("ModelName", "Level")) for name in ("HandlerTime", "PredictionTime")
)
