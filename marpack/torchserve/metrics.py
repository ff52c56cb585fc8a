"""Metrics in the server's line format: a metric, the older store, and where the lines go (contract §9)."""

import enum
import json
import logging
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TextIO

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
        """Take where records go, and what leaves a line to be written there with what comes after it."""
        super().__init__(stream)
        self.put = put
        self.plain = logging.Formatter("%(message)s")
        self.setFormatter(self.plain)


def emit(line: str) -> None:
    """Log one metric line, by the shortest way that shows no difference.

    Metrics come with every request, and a log record costs more than all else that is done for a small one. Where
    logging is as the worker has set it up, they are left to be written with the end of the batch.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = logging.root.handlers[0] if len(logging.root.handlers) == 1 else None
    if not isinstance(handler, LogHandler) or _is_changed(handler):
        logger.info("%s", line)
        return
    handler.put(line)


def _is_changed(handler: LogHandler) -> bool:
    """Say whether an author has put something between this logger and the stream."""
    return bool(
        handler.formatter is not handler.plain
        or handler.filters
        or handler.level > logging.INFO
        or logger.filters
        or logger.handlers
        or not logger.propagate
    )


class Units:
    """The units that metrics are told in: short name → long name."""

    def __init__(self) -> None:
        self.units = dict(_UNITS)


METRIC_UNIT = Units()


class MetricTypes(enum.Enum):
    """The kinds of metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"

    __hash__ = object.__hash__  # every metric of every request is looked up by its type, and Enum's is no C


class Dimension:
    """One name and value that a metric is told apart by."""

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


def unit_name(unit: str | None) -> str:
    """Return a unit's long name; an unknown one is its own."""
    return _UNITS.get(unit, str(unit))


def request_of(ids: Any, idx: Any) -> Any:  # Any: {index: id}, a str while loading, or None
    """Return the id of one request of the batch, or all of them joined when none is named."""
    if idx is not None and ids is not None and idx in ids:
        return ids[idx]
    return ",".join(ids.values()) if isinstance(ids, dict) else ids


class CachingMetric:
    """A metric that prints one line for every value it is given; nothing is aggregated."""

    def __init__(
        self,
        metric_name: str,
        unit: str,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        self.metric_name = metric_name
        self.unit = unit_name(unit)
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
            problem = self._problem(value, values)
            if problem is not None:
                logger.error("[METRICS]%s was not updated: %s", self.metric_name, problem)
                return
            dimensions = self._printed(values)
        tail = f",{request_id}" if request_id else ""
        emit(
            f"[METRICS]{self.metric_name}.{self.unit}:{value}|#{dimensions}|#type:{self.metric_type._name_}"
            f"|#hostname:{_hostname()},{int(time.time())}{tail}"
        )

    def _printed(self, values: list[str]) -> str:
        """Return the dimensions as they are printed, and keep them: the next value's are nearly always the same."""
        text = ",".join(f"{name}:{dim}" for name, dim in zip(self.dimension_names, values, strict=True))
        self._latest = (list(self.dimension_names), list(values), text)
        return text

    def _problem(self, value: float, dimension_values: list[str]) -> str | None:
        if len(dimension_values) != len(self.dimension_names):
            return f"dimensions {dimension_values} do not fit the names {self.dimension_names}"
        if self.metric_type is MetricTypes.COUNTER and value < 0:
            return f"a counter cannot grow by {value}"
        return None

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
        self.unit = unit_name(unit)
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


class MetricEncoder(json.JSONEncoder):
    """Encodes metrics and dimensions as the dicts that they make of themselves."""

    def default(self, o: object) -> Any:  # Any: as JSONEncoder's
        """Return the dict of a metric or a dimension; raises TypeError for anything else."""
        return o.to_dict() if isinstance(o, Metric | Dimension) else super().default(o)


class MetricsStore:
    """Keep every metric added, one object per name, unit, request and dimensions.

    Of all but counters the caller's dimensions are lost: the server takes them for the metric's `metric_method`.
    """

    def __init__(self, request_ids: Any, model_name: str | None) -> None:  # Any: {index: id}, or anything with `in`
        self.store: list[Metric] = []
        self.request_ids = request_ids
        self.model_name = model_name
        self.cache: dict[str, Metric] = {}

    def _put(
        self, name: str, value: Any, request_id: Any, unit: str, method: Any = None, dimensions: Any = None
    ) -> None:
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

    def add_counter(self, name: str, value: float, idx: Any = None, dimensions: list[Dimension] | None = None) -> None:
        """Add to a count."""
        self._put(name, value, request_of(self.request_ids, idx), "count", "counter", dimensions)

    def add_time(
        self, name: str, value: float, idx: Any = None, unit: str = "ms", dimensions: list[Dimension] | None = None
    ) -> None:
        """Add a duration in ms or s; ValueError for any other unit."""
        if unit not in {"ms", "s"}:
            raise ValueError("a duration is measured in 'ms' or 's'")
        self._put(name, value, request_of(self.request_ids, idx), unit, dimensions)

    def add_size(
        self, name: str, value: float, idx: Any = None, unit: str = "MB", dimensions: list[Dimension] | None = None
    ) -> None:
        """Add a size in MB, kB, GB or B; ValueError for any other unit."""
        if unit not in {"MB", "kB", "GB", "B"}:
            raise ValueError("a size is measured in 'MB', 'kB', 'GB' or 'B'")
        self._put(name, value, request_of(self.request_ids, idx), unit, dimensions)

    def add_percent(self, name: str, value: float, idx: Any = None, dimensions: list[Dimension] | None = None) -> None:
        """Add a percentage."""
        self._put(name, value, request_of(self.request_ids, idx), "percent", dimensions)

    def add_error(self, name: str, value: Any, dimensions: list[Dimension] | None = None) -> None:
        """Add an error, which may be text here."""
        self._put(name, value, None, "", dimensions)

    def add_metric(
        self, name: str, value: float, unit: str, idx: Any = None, dimensions: list[Dimension] | None = None
    ) -> None:
        """Add a value of any unit."""
        self._put(name, value, request_of(self.request_ids, idx), unit, dimensions)
