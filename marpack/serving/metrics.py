"""The server's metrics: its own and its handlers', with the original's names, types and labels."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from marpack.errors import ProjectError
from marpack.serving.metric_families import (
    MOST_SAMPLES,
    Family,
    LoggedFamily,
    MetricLine,
    Sample,
    Unkept,
    parse_line,
    split_line,
    unshowable,
)
from marpack.torchserve.server_metrics import MODEL_METRICS, SERVER_METRICS, Declared, Section, handlers_metric

MOST_DETECTED = 100  # families that no file declares
_LEGACY = ("ts_inference_requests_total", "ts_inference_latency_microseconds", "ts_queue_latency_microseconds")


class MetricsMode(StrEnum):
    """What `metrics_mode` names: all logged, all shown, or only requests and their latencies shown, others logged."""

    LOG = "log"
    PROMETHEUS = "prometheus"
    LEGACY = "legacy"


class ServerMetrics:
    """All metrics of one server. Not for threads: one event loop owns it.

    Args:
        hostname: What the server's own metrics are labelled with; a handler's lines bring theirs along.
        mode: Whether values are kept to be shown, or written.
        declared: The metrics that there are; see `declared_metrics`.
        auto_detect: Whether what a handler's lines name without declaration is shown, too.
        write: What takes the lines of metrics that are logged; without it they are lost.

    Raises ProjectError for a declared metric that Prometheus cannot read, if it is to be shown.
    """

    def __init__(
        self,
        *,
        hostname: str,
        mode: MetricsMode = MetricsMode.PROMETHEUS,
        declared: Sequence[Declared] = SERVER_METRICS + MODEL_METRICS,
        auto_detect: bool = False,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._mode = mode
        self._write = write
        self._auto_detect = auto_detect
        self._host = ("Host", hostname)
        self._unkept, self._undeclared = Unkept(), Unkept()
        self._taken: dict[tuple[str, str], Sample] = {}
        self._families: dict[Section, dict[str, Family | LoggedFamily]] = {section: {} for section in Section}
        self._detected = 0
        for metric in declared:
            self._declare(metric)
        self._answers = [self.bind(f"Requests{hundreds}XX", *self._host) for hundreds in "245"]

    @property
    def dropped(self) -> int:
        """How many values came to no sample, since their family has as many as it may."""
        return self._unkept.count

    def bind(self, name: str, *values: str) -> Sample:
        """Return the sample of one of the server's own metrics; one that forgets what is not declared so."""
        family = self._families[Section.SERVER].get(name)
        return (family and family.bind(values)) or self._undeclared

    def count_answer(self, status: int) -> None:
        """Count an answer of any port; 1xx and 3xx count as 5xx do, which is the original's way."""
        hundreds = status // 100
        self._answers[0 if hundreds == 2 else 1 if hundreds == 4 else 2].put(1.0)

    def of(self, model: str, version: str) -> "ModelMetrics":
        """Return what counts the requests of one version of a model."""
        return ModelMetrics(self, model, version, self._host)

    def system(self, sample: Mapping[str, float]) -> None:
        """Set the machine's metrics, of which `sample_system` makes a sample."""
        for name, value in sample.items():
            self.bind(name, *self._host).put(value)

    def take(self, line: str) -> None:
        """Take a value that a handler told in a line, without its mark in front; a malformed line is ignored."""
        parts = split_line(line)
        if parts is None:
            return
        name, number, about, tail = parts
        try:
            value = float(number)
        except ValueError:
            return
        if not math.isfinite(value):
            return
        if self._mode is not MetricsMode.PROMETHEUS:
            self._log(parse_line(name, about, tail), value)
            return
        sample = self._taken.get((name, about))
        (self._sample(name, about) if sample is None else sample).put(value)

    def exposition(self, names: Collection[str] = ()) -> bytes:
        """Return what Prometheus reads; of the samples with these names alone, if there are any."""
        wanted = frozenset(names)
        families = [family for found in self._families.values() for family in found.values()]
        text = "".join(family.text(wanted) for family in families if isinstance(family, Family))
        return text.encode(errors="replace")  # a handler's label may hold bytes that were no UTF-8

    def _declare(self, metric: Declared) -> None:
        own = self._families[metric.section]
        if self._shows(metric):
            problem = self._problem(metric)
            if problem is not None:
                raise ProjectError(
                    f"Prometheus cannot read the metric {metric.name}: {problem}",
                    where=f"metrics_config: {metric.section}.{metric.kind.value}",
                    hint="rename it in the file and in the handler, or set metrics_mode=log",
                    code="invalid-metric",
                )
            own[metric.name] = Family(metric, self._unkept)
        elif self._write is not None:
            own[metric.name] = LoggedFamily(metric, self._write)

    def _shows(self, metric: Declared) -> bool:
        if self._mode is MetricsMode.LEGACY:
            return metric.section is Section.SERVER and metric.name in _LEGACY
        return self._mode is MetricsMode.PROMETHEUS

    def _problem(self, metric: Declared) -> str | None:
        if any(metric.name in found for found in self._families.values()):
            return "another metric has its name"
        return unshowable(metric)

    def _sample(self, name: str, about: str) -> Sample:
        """Return where the values of such lines go, and keep it: the next line is nearly always a known one."""
        line = parse_line(name, about)
        family = self._handlers_family(line) if line else None
        sample = (line and family and family.bind(line.values)) or self._undeclared
        if len(self._taken) >= MOST_SAMPLES:
            self._taken.clear()
        return self._taken.setdefault((name, about), sample)

    def _log(self, line: MetricLine | None, value: float) -> None:
        family = self._handlers_family(line) if line else None
        if line and isinstance(family, LoggedFamily):
            family.log(line.values, value, line.request)

    def _handlers_family(self, line: MetricLine) -> Family | LoggedFamily | None:
        known = self._families[Section.MODELS]
        found = known.get(line.name)
        if found is not None or not self._auto_detect or self._detected >= MOST_DETECTED:
            return found
        metric = handlers_metric(line.kind, line.name, line.unit, line.names)
        if self._shows(metric) and self._problem(metric) is not None:
            return None
        self._detected += 1
        self._declare(metric)
        return known.get(line.name)


class ModelMetrics:
    """What is counted of one version of a model, each sample found once; labels tell whether the path named it."""

    def __init__(self, metrics: ServerMetrics, model: str, version: str, host: tuple[str, str]) -> None:
        self._metrics = metrics
        self._host = host
        self._requests, self._latency, self._queue = (
            [metrics.bind(name, model, label, host[-1]) for label in ("default", version)] for name in _LEGACY
        )
        self._queue_time = metrics.bind("QueueTime", *host)
        self._thread_time = metrics.bind("WorkerThreadTime", *host)

    def requested(self, named_version: bool) -> None:
        """Count a request that found the model, whatever becomes of it."""
        self._requests[named_version].put(1.0)

    def answered(self, named_version: bool, latency_us: float, queue_us: float) -> None:
        """Add an answered request's time, in all and waiting, in microseconds; a failed one's is not counted."""
        self._latency[named_version].put(latency_us)
        self._queue[named_version].put(queue_us)

    def queued(self, milliseconds: float) -> None:
        """Set how long the request that was answered last had waited."""
        self._queue_time.put(milliseconds)

    def worker_thread(self, milliseconds: float) -> None:
        """Set how long the batch that was answered last took on its way, apart from the worker's own time."""
        self._thread_time.put(milliseconds)

    def loaded(self, worker_name: str, milliseconds: float) -> None:
        """Set how long a worker, such as W-9000-digits_1.0, took to load the model."""
        self._metrics.bind("WorkerLoadTime", worker_name, *self._host).put(milliseconds)
