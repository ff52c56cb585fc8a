"""The older collection of metrics, which `MockContext` and old handlers still use."""

from typing import Any

from marpack.runtime.metrics.metric import Dimension, Metric, request_of


class MetricsStore:
    """Keep every metric added, one object per name, unit, request and dimensions."""

    def __init__(self, request_ids: Any, model_name: str | None) -> None:  # Any: {index: id}, or anything with `in`
        self.store: list[Metric] = []
        self.request_ids = request_ids
        self.model_name = model_name
        self.cache: dict[str, Metric] = {}

    def _put(self, name: str, value: Any, request_id: Any, unit: str, dimensions: list[Dimension] | None) -> None:
        if dimensions is not None and not isinstance(dimensions, list):
            raise ValueError("dimensions must be a list")
        own = list(dimensions or [])
        if request_id is None:
            own.append(Dimension("Level", "Error"))
        else:
            own += [Dimension("ModelName", str(self.model_name)), Dimension("Level", "Model")]
        key = "-".join([name, unit, str(request_id), *map(str, own)])
        if key in self.cache:
            self.cache[key].update(value)
            return
        self.cache[key] = Metric(name, value, unit, own, request_id)
        self.store.append(self.cache[key])

    def add_counter(self, name: str, value: float, idx: Any = None, dimensions: list[Dimension] | None = None) -> None:
        """Add to a count."""
        self._put(name, value, request_of(self.request_ids, idx), "count", dimensions)

    def add_time(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "ms",
        dimensions: list[Dimension] | None = None,
    ) -> None:
        """Add a duration in ms or s; ValueError for any other unit."""
        if unit not in {"ms", "s"}:
            raise ValueError("a duration is measured in 'ms' or 's'")
        self._put(name, value, request_of(self.request_ids, idx), unit, dimensions)

    def add_size(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "MB",
        dimensions: list[Dimension] | None = None,
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
