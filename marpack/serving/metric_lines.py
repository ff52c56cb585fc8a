"""Metrics as lines of text: those that workers print are read, those of a metrics log are written."""

import time
from collections.abc import Sequence

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
