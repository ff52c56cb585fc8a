"""What several commands take, as it is typed: sizes, seconds, tolerances, limits."""

import click
import pytest

from marpack.api.options import LimitOptions
from marpack.cli.options import command, header, seconds, size, tolerance
from marpack.errors import UsageError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("2K", 2 << 10),
        ("300m", 300 << 20),
        ("1.5 G", 3 << 29),
        ("2KiB", 2 << 10),
        ("4194304T", 1 << 62),  # as much as there can be
    ],
)
def test_a_size_is_a_number_of_bytes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["4194305T", "0", "0.9", "1P", "-1", ""])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        size(text)


def test_a_tolerance_is_a_distance() -> None:
    assert (tolerance("0"), tolerance("0.5"), tolerance(1e-3)) == (0, 0.5, 0.001)
    for text in ("-0.1", "nan", "much"):
        with pytest.raises(click.BadParameter):
            tolerance(text)


def test_seconds_end_where_timers_do() -> None:
    assert (seconds("0.5"), seconds("999999"), seconds("1000001"), seconds("inf")) == (0.5, 999_999, 1e6, 1e6)
    for text in ("0", "-1", "nan", "soon"):
        with pytest.raises(click.BadParameter):
            seconds(text)


def test_a_limit_is_one_at_least() -> None:
    @command(LimitOptions)
    def limited(options: LimitOptions) -> None:
        taken.append(options)

    taken: list[LimitOptions] = []
    limited.main(["--max-members", "1", "--max-size", "1", "--max-ratio", "1"], standalone_mode=False)
    assert taken == [LimitOptions(max_members=1, max_size=1, max_ratio=1)]
    for name in ("--max-members", "--max-size", "--max-ratio"):
        with pytest.raises(click.BadParameter):
            limited.main([name, "0"], standalone_mode=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("X-Trace=7", ("X-Trace", "7")), ("A=b=c", ("A", "b=c")), ("A=", ("A", "")), ("A: b=c", ("A", "b=c"))],
)
def test_a_header_is_split_at_its_first_separator(text: str, expected: tuple[str, str]) -> None:
    assert header(text) == expected


@pytest.mark.parametrize("text", ["", "A", "=b", ": b", "A b=c", "A=b\nc", "A=b\rc", "A=b\0c"])
def test_an_invalid_header_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        header(text)
