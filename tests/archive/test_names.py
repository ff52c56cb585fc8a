import pytest

from marpack.archive.protocol import MODEL_NAME, check_member_name, check_member_names, quoted
from marpack.errors import UnsafeArchiveError

LONGEST = "/".join(["x" * 204] * 5)
GOOD = [
    "handler.py", "MAR-INF/MANIFEST.json", ".hidden", "..data", "a..b", "...b", "a/b/c.txt", "Größe.txt", "ラベル.json",
    "a b.txt", "10:30.log", "x" * 255, "ü" * 127, "/".join("x" * 64), LONGEST, "~root", "-rf", "$HOME", "%20",
]  # fmt: skip
BAD = [
    ("", "no name"),
    ("..", "contains '.'"),
    ("../x", "contains '.'"),
    ("a/../../x", "contains '.'"),
    ("a/..", "contains '.'"),
    ("./x", "contains '.'"),
    ("a/./x", "contains '.'"),
    (".. /x", "contains '.'"),
    ("a/.../x", "contains '.'"),
    ("%2e%2E/x", "contains '.'"),
    (".%2e/x", "contains '.'"),
    ("\u2025/x", "contains '.'"),  # a two-dot leader, ".." once normalized
    ("\uff0e\uff0e/x", "contains '.'"),  # full-width full stops
    ("a\uff0fb", "look-alike"),
    ("a\uff3cb", "look-alike"),
    ("/etc/passwd", "absolute"),
    ("//server/share", "absolute"),
    ("C:/x", "drive"),
    ("c:x", "drive"),
    ("..\\x", "backslash"),
    ("\\\\server\\x", "backslash"),
    ("a\\b", "backslash"),
    ("a//b", "empty step"),
    ("a/", "empty step"),
    ("a\0.txt", "control"),
    ("a\n.txt", "control"),
    ("a\x7f", "control"),
    ("a\x1b[31m", "control"),
    ("a\u202egpj.py", "control"),  # right-to-left override
    ("a\u200b.py", "control"),  # zero-width space
    ("a\ud800", "control"),
    ("x" * 256, "255 bytes"),
    ("ü" * 128, "255 bytes"),
    (LONGEST + "x", "1024"),
    ("/".join("x" * 65), "64 folders"),
]


@pytest.mark.parametrize("name", GOOD)
def test_names_that_any_file_system_keeps(name):
    check_member_name(name)


@pytest.mark.parametrize(("name", "words"), BAD)
def test_names_that_could_land_elsewhere(name, words):
    with pytest.raises(UnsafeArchiveError) as caught:
        check_member_name(name)
    assert words in caught.value.what
    assert caught.value.what.isprintable()


CLASHES = [
    (["a.py", "a.py"], [], "'a.py' is repeated"),
    (["a.py", "A.py"], [], "only in case or Unicode form"),
    (["straße", "STRASSE"], [], "only in case or Unicode form"),
    (["\u00e9.txt", "e\u0301.txt"], [], "only in case or Unicode form"),
    (["\ufb01le.py", "file.py"], [], "only in case or Unicode form"),
    (["x\u00b2.py", "x2.py"], [], "only in case or Unicode form"),
    (["\u210c.py", "h.py"], [], "only in case or Unicode form"),  # a letter-like symbol: a form first, then a case
    (["\u0390", "\u03aa\u0301"], [], "only in case or Unicode form"),  # cases that are other forms again
    (["a", "a/b"], [], "'a' is a file where another member needs a folder"),
    (["a/b", "a"], [], "'a' is a file where another member needs a folder"),
    (["a/b", "A/c"], [], "differs from 'a' only in case"),
    (["a/b/c", "x", "a/B/d"], [], "differs from 'a/b' only in case"),
    (["a"], ["a"], "'a' is a file where another member needs a folder"),
    (["A/x"], ["a"], "differs from 'a' only in case"),
    (["x"], ["../a"], "contains '.'"),
]


@pytest.mark.parametrize(("names", "folders", "words"), CLASHES)
def test_names_that_would_be_one_file(names, folders, words):
    with pytest.raises(UnsafeArchiveError) as caught:
        check_member_names(names, folders)
    assert words in caught.value.what


def test_many_names_that_get_along():
    check_member_names(["a", "b/a", "b/c/a", "é/é"], ["b", "b/c", "d", "d"])


@pytest.mark.parametrize(
    ("name", "good"), [("digits", True), ("a.b-c_9", True), ("-a", False), ("a b", False), ("", False)]
)
def test_model_names(name, good):
    assert bool(MODEL_NAME.fullmatch(name)) is good


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("it's", '"it\'s"'),
        ("é" * 80, f"'{'é' * 80}'"),
        ("é" * 81, f"'{'é' * 77}…'"),
        ("a\nb", "'a\\nb'"),
        ("\U000e0001", "'\\U000e0001'"),  # an invisible tag
    ],
)
def test_a_name_in_a_message_is_one_short_line(name, shown):
    assert quoted(name) == shown
