"""What errors are worded with: the name that was meant, and one line of what another error says."""

import pytest

from marpack.errors import did_you_mean, first_line, nearest, shortened


def test_the_nearest_name_is_what_was_meant() -> None:
    assert nearest("biuld", ["inspect", "build", "run"]) == "build"
    assert nearest("serve", ["inspect", "build"]) is None
    assert did_you_mean("biuld", ["build"]) == "did you mean build?"
    assert did_you_mean("biuld", []) is None


def test_what_no_hand_has_written_costs_nothing() -> None:
    assert nearest("x" * 100_000, ["x" * 100_000]) is None
    assert nearest("name", [*(str(number) for number in range(500)), "names"]) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb", "a"), ("\n  a  b\n", "a b"), ("", "ValueError"), ("x" * 300, "x" * 199 + "…")],
)
def test_the_first_line_says_what_went_wrong(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line


def test_a_text_is_shortened_to_one_line() -> None:
    assert shortened("a\n b", 4) == "a b"
    assert shortened("abcde", 4) == "abc…"
