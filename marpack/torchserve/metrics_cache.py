"""`context.metrics`: every metric of a worker by type and name, and its errors (contract §9)."""

import os
from pathlib import Path
from typing import Any

import yaml

from marpack.torchserve.metrics import CachingMetric, Dimension, MetricTypes, request_of
from marpack.torchserve.server_metrics import MODEL_METRICS, Declared

# Stands for the server's own configuration, which declares these for every model.
SERVERS_OWN = "ts/configs/metrics.yaml"
_NONE: list[Dimension] = []  # what stands for no dimensions; a list of the caller's own is added to


class GeneralMetricsCacheError(Exception):
    """Anything else that went wrong in the metrics cache."""


class MetricsCacheIOError(OSError):
    """The metrics file cannot be read."""


class MetricsCachePyYamlError(yaml.YAMLError):
    """The metrics file is not YAML."""


class MetricsCacheTypeError(TypeError):
    """A metric's name, unit or type is of the wrong type."""


class MetricsCacheValueError(ValueError):
    """A unit is none of those that its kind of metric knows."""


class MetricsCacheKeyError(KeyError):
    """There is no such metric."""


class MetricsCacheYamlImpl:
    """Create, find and emit metrics."""

    def __init__(self, config_file_path: str) -> None:
        """Read a metrics file.

        Raises MetricsCacheTypeError where none is named, MetricsCacheIOError, MetricsCachePyYamlError, and
        GeneralMetricsCacheError for one that is no text.
        """
        self.cache: dict[MetricTypes, dict[str, CachingMetric]] = {}
        self.store: list[Any] = []  # Any: unused by the server, read by some handlers
        self.request_ids: Any = None  # Any: {index: id}, or a str while loading
        self.model_name: str | None = None
        self.config_file_path = config_file_path
        self._parsed_file = _parsed(config_file_path)

    def initialize_cache(self) -> None:
        """Declare the file's metrics.

        Raises MetricsCacheKeyError for a key that is not there or not known, MetricsCacheValueError where there is
        none, and what `add_metric_to_cache` raises.
        """
        try:
            section = self._parsed_file["model_metrics"]
        except KeyError as error:
            raise MetricsCacheKeyError(f"{self.config_file_path}: no key {error}") from error
        if not section:
            raise MetricsCacheValueError("model_metrics is empty")
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

    def _put(
        self,
        name: Any,  # Any: `get_metric` judges what is no str
        value: float,
        unit: str,
        idx: Any,
        dimensions: list[Dimension],
        kind: MetricTypes,
    ) -> None:
        request_id = request_of(self.request_ids, idx)
        known = None if dimensions is not _NONE or request_id is None else self.cache.get(kind)
        if known and isinstance(name, str) and name in known:
            known[name].add_or_update(value, [str(self.model_name), "Model"], request_id)
            return
        own = self._completed(dimensions, request_id)
        metric = self._found_or_added(name, unit, own, kind)
        metric.add_or_update(value, [dimension.value for dimension in own], request_id)

    def _completed(self, dimensions: list[Dimension], request_id: Any) -> list[Dimension]:
        """Add the server's own dimensions to the caller's list: the next call that gets it has them, too."""
        own = [] if dimensions is _NONE else dimensions
        names = {dimension.name for dimension in own}
        if request_id is not None and "ModelName" not in names:
            own.append(Dimension("ModelName", str(self.model_name)))
        if "Level" not in names:
            own.append(Dimension("Level", "Error" if request_id is None else "Model"))
        return own

    def _found_or_added(self, name: str, unit: str, dimensions: list[Dimension], kind: MetricTypes) -> CachingMetric:
        try:
            return self.get_metric(name, kind)
        except MetricsCacheKeyError:
            return self.add_metric_to_cache(name, unit, [dimension.name for dimension in dimensions], kind)

    def add_metric(
        self,
        name: str,
        value: float,
        unit: str,
        idx: Any = None,
        dimensions: list[Dimension] = _NONE,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        """Emit a value of any unit."""
        self._put(name, value, unit, idx, dimensions, metric_type)

    def add_counter(self, name: str, value: float, idx: Any = None, dimensions: list[Dimension] = _NONE) -> None:
        """Emit a count; a negative one is only logged."""
        self._put(name, value, "count", idx, dimensions, MetricTypes.COUNTER)

    def add_time(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "ms",
        dimensions: list[Dimension] = _NONE,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Emit a duration in ms or s; MetricsCacheValueError for any other unit."""
        if unit not in {"ms", "s"}:
            raise MetricsCacheValueError("a duration is measured in 'ms' or 's'")
        self._put(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "MB",
        dimensions: list[Dimension] = _NONE,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Emit a size in MB, kB, GB or B; ValueError for any other unit."""
        if unit not in {"MB", "kB", "GB", "B"}:
            raise ValueError("a size is measured in 'MB', 'kB', 'GB' or 'B'")
        self._put(name, value, unit, idx, dimensions, metric_type)

    def add_percent(
        self,
        name: str,
        value: float,
        idx: Any = None,
        dimensions: list[Dimension] = _NONE,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Emit a percentage."""
        self._put(name, value, "percent", idx, dimensions, metric_type)

    def add_error(self, name: str, value: Any, dimensions: list[Dimension] = _NONE) -> None:
        """Emit an error count; text raises TypeError, as on the server."""
        own = self._completed(dimensions, None)
        metric = self._found_or_added(name, "", own, MetricTypes.COUNTER)
        metric.add_or_update(value, [dimension.value for dimension in own])

    def add_metric_to_cache(
        self,
        metric_name: str,
        unit: str,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> CachingMetric:
        """Declare a metric, replacing one of the same type and name.

        Raises MetricsCacheTypeError for a name, unit, type or list of dimensions of the wrong type.
        """
        _check(metric_name, str, "a metric's name is a str")
        _check(unit, str, "a metric's unit is a str")
        _check(metric_type, MetricTypes, "a metric's type is one of MetricTypes")
        if dimension_names:
            _check(dimension_names, list, "a metric's dimensions are a list of names")
        metric = CachingMetric(metric_name, unit, dimension_names, metric_type)
        self.cache.setdefault(metric_type, {})[metric_name] = metric
        return metric

    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> CachingMetric:
        """Return a declared metric; MetricsCacheKeyError if there is none."""
        _check(metric_name, str, "a metric's name is a str")
        _check(metric_type, MetricTypes, "a metric's type is one of MetricTypes")
        try:
            return self.cache[metric_type][metric_name]
        except KeyError:
            raise MetricsCacheKeyError(f"no {metric_type.value} named {metric_name!r} was declared") from None

    def cache_keys(self) -> list[str]:
        """Return `type:name` of every declared metric."""
        return [f"{kind.value}:{name}" for kind, metrics in self.cache.items() for name in metrics]


def _parsed(path: str) -> Any:  # Any: YAML as it stands
    if path == SERVERS_OWN:
        return {"model_metrics": {"gauge": [_entry(metric) for metric in MODEL_METRICS]}}
    if not path or not isinstance(path, str | os.PathLike):
        raise MetricsCacheTypeError("no metrics file is named")
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise MetricsCachePyYamlError(f"Error parsing file: {path}: {error}") from error
    except OSError as error:
        raise MetricsCacheIOError(f"Error reading file: {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise GeneralMetricsCacheError(f"Generic error: {path}: {error}") from error


def _entry(metric: Declared) -> dict[str, Any]:  # Any: as YAML would hold it
    return {"name": metric.name, "unit": metric.unit, "dimensions": list(metric.labels[:-1])}


def _check(value: object, expected: type, sentence: str) -> None:
    if not isinstance(value, expected):
        raise MetricsCacheTypeError(sentence)
