"""A family of metrics and its samples, and the lines that metrics are told and logged in."""

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from msgspec import Struct

from marpack.torchserve.metrics import MetricTypes
from marpack.torchserve.server_metrics import Declared

_HOST, _TYPE = "hostname:", "type:"
_KINDS = MetricTypes.__members__


class MetricLine(Struct, frozen=True, kw_only=True):
    """What a worker's line says of a metric, apart from its value."""

    name: str
    unit: str
    kind: MetricTypes
    names: tuple[str, ...]  # of its dimensions
    values: tuple[str, ...]  # of its dimensions, and last the host's name
    request: str = ""


def split_line(line: str) -> tuple[str, str, str, str] | None:
    """Return a line's name with unit, its value, its dimensions with type and host, and its time and request.

    The line is `NAME.UNIT:VALUE|#DIMENSION:VALUE,…|#type:TYPE|#hostname:HOST,SECONDS,REQUEST`. All but the second and
    the last are the same in every line of one sample. None if it is no such line.
    """
    head, _, rest = line.partition("|#")
    name, _, value = head.rpartition(":")
    host = rest.find("|#" + _HOST)
    end = rest.find(",", host)
    if host < 0 or end < 0:
        return None
    return name, value, rest[:end], rest[end + 1 :]


def parse_line(name: str, about: str, tail: str = "") -> MetricLine | None:
    """Return what the parts of a line say, as `split_line` has them; None if they are malformed.

    A dimension that is no pair, for a colon in its value too, is passed over, as the original does.
    """
    metric, _, unit = name.strip().rpartition(".")
    dimensions, *kinds, host = about.split("|#")  # its type is missing in the lines of old workers
    kind = _KINDS.get(kinds[0].removeprefix(_TYPE)) if kinds else MetricTypes.COUNTER
    host = host.removeprefix(_HOST)
    if not metric or not host or kind is None or len(kinds) > 1:
        return None
    pairs = [pair for pair in (part.split(":") for part in dimensions.split(",")) if len(pair) == 2]
    return MetricLine(
        name=metric,
        unit=unit,
        kind=kind,
        names=tuple(key for key, _ in pairs),
        values=(*(value for _, value in pairs), host),
        request=tail.partition(",")[2],
    )


def log_line(declared: Declared, values: Sequence[str], value: float, request: str = "") -> str:
    """Return one value as the original's ts_metrics.log and model_metrics.log have it, without the time in front.

    The last of the values is the host's name.
    """
    dimensions = ",".join(map(":".join, zip(declared.labels, values[:-1], strict=False)))
    asked = f",requestID:{request}" if request else ""
    return (
        f"{declared.name}.{declared.unit}:{float(value)}|#{dimensions}|#hostname:{values[-1]}{asked}"
        f",timestamp:{int(time.time())}"
    )


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SAMPLES = 10_000  # of one family: a handler may well make a dimension of what differs in every request

# The original's client library has these for every histogram, whatever its unit.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Sample(Protocol):
    """What a value is put into."""

    def put(self, value: float) -> None:
        """Take one value."""


class Unkept:
    """Takes the values that are shown nowhere, and counts them."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def put(self, value: float) -> None:  # noqa: ARG002 - a sample as any other
        """Forget a value."""
        self.count += 1


class Counter:
    """A sum; what would lessen it is passed over."""

    __slots__ = ("labels", "seen", "value")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.value = 0.0
        self.seen = False

    def put(self, value: float) -> None:
        """Add a value."""
        if value >= 0:
            self.value += value
            self.seen = True

    def rows(self, name: str) -> Iterator[tuple[str, str, float]]:
        """Yield name, labels and value of what is shown: nothing before the first value."""
        if self.seen:
            yield name, self.labels, self.value


class Gauge(Counter):
    """The value that came last."""

    __slots__ = ()

    def put(self, value: float) -> None:
        """Replace the value."""
        self.value = value
        self.seen = True


class Histogram:
    """How many values came up to each bound, all of them and their sum."""

    __slots__ = ("counts", "labels", "total")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def put(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(_BOUNDS, value)] += 1
        self.total += value

    def rows(self, name: str) -> Iterator[tuple[str, str, float]]:
        """Yield name, labels and value of what is shown: nothing before the first value."""
        *upto, count = accumulate(self.counts)
        if not count:
            return
        for bound, number in zip(_BOUNDS, upto, strict=True):
            yield f"{name}_bucket", f'{self.labels}le="{bound}",', float(number)
        yield f"{name}_bucket", f'{self.labels}le="+Inf",', float(count)
        yield f"{name}_count", self.labels, float(count)
        yield f"{name}_sum", self.labels, self.total


_TYPES: dict[MetricTypes, type[Counter] | type[Histogram]] = {
    MetricTypes.COUNTER: Counter,
    MetricTypes.GAUGE: Gauge,
    MetricTypes.HISTOGRAM: Histogram,
}


class Family:
    """The samples of one metric as Prometheus reads them; at most MOST_SAMPLES, later ones go to `unkept`."""

    def __init__(self, declared: Declared, unkept: Unkept) -> None:
        self.declared = declared
        self._unkept = unkept
        self._samples: dict[tuple[str, ...], Counter | Histogram] = {}

    def bind(self, values: tuple[str, ...]) -> Sample | None:
        """Return the sample with these values of the labels; None if there are more labels or fewer."""
        found = self._samples.get(values)
        if found is not None:
            return found
        if len(values) != len(self.declared.labels):
            return None
        if len(self._samples) >= MOST_SAMPLES:
            return self._unkept
        pairs = zip(self.declared.labels, values, strict=True)
        labels = "".join(f'{name}="{value.translate(_ESCAPES)}",' for name, value in pairs)
        return self._samples.setdefault(values, _TYPES[self.declared.kind](labels))

    def text(self, names: Collection[str]) -> str:
        """Return the exposition: of the samples with these names alone, or without names of all, even if there is none.

        A histogram's samples have names of their own: `X_bucket`, `X_count`, `X_sum`.
        """
        name, kind = self.declared.name, self.declared.kind.value
        rows = "".join(
            f"{row}{{{labels}}} {float(value)}\n"
            for sample in self._samples.values()
            for row, labels, value in sample.rows(name)
            if not names or row in names
        )
        if names and not rows:
            return ""
        unit = self.declared.unit.translate(_HELP_ESCAPES)
        return f"# HELP {name} Torchserve prometheus {kind} metric with unit: {unit}\n# TYPE {name} {kind}\n{rows}"


class LoggedFamily:
    """A metric of which each value is written as a line, and nothing is kept."""

    def __init__(self, declared: Declared, write: Callable[[str], None]) -> None:
        self.declared = declared
        self._write = write

    def bind(self, values: tuple[str, ...]) -> Sample | None:
        """Return what writes values with these values of the dimensions."""
        return LoggedSample(self, values)

    def log(self, values: tuple[str, ...], value: float, request: str = "") -> None:
        """Write one value, of a request where its id is given."""
        self._write(log_line(self.declared, values, value, request))


class LoggedSample:
    """Writes each value as a line."""

    __slots__ = ("_family", "_values")

    def __init__(self, family: LoggedFamily, values: tuple[str, ...]) -> None:
        self._family = family
        self._values = values

    def put(self, value: float) -> None:
        """Write a value."""
        self._family.log(self._values, value)


def unshowable(declared: Declared) -> str | None:
    """Say why Prometheus could not read this metric; None if it can."""
    if not _NAME.fullmatch(declared.name):
        return "its name has other characters than letters, digits, _ and :, or begins with a digit"
    wrong = next((label for label in declared.labels if not _LABEL.fullmatch(label)), None)
    if wrong is not None:
        return f"its dimension {wrong} has other characters than letters, digits and _, or begins with a digit or __"
    if declared.kind is MetricTypes.HISTOGRAM and "le" in declared.labels:
        return "le is a label of every histogram's own"
    return "a dimension is there twice" if len(set(declared.labels)) < len(declared.labels) else None
