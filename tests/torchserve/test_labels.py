"""The problems of label files; the recording `names` holds their meaning to a server's."""

import pytest

from marpack.torchserve.labels import LabelsFault, parse_labels


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
