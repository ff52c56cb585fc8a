"""Text set in cells: what is padded, what is cut, and by how much."""

import click
import pytest

from marpack.render.layout import cells, fact, fit, heading, page_width, paragraph, rows, show_page


@pytest.mark.parametrize(("columns", "width"), [(10, 60), (59, 60), (61, 61), (159, 159), (161, 160)])
def test_a_page_is_as_wide_as_its_terminal_within_reason(monkeypatch: pytest.MonkeyPatch, columns: int, width: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert page_width() == width


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("漢字", 4), ("\uff21b", 3)]
)
def test_a_text_takes_as_many_cells_as_a_terminal_gives_it(text: str, count: int):
    assert cells(text) == count


@pytest.mark.parametrize(
    ("text", "fitted"),
    [
        ("abc", "abc  "),
        ("abcde", "abcde"),
        ("abcdef", "abcd…"),
        ("漢字", "漢字 "),
        ("漢字漢", "漢字…"),
        ("a漢字漢", "a漢… "),
    ],
)
def test_a_text_is_padded_or_cut_to_its_cells(text: str, fitted: str):
    assert fit(text, 5) == fitted


def test_numbers_stand_at_the_right():
    assert fit("12", 5, right=True) == "   12"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, ["a rather long name  1 kB  x", "b                   20 B"]),
        (27, ["a rather long name  1 kB  x", "b                   20 B"]),
        (26, ["a rather long na…  1 kB  x", "b                  20 B"]),
        (5, ["a rathe…  1 kB  x", "b         20 B"]),
    ],
)
def test_the_first_column_gives_way(width: int, lines: list[str]):
    assert rows([("a rather long name", "1 kB", "x"), ("b", "20 B", "")], width=width) == lines


def test_a_column_of_numbers_stands_at_the_right():
    assert rows([("name", "1"), ("b", "20")], width=80, right=frozenset({1})) == ["name       1", "b         20"]


def test_of_nothing_there_is_no_table():
    assert rows([], width=80) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ["  why    "]),
        ("one two three", ["  why    one two", "         three"]),
        ("a-b-c-d-e-f-g", ["  why    a-b-c-d-e-f", "         -g"]),
        ("tab\tand\x1b", ["  why    tab\\tand\\x1", "         b"]),
    ],
)
def test_a_paragraph_is_wrapped_under_itself(text: str, lines: list[str]):
    assert [click.unstyle(line) for line in paragraph("why", text, width=20)] == lines


def test_a_paragraph_of_wide_letters_is_no_wider():
    lines = [click.unstyle(line) for line in paragraph("why", "漢字" * 10, width=29)]
    assert lines == [f"  why    {'漢字' * 5}", f"         {'漢字' * 5}"]


def test_a_paragraph_has_room_for_a_word_at_any_width():
    lines = [click.unstyle(line) for line in paragraph("why", "one two three", width=1)]
    assert lines == ["  why    one two", "         three"]


def test_labels_and_headings_stand_out():
    assert fact("size", "1 kB") == click.style("size    ", dim=True) + "1 kB"
    assert heading("members") == click.style("members", bold=True)
    assert heading("members", "3") == click.style("members", bold=True) + "  3"
    assert next(paragraph("why", "so", width=80)).startswith(click.style("  why    ", dim=True))


@pytest.mark.parametrize("err", [False, True])
def test_a_page_goes_where_it_belongs(capsys: pytest.CaptureFixture[str], err: bool):
    show_page(["one", "two"], err=err)
    assert capsys.readouterr() == (("", "one\ntwo\n") if err else ("one\ntwo\n", ""))
