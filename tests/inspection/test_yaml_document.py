"""YAML as values that know their lines: what is wrong with a document is told, never raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.inspection.yaml_document import MAX_EXPANDED, RepeatedKey, YamlDocument, YamlFault, read_yaml

TEXTS = st.text(alphabet="ab1:-[]{}&*!<|>\"'#?, \n\t\x00%@~.", max_size=60)


@given(TEXTS, st.booleans(), st.booleans())
def test_nothing_is_raised(text: str, as_text: bool, as_server: bool) -> None:
    read = read_yaml(text, as_text=as_text, as_server=as_server)
    assert read.problem is None or (read.problem.reason and "\n" not in read.problem.reason)


@pytest.mark.parametrize(
    ("text", "fault", "line"),
    [
        ("a: [1", YamlFault.SYNTAX, None),
        ("a: 1\nb: !thing 2\n", YamlFault.VALUE, 2),
        ("? [a]\n: 1\n", YamlFault.VALUE, 1),
        ("a: 2024-13-45", YamlFault.SYNTAX, None),
        ("a: !!bool perhaps", YamlFault.SYNTAX, None),
        ("a: !!timestamp never", YamlFault.SYNTAX, None),
        ("a: !!int _", YamlFault.SYNTAX, None),
        ("a: &a [*a]", YamlFault.EXCESS, 1),
        ("a: &a [" + "1," * 200 + "]\nb: [" + "*a," * (MAX_EXPANDED // 200) + "]", YamlFault.EXCESS, 2),
        ("[" * 65 + "]" * 65, YamlFault.EXCESS, 1),
    ],
)
def test_says_what_kind_of_thing_is_wrong(text: str, fault: YamlFault, line: int | None) -> None:
    problem = read_yaml(text).problem
    assert problem is not None
    assert problem.fault is fault
    assert line in (None, problem.line)


def test_the_server_refuses_some_tabs() -> None:
    assert read_yaml("a:\t1\n").problem is None
    assert read_yaml("a:\t1\n", as_server=True).problem is not None


def test_measures_depth_and_aliases() -> None:
    read = read_yaml("a: &a [1]\nb: &b 2\nc: [*a, *a, *b]\n")
    assert (read.depth, read.aliases) == (3, 2)
    assert read_yaml("# nothing\n") == YamlDocument(depth=1)


def test_keys_are_the_same_if_their_values_are() -> None:
    read = read_yaml("a: 1\n'1': x\n1: y\n0x1: z\nb: {<<: {c: 1}, <<: {d: 2}, a: 3}\n")
    assert read.duplicates == (RepeatedKey("1", 3, 4),)
    assert read.lines["b.a"] == 5


def test_what_an_alias_stands_for_has_its_lines_wherever_it_stands() -> None:
    read = read_yaml("a: &a\n  x: 1\n  y: [1, 2]\nb: *a\nc: *a\n")
    assert [read.lines[f"{name}.y[1]"] for name in "abc"] == [3, 3, 3]
