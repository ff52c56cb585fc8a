"""The server's metrics and its handlers', with TorchServe's names, types and labels: shown to Prometheus, or logged."""

import asyncio
import logging
import math
import re
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from marpack.errors import ProjectError
from marpack.serving.settings import MetricsMode
from marpack.torchserve.metrics import MODEL_METRICS, SERVER_METRICS, Declared, MetricTypes, Section, handlers_metric

_LOG = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_LINE = 2048  # characters of a handler's line: it may repeat texts of clients
MAX_SAMPLES = 10_000  # of one family: a handler may use a different label in every request
_BLOCK = 200  # samples that are written before other requests get their turn
MAX_DETECTED = 100  # families that no file declares
_LEGACY = ("ts_inference_requests_total", "ts_inference_latency_microseconds", "ts_queue_latency_microseconds")

_HOST, _TYPE = "hostname:", "type:"
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)  # of all histograms
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class MetricLogged(Struct, frozen=True, tag_field="event", tag="metric"):
    """The log event of a metric's value."""

    line: str  # as in TorchServe's ts_metrics.log and model_metrics.log, without the time in front


class _LoggedSample:
    """Logs each value."""

    __slots__ = ("_declared", "_values")

    def __init__(self, declared: Declared, values: Sequence[str]) -> None:
        self._declared = declared
        self._values = values

    def put(self, value: float, request: str = "") -> None:
        """Log a value, with the id of its request if there is one."""
        if not _LOG.isEnabledFor(logging.INFO):
            return
        metric, (*values, host) = self._declared, self._values
        labels = ",".join(map(":".join, zip(metric.labels, values, strict=False)))
        origin = f"{host},requestID:{request}" if request else host
        moment = int(time.time())
        line = f"{metric.name}.{metric.unit}:{float(value)}|#{labels}|#hostname:{origin},timestamp:{moment}"
        _LOG.info(MetricLogged(line))


class _Number:
    """The sum of a counter's values, except negative ones; or a gauge's latest value."""

    __slots__ = ("is_sum", "labels", "value")

    def __init__(self, labels: str, *, is_sum: bool) -> None:
        self.labels = labels
        self.is_sum = is_sum
        self.value: float | None = None

    def put(self, value: float, _: str = "") -> None:
        """Add or replace the value."""
        if not self.is_sum:
            self.value = value
        elif value >= 0:
            self.value = (self.value or 0.0) + value

    def rows(self, name: str) -> Iterator[tuple[str, str, float]]:
        """Yield name, labels and value, once there is one."""
        if self.value is not None:
            yield name, self.labels, self.value


class _Histogram:
    """The number of values up to each bound, of all, and their sum."""

    __slots__ = ("counts", "labels", "total")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def put(self, value: float, _: str = "") -> None:
        """Count a value."""
        self.counts[bisect_left(_BOUNDS, value)] += 1
        self.total += value

    def rows(self, name: str) -> Iterator[tuple[str, str, float]]:
        """Yield name, labels and value of each bucket, of the count and of the sum, once there is a value."""
        *upto, count = accumulate(self.counts)
        if not count:
            return
        for bound, number in zip((*_BOUNDS, "+Inf"), (*upto, count), strict=True):
            yield f"{name}_bucket", f'{self.labels}le="{bound}",', float(number)
        yield f"{name}_count", self.labels, float(count)
        yield f"{name}_sum", self.labels, self.total


Sample = _LoggedSample | _Number | _Histogram
_IGNORED = _Number("", is_sum=False)  # of metrics that are not declared, and of too many samples


class _Family:
    """One metric with its samples, at most MAX_SAMPLES."""

    def __init__(self, declared: Declared, *, is_shown: bool) -> None:
        self.declared = declared
        self.is_shown = is_shown  # otherwise, its values are logged
        self._samples: dict[tuple[str, ...], _Number | _Histogram] = {}

    def bind(self, values: tuple[str, ...]) -> Sample:
        """Return the sample with these label values; one that ignores its values if their number is wrong."""
        if not self.is_shown:
            return _LoggedSample(self.declared, values)
        found = self._samples.get(values)
        if found is not None:
            return found
        if len(values) != len(self.declared.labels) or len(self._samples) >= MAX_SAMPLES:
            return _IGNORED
        pairs = zip(self.declared.labels, values, strict=True)
        labels = "".join(f'{name}="{value.translate(_ESCAPES)}",' for name, value in pairs)
        kind = self.declared.kind
        is_histogram = kind is MetricTypes.HISTOGRAM
        sample = _Histogram(labels) if is_histogram else _Number(labels, is_sum=kind is MetricTypes.COUNTER)
        return self._samples.setdefault(values, sample)

    async def text(self, names: Collection[str]) -> str:
        """Return the exposition: samples with these names, or all without names. Requests are served meanwhile.

        A histogram's samples have names of their own: `X_bucket`, `X_count`, `X_sum`.
        """
        name, kind, rows = self.declared.name, self.declared.kind.value, list[str]()
        samples = tuple(self._samples.values())  # further ones may come meanwhile
        for start in range(0, len(samples), _BLOCK):
            block = samples[start : start + _BLOCK]
            found = (row for sample in block for row in sample.rows(name) if not names or row[0] in names)
            rows += [f"{row}{{{labels}}} {float(value)}\n" for row, labels, value in found]
            await asyncio.sleep(0)
        if not self.is_shown or (names and not rows):
            return ""
        unit = self.declared.unit.translate(_HELP_ESCAPES)
        about = f"# HELP {name} Torchserve prometheus {kind} metric with unit: {unit}\n# TYPE {name} {kind}\n"
        return about + "".join(rows)


class ServerMetrics:
    """All metrics of one server, owned by its event loop.

    Values are shown or logged, as the mode says. The host's name is a label of the server's own metrics; handlers'
    lines have their own. With `auto_detect`, metrics that only a handler's line names also count. Raises ProjectError
    for a declared metric to show that Prometheus cannot read.
    """

    def __init__(
        self,
        *,
        hostname: str,
        mode: MetricsMode = MetricsMode.PROMETHEUS,
        declared: Sequence[Declared] = SERVER_METRICS + MODEL_METRICS,
        auto_detect: bool = False,
    ) -> None:
        self._mode = mode
        self._auto_detect = auto_detect
        self.host = ("Host", hostname)  # labels of the server's own metrics
        self._taken: dict[tuple[str, str], Sample] = {}
        self._families: dict[Section, dict[str, _Family]] = {section: {} for section in Section}
        self._detected = 0
        for metric in declared:
            problem = self._problem(metric)
            if problem is not None:
                raise ProjectError(
                    f"Prometheus cannot read the metric {metric.name}: {problem}",
                    where=f"metrics_config: {metric.section}.{metric.kind.value}",
                    hint="Rename the metric in the file and in the handler, or set metrics_mode=log.",
                    code="invalid-metric",
                )
            self._families[metric.section][metric.name] = _Family(metric, is_shown=self._shows(metric))
        self._answers = [self.bind(f"Requests{hundreds}XX", *self.host) for hundreds in "245"]

    def bind(self, name: str, *values: str) -> Sample:
        """Return the sample of one of the server's own metrics; one that ignores values if it is not declared so."""
        family = self._families[Section.SERVER].get(name)
        return family.bind(values) if family else _IGNORED

    def count_response(self, status: int) -> None:
        """Count a response of any port; as on TorchServe, 1xx and 3xx count as 5xx."""
        hundreds = status // 100
        self._answers[0 if hundreds == 2 else 1 if hundreds == 4 else 2].put(1.0)

    def take(self, line: str) -> None:
        """Take a value from a handler's line without its mark; ignore a malformed or very long line.

        The line is `NAME.UNIT:VALUE|#DIMENSION:VALUE,…|#type:TYPE|#hostname:HOST,SECONDS,REQUEST`.
        """
        head, _, rest = line.partition("|#")
        name, _, number = head.rpartition(":")
        host = rest.find("|#" + _HOST)
        end = rest.find(",", host) if host >= 0 else -1
        try:
            value = float(number)
        except ValueError:
            return
        if end < 0 or not math.isfinite(value) or len(line) > _MAX_LINE:
            return
        about = rest[:end]  # the same in every line of one sample
        sample = self._taken.get((name, about))
        if sample is None:
            sample = self._handlers_sample(name, about)
            if len(self._taken) >= MAX_SAMPLES:
                self._taken.clear()
            self._taken[name, about] = sample
        sample.put(value, "" if self._mode is MetricsMode.PROMETHEUS else rest[end + 1 :].partition(",")[2])

    async def exposition(self, names: Collection[str] = ()) -> bytes:
        """Return Prometheus' text of all samples, or of those with certain names."""
        wanted = frozenset(names)
        families = [family for section in self._families.values() for family in section.values()]
        # Encoded one by one, not to delay requests; a handler's label may contain bytes that were not UTF-8.
        return b"".join([(await family.text(wanted)).encode(errors="replace") for family in families])

    def _shows(self, metric: Declared) -> bool:
        if self._mode is MetricsMode.LEGACY:
            return metric.section is Section.SERVER and metric.name in _LEGACY
        return self._mode is MetricsMode.PROMETHEUS

    def _problem(self, metric: Declared) -> str | None:
        """Return why a metric cannot be shown; None if it can, or if its values are logged."""
        if not self._shows(metric):
            return None
        if any(metric.name in families for families in self._families.values()):
            return "another metric has its name"
        if not _NAME.fullmatch(metric.name):
            return "its name has other characters than letters, digits, _ and :, or begins with a digit"
        wrong = next((label for label in metric.labels if not _LABEL.fullmatch(label)), None)
        if wrong is not None:
            return (
                f"its dimension {wrong} has other characters than letters, digits and _, or begins with a digit or __"
            )
        if metric.kind is MetricTypes.HISTOGRAM and "le" in metric.labels:
            return "every histogram has its own label le"
        return "it has a dimension twice" if len(set(metric.labels)) < len(metric.labels) else None

    def _handlers_sample(self, name: str, about: str) -> Sample:
        """Return the sample of a handler's line, after declaring its metric if it is to be detected.

        `name` is the metric's name with its unit; `about` has the dimensions, the type, which old workers' lines lack,
        and the host. As on TorchServe, a dimension without a value, or with a colon in it, is ignored.
        """
        metric_name, _, unit = name.strip().rpartition(".")
        dimensions, *kinds, host = about.split("|#")
        kind = MetricTypes.__members__.get(kinds[0].removeprefix(_TYPE)) if kinds else MetricTypes.COUNTER
        host = host.removeprefix(_HOST)
        if not metric_name or not host or kind is None or len(kinds) > 1:
            return _IGNORED
        pairs = [pair for pair in (part.split(":") for part in dimensions.split(",")) if len(pair) == 2]
        families = self._families[Section.MODELS]
        family = families.get(metric_name)
        if family is None:
            metric = handlers_metric(kind, metric_name, unit, tuple(key for key, _ in pairs))
            if not self._auto_detect or self._detected >= MAX_DETECTED or self._problem(metric) is not None:
                return _IGNORED
            self._detected += 1
            family = families[metric_name] = _Family(metric, is_shown=self._shows(metric))
        return family.bind((*(value for _, value in pairs), host))


class ModelMetrics:
    """The metrics of one version of a model; a label says whether the request named the version."""

    def __init__(self, metrics: ServerMetrics, model: str, version: str) -> None:
        host = metrics.host
        self._requests, self._latency, self._queue = (
            [metrics.bind(name, model, label, host[-1]) for label in ("default", version)] for name in _LEGACY
        )
        self._queue_time = metrics.bind("QueueTime", *host)
        self._thread_time = metrics.bind("WorkerThreadTime", *host)

    def count_request(self, *, named_version: bool) -> None:
        """Count a request that found the model, also if it fails."""
        self._requests[named_version].put(1.0)

    def count_response(self, total_ms: float, queue_ms: float, handler_ms: float, *, named_version: bool) -> None:
        """Add the times of a successful request: in all, in the queue, and in the worker."""
        self._latency[named_version].put(total_ms * 1000)
        self._queue[named_version].put(queue_ms * 1000)
        self._queue_time.put(queue_ms)
        self._thread_time.put(max(0.0, total_ms - queue_ms - handler_ms))
