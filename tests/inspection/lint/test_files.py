"""Which member a server's `import` finds."""

import io

import pytest

from marpack.inspection.lint.files import Files, Found


def files(*names: str, roots: tuple[str, ...] = ("",)) -> Files:
    return Files(names, lambda _: io.BytesIO(), roots)


@pytest.mark.parametrize(
    ("names", "dotted", "kind", "member"),
    [
        (["a.py"], "a", Found.SOURCE, "a.py"),
        (["a.pyc"], "a", Found.BYTECODE, "a.pyc"),
        (["a.so"], "a", Found.EXTENSION, "a.so"),
        (["a.abi3.so"], "a", Found.EXTENSION, "a.abi3.so"),
        (["a.cpython-311-x86_64-linux-gnu.so"], "a", Found.EXTENSION, "a.cpython-311-x86_64-linux-gnu.so"),
        (["a.py", "a.pyc", "a.so"], "a", Found.EXTENSION, "a.so"),
        (["a.py", "a.pyc"], "a", Found.SOURCE, "a.py"),
        (["a.py", "a/__init__.py"], "a", Found.SOURCE, "a/__init__.py"),
        (["a.py", "a/note.txt"], "a", Found.SOURCE, "a.py"),
        (["a/__init__.py", "a/b.py"], "a.b", Found.SOURCE, "a/b.py"),
        (["a/b.py"], "a.b", Found.SOURCE, "a/b.py"),
        (["a/b/c.txt"], "a.b", Found.NAMESPACE, "a/b/"),
        (["a/b/c.txt"], "a", Found.NAMESPACE, "a/"),
        (["src/a.py", "a.py"], "a", Found.SOURCE, "src/a.py"),
        (["src/a/note.txt", "a.py"], "a", Found.SOURCE, "a.py"),
        (["src/a/note.txt", "a/note.txt"], "a", Found.NAMESPACE, "src/a/"),
    ],
)
def test_a_module_is_found_where_python_finds_it(names: list[str], dotted: str, kind: Found, member: str) -> None:
    located = files(*names, roots=("src/", "")).locate(dotted)
    assert located is not None
    assert (located.dotted, located.kind, located.member) == (dotted, kind, member)
    assert located.package is ("__init__" in member)


@pytest.mark.parametrize(
    ("names", "dotted"),
    [
        (["a.other.so"], "a"),
        (["a.cpython-311.txt"], "a"),
        (["a.txt"], "a"),
        (["a.py", "a/b.py"], "a.c"),
        (["a.py", "b.py"], "a.b"),
        (["other/a.py"], "a"),
        ([], "a"),
    ],
)
def test_other_members_are_no_modules(names: list[str], dotted: str) -> None:
    assert files(*names).locate(dotted) is None


def test_folders_are_known_by_what_lies_below_them() -> None:
    found = files("a.py", "b/c/d.py")
    assert (found.files_in(""), found.files_in("b/"), found.files_in("b/c/")) == ({"a.py"}, set(), {"d.py"})
    assert [folder for folder in ("b/", "b/c/", "c/", "a/") if found.is_folder(folder)] == ["b/", "b/c/"]
