"""What a module's body leaves bound."""

import ast

import pytest

from marpack.inspection.lint.bindings import Own, count, scope_of


@pytest.mark.parametrize("end", ["raise SystemExit", "sys.exit()", "exit()", "quit(1)"])
def test_what_follows_an_end_is_never_bound(end: str) -> None:
    scope = scope_of(ast.parse(f"def a(): pass\n{end}\ndef b(): pass\n"))
    assert list(scope.names) == ["a"]


def test_a_branch_that_ends_binds_what_stands_before_its_end() -> None:
    scope = scope_of(ast.parse("if x:\n    a = 1\n    raise ValueError\n    b = 2\ndef c(): pass\n"))
    assert {name: found.sure for name, found in scope.names.items()} == {"a": False, "c": True}
    assert isinstance(scope.names["c"].values[0], Own)


@pytest.mark.parametrize("module", ["'elsewhere'", "__name__"])
def test_a_class_that_names_its_module_may_count_once(module: str) -> None:
    counted = count(scope_of(ast.parse(f"class A: pass\nclass B:\n    __module__ = {module}\n")))
    assert (counted.low, counted.high, counted.names) == (1, 2, ("A", "B"))
