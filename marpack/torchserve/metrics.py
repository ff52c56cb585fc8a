"""Metrics: what handlers add, what the server declares of its own, and what a machine uses now (contract §9)."""

import abc
import enum
import logging
import os
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import yaml
from msgspec import Struct

logger = logging.getLogger(__name__)
_UNITS = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "percent": "Percent",
    "count": "Count",
    "MB": "Megabytes",
    "GB": "Gigabytes",
    "kB": "Kilobytes",
    "B": "Bytes",
    "": "unit",
    None: "unit",
}


class LogHandler(logging.StreamHandler[TextIO]):
    """What a worker's logging ends in: plain lines, each written at once."""

    def __init__(self, stream: TextIO, put: Callable[[str], None]) -> None:
        super().__init__(stream)
        self.put = put
        self.plain = logging.Formatter("%(message)s")
        self.setFormatter(self.plain)


def emit(line: str) -> None:
    """Log one metric line; where logging is as the worker has set it up, it is written at the end of the batch.

    Metrics come with every request, and a log record costs more than the rest of a small request.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = logging.root.handlers[0] if len(logging.root.handlers) == 1 else None
    if (
        isinstance(handler, LogHandler)
        # Nothing of the author's is between this logger and the stream.
        and handler.formatter is handler.plain
        and not (handler.filters or logger.filters or logger.handlers)
        and handler.level <= logging.INFO
        and logger.propagate
    ):
        handler.put(line)
    else:
        logger.info("%s", line)


class MetricTypes(enum.Enum):
    """The kinds of metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"

    __hash__ = object.__hash__  # every metric of every request is looked up by its type, and Enum's is no C


HOSTNAME = "Hostname"


class Section(enum.StrEnum):
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


class Dimension:
    """A name and a value that distinguish samples of a metric."""

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> dict[str, str]:
        """Return name and value as a dict."""
        return {"Name": self.name, "Value": self.value}


@lru_cache(maxsize=1)
def _hostname() -> str:
    return socket.gethostname()


def _request_of(ids: Any, idx: Any) -> Any:  # Any: {index: id}, a str while loading, or None
    """Return the id of one request of the batch, or all of them joined when none is named."""
    if idx is not None and ids is not None and idx in ids:
        return ids[idx]
    return ",".join(ids.values()) if isinstance(ids, dict) else ids


class CachingMetric:
    """A metric that prints one line for every value it is given; nothing is aggregated."""

    def __init__(
        self, metric_name: str, unit: str, dimension_names: list[str] | None = None, metric_type: MetricTypes = _COUNTER
    ) -> None:
        self.metric_name = metric_name
        self.unit = _UNITS.get(unit, str(unit))
        self.dimension_names = dimension_names or []
        self.metric_type = metric_type
        # Of the value before: its dimensions' names, their values, and how they are printed.
        self._latest: tuple[list[str], list[str], str] = ([], [], "")

    def add_or_update(
        self, value: float, dimension_values: list[str] | None = None, request_id: str | None = ""
    ) -> None:
        """Emit one value; wrong dimensions and a negative counter are logged, not raised."""
        values = dimension_values or []
        names, latest, dimensions = self._latest
        if values != latest or self.dimension_names != names or self.metric_type is MetricTypes.COUNTER:
            problem = None
            if len(values) != len(self.dimension_names):
                problem = f"dimensions {values} do not fit the names {self.dimension_names}"
            elif self.metric_type is MetricTypes.COUNTER and value < 0:
                problem = f"a counter cannot grow by {value}"
            if problem is not None:
                logger.error("[METRICS]%s was not updated: %s", self.metric_name, problem)
                return
            dimensions = ",".join(f"{name}:{each}" for name, each in zip(self.dimension_names, values, strict=True))
            self._latest = (list(self.dimension_names), list(values), dimensions)
        tail = f",{request_id}" if request_id else ""
        emit(
            f"[METRICS]{self.metric_name}.{self.unit}:{value}|#{dimensions}|#type:{self.metric_type._name_}"
            f"|#hostname:{_hostname()},{int(time.time())}{tail}"
        )

    def update(self, value: float, request_id: str = "", dimensions: list[Dimension] | None = None) -> None:
        """Emit one value under new dimensions (kept for old handlers)."""
        dims = dimensions or []
        logger.warning("the dimensions of %s are replaced", self.metric_name)
        self.dimension_names = [dim.name for dim in dims]
        self.add_or_update(value, [dim.value for dim in dims], request_id)


class Metric:
    """A named value with dimensions, as the older `MetricsStore` keeps it."""

    def __init__(
        self,
        name: str,
        value: Any,  # Any: errors carry text
        unit: str | None,
        dimensions: list[Dimension],
        request_id: str | None = None,
        metric_method: str | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.unit = _UNITS.get(unit, str(unit))
        self.dimensions = dimensions
        self.dimension_names = [dim.name for dim in dimensions]
        self.dimension_values = [dim.value for dim in dimensions]
        self.request_id = request_id
        self.metric_method = metric_method
        self.metric_type = MetricTypes.COUNTER
        self._printed = CachingMetric(name, unit or "", self.dimension_names, self.metric_type)

    def update(self, value: float) -> None:
        """Emit a further value."""
        self._printed.add_or_update(value, self.dimension_values, request_id=self.request_id)

    def reset(self) -> None:
        """Emit zero."""
        self.update(0)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.dimensions))
        tail = f",{self.request_id}" if self.request_id else ""
        return f"{self.name}.{self.unit}:{self.value}|#{dims}|#hostname:{_hostname()},{int(time.time())}{tail}"

    def to_dict(self) -> dict[str, Any]:
        """Return the metric as a dict, for encoders."""
        return {
            "MetricName": self.name,
            "Value": self.value,
            "Unit": self.unit,
            "Dimensions": self.dimensions,
            "Timestamp": int(time.time()),
            "HostName": _hostname(),
            "RequestId": self.request_id,
        }


# Stands for the server's own configuration, which declares these for every model.
SERVERS_OWN = "ts/configs/metrics.yaml"
Dims = list[Dimension]
_NONE: Dims = []  # the default; a list of the caller's own is added to


class GeneralMetricsCacheError(Exception):
    """Anything else that went wrong in the metrics cache."""


class MetricsCacheIOError(OSError):
    """The metrics file cannot be read."""

    hint = "Set metrics_config to a readable YAML file."


class MetricsCachePyYamlError(yaml.YAMLError):
    """The metrics file is not YAML."""

    hint = "Fix the line of the metrics file that the message names."


class MetricsCacheTypeError(TypeError):
    """A metric's name, unit or type is of the wrong type."""

    hint = "Pass name and unit as str, the type as MetricTypes, and dimensions as a list of str."


class MetricsCacheValueError(ValueError):
    """A unit does not fit its kind of metric."""


class MetricsCacheKeyError(KeyError):
    """A metric is not declared."""

    hint = "Declare the metric with add_metric_to_cache, or in the file of metrics_config."


class _Metrics(abc.ABC):
    """The methods by which handlers add values, to the server's newer and older container alike."""

    @abc.abstractmethod
    def _put(self, name: Any, value: Any, unit: str, idx: Any, dimensions: Dims, kind: MetricTypes) -> None: ...

    def add_metric(
        self,
        name: str,
        value: float,
        unit: str,
        idx: Any = None,
        dimensions: Dims = _NONE,
        metric_type: MetricTypes = _COUNTER,
    ) -> None:
        """Emit a value of any unit."""
        self._put(name, value, unit, idx, dimensions, metric_type)

    def add_counter(self, name: str, value: float, idx: Any = None, dimensions: Dims = _NONE) -> None:
        """Emit a count; a negative one is only logged."""
        self._put(name, value, "count", idx, dimensions, MetricTypes.COUNTER)

    def add_time(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "ms",
        dimensions: Dims = _NONE,
        metric_type: MetricTypes = _GAUGE,
    ) -> None:
        """Emit a duration in ms or s; MetricsCacheValueError for any other unit."""
        if unit not in {"ms", "s"}:
            raise MetricsCacheValueError(f"the unit of the time {name} is {unit!r}, not 'ms' or 's'")
        self._put(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "MB",
        dimensions: Dims = _NONE,
        metric_type: MetricTypes = _GAUGE,
    ) -> None:
        """Emit a size in MB, kB, GB or B; ValueError for any other unit."""
        if unit not in {"MB", "kB", "GB", "B"}:
            raise ValueError(f"the unit of the size {name} is {unit!r}, not 'MB', 'kB', 'GB' or 'B'")
        self._put(name, value, unit, idx, dimensions, metric_type)

    def add_percent(
        self, name: str, value: float, idx: Any = None, dimensions: Dims = _NONE, metric_type: MetricTypes = _GAUGE
    ) -> None:
        """Emit a percentage."""
        self._put(name, value, "percent", idx, dimensions, metric_type)


class MetricsStore(_Metrics):
    """Keep every metric added, one object per name, unit, request and dimensions.

    Of all but counters and errors the caller's dimensions are lost: the server takes them for the `metric_method`.
    """

    def __init__(self, request_ids: Any, model_name: str | None) -> None:  # Any: {index: id}, or anything with `in`
        self.store: list[Metric] = []
        self.request_ids = request_ids
        self.model_name = model_name
        self.cache: dict[str, Metric] = {}

    def _put(self, name: Any, value: Any, unit: str, idx: Any, dimensions: Any, kind: MetricTypes) -> None:  # noqa: ARG002 - all are counters here
        method = None if dimensions is _NONE else dimensions
        self._keep(name, value, unit, _request_of(self.request_ids, idx), method, None)

    def _keep(self, name: str, value: Any, unit: str, request_id: Any, method: Any, dimensions: Any) -> None:
        if dimensions is not None and not isinstance(dimensions, list):
            raise ValueError("dimensions must be a list")
        own = [] if dimensions is None else dimensions  # the caller's list, which is added to
        if request_id is None:
            own.append(Dimension("Level", "Error"))
        else:
            own += [Dimension("ModelName", str(self.model_name)), Dimension("Level", "Model")]
        key = "-".join([name, unit, str(request_id), *map(str, own)])
        if key in self.cache:
            self.cache[key].update(value)
            return
        self.cache[key] = Metric(name, value, unit, own, request_id, method)
        self.store.append(self.cache[key])

    def add_counter(self, name: str, value: float, idx: Any = None, dimensions: Any = None) -> None:
        """Add to a count."""
        self._keep(name, value, "count", _request_of(self.request_ids, idx), "counter", dimensions)

    def add_error(self, name: str, value: Any, dimensions: list[Dimension] | None = None) -> None:
        """Add an error, which may be text here."""
        self._keep(name, value, "", None, None, dimensions)


class MetricsCacheYamlImpl(_Metrics):
    """Create, find and emit metrics."""

    def __init__(self, config_file_path: str) -> None:
        self.cache: dict[MetricTypes, dict[str, CachingMetric]] = {}
        self.store: list[Any] = []  # Any: unused by the server, read by some handlers
        self.request_ids: Any = None  # Any: {index: id}, or a str while loading
        self.model_name: str | None = None
        self.config_file_path = config_file_path
        if config_file_path == SERVERS_OWN:
            declared = [{"name": it.name, "unit": it.unit, "dimensions": list(it.labels[:-1])} for it in MODEL_METRICS]
            self._parsed_file: Any = {"model_metrics": {"gauge": declared}}  # Any: YAML as it stands
            return
        if not config_file_path or not isinstance(config_file_path, str | os.PathLike):
            raise MetricsCacheTypeError(f"the path of the metrics file is {config_file_path!r}, not text")
        try:
            self._parsed_file = yaml.safe_load(Path(config_file_path).read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise MetricsCachePyYamlError(f"Error parsing file: {config_file_path}: {error}") from error
        except OSError as error:
            raise MetricsCacheIOError(f"Error reading file: {config_file_path}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise GeneralMetricsCacheError(f"Generic error: {config_file_path}: {error}") from error

    def initialize_cache(self) -> None:
        """Declare the file's metrics; raises MetricsCacheKeyError, and MetricsCacheValueError without metrics."""
        try:
            section = self._parsed_file["model_metrics"]
        except KeyError as error:
            raise MetricsCacheKeyError(f"{self.config_file_path}: the key {error} is missing") from error
        if not section:
            raise MetricsCacheValueError(f"{self.config_file_path}: model_metrics is empty; declare a metric in it")
        for kind, metrics in section.items():
            try:
                known = MetricTypes(kind)
                for metric in metrics:
                    self.add_metric_to_cache(metric["name"], metric["unit"], metric["dimensions"], known)
            except (KeyError, ValueError) as error:
                raise MetricsCacheKeyError(f"{self.config_file_path}: {error}") from error

    def set_request_ids(self, request_ids: Any) -> None:
        """Set the ids of the batch: {index: id}, or one str."""
        self.request_ids = request_ids

    def _put(self, name: Any, value: Any, unit: str, idx: Any, dimensions: Dims, kind: MetricTypes) -> None:
        request_id = _request_of(self.request_ids, idx)
        known = None if dimensions is not _NONE or request_id is None else self.cache.get(kind)
        if known and isinstance(name, str) and name in known:
            known[name].add_or_update(value, [str(self.model_name), "Model"], request_id)
        else:
            self._emit(name, value, unit, request_id, dimensions, kind)

    def _emit(self, name: Any, value: Any, unit: str, request_id: Any, dimensions: Dims, kind: MetricTypes) -> None:
        # The server's own dimensions are added to the caller's list: the next call with that list has them as well.
        own = [] if dimensions is _NONE else dimensions
        names = {dimension.name for dimension in own}
        if request_id is not None and "ModelName" not in names:
            own.append(Dimension("ModelName", str(self.model_name)))
        if "Level" not in names:
            own.append(Dimension("Level", "Error" if request_id is None else "Model"))
        try:
            metric = self.get_metric(name, kind)
        except MetricsCacheKeyError:
            metric = self.add_metric_to_cache(name, unit, [dimension.name for dimension in own], kind)
        metric.add_or_update(value, [dimension.value for dimension in own], request_id)

    def add_error(self, name: str, value: Any, dimensions: Dims = _NONE) -> None:
        """Emit an error count; text raises TypeError, as on the server."""
        self._emit(name, value, "", None, dimensions, MetricTypes.COUNTER)

    def add_metric_to_cache(
        self, metric_name: str, unit: str, dimension_names: list[str] | None = None, metric_type: MetricTypes = _COUNTER
    ) -> CachingMetric:
        """Declare a metric, replacing one of the same type and name; MetricsCacheTypeError for wrong types."""
        _check(metric_name, str, "a metric's name must be a str")
        _check(unit, str, "a metric's unit must be a str")
        _check(metric_type, MetricTypes, "a metric's type must be one of MetricTypes")
        if dimension_names:
            _check(dimension_names, list, "a metric's dimensions must be a list of names")
        metric = CachingMetric(metric_name, unit, dimension_names, metric_type)
        self.cache.setdefault(metric_type, {})[metric_name] = metric
        return metric

    def get_metric(self, metric_name: str, metric_type: MetricTypes = _COUNTER) -> CachingMetric:
        """Return a declared metric; MetricsCacheKeyError if it is not declared."""
        _check(metric_name, str, "a metric's name must be a str")
        _check(metric_type, MetricTypes, "a metric's type must be one of MetricTypes")
        try:
            return self.cache[metric_type][metric_name]
        except KeyError:
            raise MetricsCacheKeyError(f"the {metric_type.value} {metric_name!r} is not declared") from None

    def cache_keys(self) -> list[str]:
        """Return `type:name` of every declared metric."""
        return [f"{kind.value}:{name}" for kind, metrics in self.cache.items() for name in metrics]


def _check(value: object, expected: type, sentence: str) -> None:
    if not isinstance(value, expected):
        raise MetricsCacheTypeError(f"{sentence}, not {value!r}")


system_metrics: list[Metric] = []
dimension = [Dimension("Level", "Host")]


def sample_system() -> dict[str, float]:
    """Return the machine's usage by metric: percent (the CPU's since the last sample), GB of disk, MB of memory."""
    import psutil  # noqa: PLC0415 - takes 20 ms, and few processes sample

    disk, memory = psutil.disk_usage("/"), psutil.virtual_memory()
    return {
        "CPUUtilization": float(psutil.cpu_percent()),
        "DiskAvailable": disk.free / (1 << 30),
        "DiskUsage": disk.used / (1 << 30),
        "DiskUtilization": float(disk.percent),
        "MemoryAvailable": memory.available / (1 << 20),
        "MemoryUsed": memory.used / (1 << 20),
        "MemoryUtilization": float(memory.percent),
    }


def _collector(name: str, unit: str) -> Callable[[], None]:
    return lambda: system_metrics.append(Metric(name, sample_system()[name], unit, dimension))


cpu_utilization = _collector("CPUUtilization", "percent")
disk_available = _collector("DiskAvailable", "GB")
disk_used = _collector("DiskUsage", "GB")
disk_utilization = _collector("DiskUtilization", "percent")
memory_available = _collector("MemoryAvailable", "MB")
memory_used = _collector("MemoryUsed", "MB")
memory_utilization = _collector("MemoryUtilization", "percent")


def get_cpu_usage(pid: str) -> int:
    """Return the bytes of memory that a process has resident (the name is the server's), 0 if it does not exist."""
    import psutil  # noqa: PLC0415 - as above

    try:
        return int(psutil.Process(int(pid)).memory_info().rss)
    except psutil.Error:
        logger.exception("the process %s does not exist", pid)
        return 0


def check_process_mem_usage(stdin: TextIO) -> None:
    """Log `pid:bytes` for each process id on a line, separated by commas."""
    for pid in stdin.readline().strip().split(","):
        if pid:
            logger.info("%s:%d", pid, get_cpu_usage(pid))
