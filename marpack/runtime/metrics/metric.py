"""One metric: its name, unit and dimensions, and the line that a value of it becomes."""

import enum
import json
import logging
import socket
import time
from functools import lru_cache
from typing import Any

from marpack.runtime.metrics.lines import emit

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
        self.dimension_names = list(dimension_names or [])
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
