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


@pytest.mark.parametrize("end", ["raise SystemExit", "sys.exit()", "exit()", "quit(1)"])
def test_what_follows_an_end_is_never_bound(end: str) -> None:
    scope = read_scope(ast.parse(f"def a(): pass\n{end}\ndef b(): pass\n"))
    assert list(scope.names) == ["a"]


def test_a_branch_that_ends_binds_what_stands_before_its_end() -> None:
    scope = read_scope(ast.parse("if x:\n    a = 1\n    raise ValueError\n    b = 2\ndef c(): pass\n"))
    assert {name: found.sure for name, found in scope.names.items()} == {"a": False, "c": True}
    assert isinstance(scope.names["c"].only, ast.FunctionDef)


@pytest.mark.parametrize("module", ["'elsewhere'", "__name__"])
def test_a_class_that_names_its_module_may_count_once(module: str) -> None:
    own = own_classes(read_scope(ast.parse(f"class A: pass\nclass B:\n    __module__ = {module}\n")))
    assert (list(own.certain), own.exact) == (["A"], False)
