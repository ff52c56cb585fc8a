"""Every spelling of labels makes the same index_to_name.json."""

import json
from pathlib import Path

import pytest

from marpack.errors import ProjectError
from marpack.project.load import count_labels, labels_member

ANIMALS = {"0": "cat", "1": "dog, small", "2": "no"}

SPELLINGS = {
    "l.txt": "cat\ndog, small\nno\n",
    "windows.txt": "\ufeffcat\r\n dog, small \r\nno\r\n\r\n",
    "list.json": '["cat", "dog, small", "no"]',
    "map.yml": "1: dog, small\n2: no\n0: cat\n",
    "header.csv": 'index, label\n1, "dog, small"\n0,cat\n2,no\n',
    "gaps.csv": '\n1,"dog, small"\n\n,\n0,cat\n2,no\n\n',
    "other-header.csv": 'nr,text\n1,"dog, small"\n0,cat\n2,no\n',
    "turned.csv": '"label","id"\n"dog, small",1\ncat,0\nno,2\n',
    "one-column.csv": 'cat\n"dog, small"\nno\n',
    "one-column-header.csv": 'label\ncat\n"dog, small"\nno\n',
}


@pytest.mark.parametrize(("name", "text"), SPELLINGS.items())
def test_spellings_agree(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert labels_member(path) == json.dumps(ANIMALS, indent=2).encode() + b"\n"


@pytest.mark.parametrize(
    "text", ['{"0":"cat"}', '{"0": ["n01", "cat"]}', '{"object_type_names": ["a", "b"]}', '{"any": {"thing": 1}}']
)
def test_a_json_object_is_packed_byte_for_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "index_to_name.json"
    path.write_text(text)
    assert labels_member(path) == path


def test_lists_as_labels_and_object_type_names_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "l.yaml"
    path.write_text("object_type_names: [a, b]\n")
    assert json.loads(labels_member(path)) == {"object_type_names": ["a", "b"]}
    path.write_text("10: [n01, cat]\n9: [n02, é]\n")
    assert (
        labels_member(path)
        == b'{\n  "9": [\n    "n02",\n    "\\u00e9"\n  ],\n  "10": [\n    "n01",\n    "cat"\n  ]\n}\n'
    )


# What is wrong → the file, its content, the line, a word of the message.
WRONG = {
    "empty line": ("l.txt", "a\n\nb\n", ":2", "1"),
    "nothing": ("l.txt", "\n", "", "no labels"),
    "no index": ("l.csv", "0,a\nb,c\n", ":2", "'b'"),
    "no label": ("l.csv", "0,a\n1\n", ":2", "no label"),
    "index twice": ("l.csv", "0,a\n0,b\n", ":2", "repeated"),
    "open quote": ("l.csv", '0,"a\n', ":1", "CSV"),
    "index twice in two spellings": ("l.yaml", "0: a\n00: b\n", "", "repeated"),
    "no index in yaml": ("l.yaml", "cat: 0\n", "", "'cat'"),
    "no text": ("l.json", "[1, 2]", "", "label of 0"),
    "no text in a list of them": ("l.json", '["a", ["b", 2]]', "", "label of 1"),
    "an empty list": ("l.yaml", "0: []\n", "", "label of 0"),
    "a number": ("l.json", "7", "", "mapping"),
    "bad json": ("l.json", '{\n"0": a}', ":2", "JSON"),
    "deep json": ("l.json", "[" * 100_000, "", "deep"),
    "bad yaml": ("l.yaml", "a: [", ":2", "YAML"),
    "other suffix": ("l.tsv", "a", "", "l.tsv"),
    "no text at all": ("l.txt", "\0", "", "UTF-8"),
}


@pytest.mark.parametrize(("name", "text", "line", "word"), WRONG.values(), ids=WRONG)
def test_invalid_labels_are_reported_with_their_line(
    tmp_path: Path, name: str, text: str, line: str, word: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ProjectError) as caught:
        labels_member(path)
    assert caught.value.where == f"{path}{line}"
    assert word in caught.value.what


@pytest.mark.parametrize("text", ["{}", "[]", '{"lr": "1"}', '{"0": "a", "lr": "1"}', "7"])
def test_what_does_not_read_as_labels_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    assert count_labels(tmp_path / "settings.json") is None


def test_a_file_of_over_a_megabyte_is_not_looked_at_for_labels(tmp_path: Path) -> None:
    for size, count in ((1 << 20, 1), ((1 << 20) + 1, None)):
        (tmp_path / "l.txt").write_bytes(b"x" * size)
        assert count_labels(tmp_path / "l.txt") == count
