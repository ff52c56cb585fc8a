import json
from pathlib import Path

import pytest

from marpack.torchserve.labels import LabelError, LabelsFault, load_label_mapping, map_class_to_label, parse_labels


def loaded(tmp_path: Path, content: object) -> dict[str, str] | None:
    path = tmp_path / "index_to_name.json"
    path.write_text(json.dumps(content))
    return load_label_mapping(str(path))


def test_the_three_shapes(tmp_path: Path):
    assert loaded(tmp_path, {"0": "cat"}) == {"0": "cat"}
    assert loaded(tmp_path, {"0": ["n01", "tench"]}) == {"0": "tench"}
    assert loaded(tmp_path, {"object_type_names": ["a", "b"]}) == {"0": "a", "1": "b"}


def test_other_shapes_are_refused_and_no_file_is_no_mapping(tmp_path: Path):
    assert load_label_mapping(str(tmp_path / "index_to_name.json")) is None
    for content in ([], "x", {"0": 1}, {"0": [1]}, {"0": None}):
        with pytest.raises(LabelError):
            loaded(tmp_path, content)


@pytest.mark.parametrize(
    ("data", "names", "fault", "line"),
    [
        (b'{"0": ["n01", "tench"], "1": []}', {"0": "tench", "1": []}, None, None),
        (b'{"object_type_names": ["a", 5]}', {"0": "a", "1": 5}, None, None),
        (b'\xef\xbb\xbf{"0": "a"}', {"0": "a"}, LabelsFault.ENCODING, 1),
        (b"\xef\xbb\xbf" * 5_000, {}, LabelsFault.ENCODING, 1),
        (b'{\n"0": "\xff"}', {}, LabelsFault.ENCODING, 2),
        (b'{\n"0": }', {}, LabelsFault.SYNTAX, 2),
        (b"[" * 100_000, {}, LabelsFault.SYNTAX, None),
        (b'["a"]', {}, LabelsFault.SHAPE, None),
    ],
)
def test_what_a_file_holds_and_what_is_wrong_with_it(data: bytes, names: dict, fault: LabelsFault, line: int):
    parsed = parse_labels(data)
    assert (parsed.names, parsed.fault, parsed.line) == (names, fault, line)
    assert (parsed.problem is None) == (fault is None)


def test_keys_that_stand_twice_are_told_of_the_object_itself():
    assert parse_labels(b'{"0": "a", "1": {"x": 1, "x": 2}, "0": "b"}').duplicates == ("0",)


def test_probabilities_get_their_labels():
    assert map_class_to_label([[0.9, 0.1]], None, [[7, 2]]) == [{"7": 0.9, "2": 0.1}]
    # Two classes with one label collapse to the later value at the first's place.
    (row,) = map_class_to_label([[0.5, 0.3, 0.2]], {"0": "a", "1": "b", "2": "a"})
    assert list(row.items()) == [("a", 0.2), ("b", 0.3)]


def test_wrong_types_and_missing_labels_raise():
    with pytest.raises(LabelError):
        map_class_to_label(((0.1,),))
    with pytest.raises(LabelError):
        map_class_to_label([[0.1]], ["a"])  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        map_class_to_label([[0.1]], {"7": "a"})
