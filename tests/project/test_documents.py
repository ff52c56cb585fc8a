"""YAML in: bounded, without surprises, and never a traceback."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from marpack.errors import ProjectError
from marpack.inspection.yaml_document import MAX_BYTES
from marpack.project.load import parse_document, read_document

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


@given(plain)
def test_plain_values_come_back_as_they_went_in(value: object) -> None:
    text = yaml.safe_dump(value)
    assert parse_document(text, file="f").value == value


@given(st.text(alphabet="ab:-[]{}&*!|>\"'#?, \n\t\x00é%@`01.~<=", max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    error = None
    try:
        parse_document(text, file="f")
    except ProjectError as raised:
        error = raised
    assert error is None or ((error.where or "").startswith("f") and "\n" not in error.what)


def test_lines_and_texts_belong_to_their_keys() -> None:
    document = parse_document("a: 1.10\nb:\n  - x\n  - c: 2020-01-01\n    d: {e: no}\n", file="f")
    assert document.lines == {"a": 1, "b": 2, "b[0]": 3, "b[1]": 4, "b[1].c": 4, "b[1].d": 5, "b[1].d.e": 5}
    assert document.texts == {"a": "1.10", "b[0]": "x", "b[1].c": "2020-01-01", "b[1].d.e": "no"}


_TENFOLD = "[{0},{0},{0},{0},{0},{0},{0},{0},{0},{0}]"
BOMB = "a0: &a0 1\n" + "".join(f"a{n}: &a{n} {_TENFOLD.format(f'*a{n - 1}')}\n" for n in range(1, 9))

REFUSED = {
    "bomb": (BOMB, 6, "50,000"),
    "self": ("a: 1\nb: &b [1, *b]\n", 2, "*b"),
    "deep": ("a: " + "[" * 100, 1, "64"),
    "twice": ("a: 1\nb: 2\na: 3\n", 3, "line is 1"),
    "object": ("a: !!python/object/apply:os.system [id]", 1, "python/object/apply:os.system"),
    "two documents": ("a: 1\n---\nb: 1\n", 2, "document"),
    "undefined alias": ("a: *b\n", 1, "alias"),
}


@pytest.mark.parametrize(("text", "line", "word"), REFUSED.values(), ids=REFUSED)
def test_refuses_what_no_project_needs(text: str, line: int, word: str) -> None:
    with pytest.raises(ProjectError) as caught:
        parse_document(text, file="f")
    assert caught.value.where == f"f:{line}"
    assert word in caught.value.what


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ("a:\n\tb: 1\n", "f:2", "indent with spaces: YAML does not allow tabs"),
        ("a: [1\n\tb: 1\n", "f:2", "indent with spaces: YAML does not allow tabs"),
        ("a: b: c\t\n\td", "f:1", "correct this line, or the one before it"),  # it stands where it may
        ("a: 1\nb: [1\n", "f:2", "close the list that is opened here: [a, b]"),
        ("a: {b: c\nd: e\n", "f:1", "close the mapping that is opened here: {a: b}"),
        ('a: "b\nc: d\ne: f\n', "f:1", "close the quotation mark that is opened here"),
        ("a: 1\nb\nc: 2\n", "f:2", "a key is followed by a colon and a space: 'key: value'"),
    ],
)
def test_what_is_never_ended_is_told_where_it_begins(text: str, where: str, hint: str | None) -> None:
    with pytest.raises(ProjectError) as caught:
        parse_document(text, file="f")
    assert (caught.value.where, caught.value.hint) == (where, hint)


def test_aliases_and_merges_are_taken_when_they_stay_small() -> None:
    document = parse_document("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n", file="f")
    assert document.value == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]}


def test_refuses_a_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"#" * MAX_BYTES)
    assert read_document(tmp_path / "f.yaml").value is None
    (tmp_path / "f.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ProjectError, match="larger than 1024 KiB"):
        read_document(tmp_path / "f.yaml")


@pytest.mark.parametrize("data", [b"a: \xff\xfe", b"a: \x00", bytes(range(256))])
def test_refuses_bytes_that_are_no_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f.yaml").write_bytes(data)
    with pytest.raises(ProjectError) as caught:
        read_document(tmp_path / "f.yaml")
    assert caught.value.code == "not-utf8"
