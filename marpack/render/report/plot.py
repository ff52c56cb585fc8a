"""Stage times as a plot: how they spread, and how they went over the run, in memory that stays flat."""

from collections.abc import Iterable, Mapping
from html import escape

from marpack.runner.results import Spread

_MOST = 240  # columns of the course
_WIDTH, _ROW, _LEFT, _RIGHT = 440, 24, 90, 150
_HEAD = 16  # height of the columns' names
_COURSE = 110  # height


class Course:
    """A stream of numbers in as many columns as can be seen; each column keeps its mean and its most."""

    def __init__(self) -> None:
        self._columns: list[tuple[float, float, int]] = []  # sum, most, count
        self._stride = 1  # numbers in a full column

    def add(self, value: float) -> None:
        """Take one number in."""
        if self._columns and self._columns[-1][2] < self._stride:
            total, most, count = self._columns[-1]
            self._columns[-1] = total + value, max(most, value), count + 1
            return
        if len(self._columns) == _MOST:
            self._halve()
        self._columns.append((value, value, 1))

    def _halve(self) -> None:
        pairs = zip(self._columns[::2], self._columns[1::2], strict=True)
        self._columns = [(one[0] + two[0], max(one[1], two[1]), one[2] + two[2]) for one, two in pairs]
        self._stride *= 2

    @property
    def merged(self) -> bool:
        """Whether a column stands for more than one number."""
        return self._stride > 1

    def points(self) -> list[tuple[float, float]]:
        """Return mean and most of each column."""
        return [(total / count, most) for total, most, count in self._columns]


def stage_plot(stages: Mapping[str, Spread], course: Course) -> str:
    """Return an SVG of each stage's percentiles, and of how long the inputs took one after the other."""
    if not stages:
        return "<p>No input reached the handler.</p>"
    points = course.points()
    height = _HEAD + _ROW * len(stages) + (_COURSE + 36 if len(points) > 1 else 4)
    lines = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="milliseconds per stage">']
    lines += _spreads(stages)
    if len(points) > 1:
        lines += _course(points, _HEAD + _ROW * len(stages) + 14, merged=course.merged)
    return "\n".join([*lines, "</svg>"])


def _spreads(stages: Mapping[str, Spread]) -> Iterable[str]:
    room = _WIDTH - _LEFT - _RIGHT
    longest = max(spread.p99 for spread in stages.values()) or 1
    yield f'<text x="{_WIDTH}" y="10" text-anchor="end">p50 · p90 · p99</text>'
    for row, (stage, spread) in enumerate(stages.items()):
        middle = _HEAD + row * _ROW + _ROW / 2
        half, most = room * spread.p50 / longest, room * spread.p99 / longest
        told = " · ".join(_milliseconds(value) for value in (spread.p50, spread.p90, spread.p99))
        yield f'<text x="0" y="{middle + 4}">{escape(stage)}</text>'
        yield f'<rect class="s{row % 6}" x="{_LEFT}" y="{middle - 6}" width="{max(half, 1):.1f}" height="12" rx="2"/>'
        yield (
            f'<rect class="s{row % 6}" x="{_LEFT}" y="{middle - 1.5}" width="{max(most, 1):.1f}" height="3"'
            f' opacity=".55"><title>p50 · p90 · p99: {told} ms</title></rect>'
        )
        yield f'<text x="{_WIDTH}" y="{middle + 4}" text-anchor="end">{told} ms</text>'


def _course(points: list[tuple[float, float]], top: float, *, merged: bool) -> Iterable[str]:
    longest = max(most for _, most in points) or 1
    step = _WIDTH / len(points)
    base = top + _COURSE
    yield f'<text x="0" y="{top - 1}">each input in turn, up to {_milliseconds(longest)} ms</text>'
    for column, (mean, most) in enumerate(points):
        for value, opacity in ((most, ".35"), (mean, "1")):
            height = max((_COURSE - 8) * value / longest, 0.5)
            yield (
                f'<rect class="s0" x="{column * step:.2f}" y="{base - height:.1f}" width="{max(step - 0.4, 0.4):.2f}"'
                f' height="{height:.1f}" opacity="{opacity}"/>'
            )
    yield f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{base}" y2="{base}"/>'
    if merged:
        yield f'<text x="0" y="{base + 14}">bright: the mean, pale: the slowest</text>'


def _milliseconds(milliseconds: float) -> str:
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 1 else 2}f}"
