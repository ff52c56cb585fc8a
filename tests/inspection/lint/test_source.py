"""The names that a module binds, and the member that a server's `import` finds."""

import ast
import io

import pytest

from marpack.inspection.lint.handler import own_classes
from marpack.inspection.lint.source import Files, Found, read_scope


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


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("def a(): pass", True),
        ("if x: a = 1", False),
        ("try:\n    import a\nexcept ImportError: pass", False),
        ("try: a = 1\nfinally: pass", True),
        ("for a in b: pass", False),
        ("with b as a: pass", False),
        ("a = 1\ndel a", False),
        ("a = 1\na = 2", False),
        ("a = 1\ndef f():\n    global a", False),
        ("if not TYPE_CHECKING: a = 1", True),
        ("if __name__ == '__main__': a = 1\nelse: import a", True),
    ],
)
def test_only_names_that_one_statement_surely_binds_are_plain(source: str, plain: bool) -> None:
    scope = read_scope(ast.parse(source))
    assert (scope.names["a"].only is not None) is plain
    assert not scope.dynamic


@pytest.mark.parametrize("source", ["from b import *", "globals()[c] = 1", "def __getattr__(name): ...", "sys.modules"])
def test_a_module_that_binds_names_unseen_is_dynamic(source: str) -> None:
    assert read_scope(ast.parse(source)).dynamic


@pytest.mark.parametrize("module", ["'elsewhere'", "__name__"])
def test_a_class_that_names_its_module_may_count_once(module: str) -> None:
    own = own_classes(read_scope(ast.parse(f"class A: pass\nclass B:\n    __module__ = {module}\n")))
    assert (list(own.certain), own.exact) == (["A"], False)
