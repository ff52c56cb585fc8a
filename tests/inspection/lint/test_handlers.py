"""Entry points and model files as the server counts, constructs and calls them."""

import pytest
from inspection.lint.case import BASE, CLASS, FUNCTION, Case, check_case, told
from inspection.lint.handler_cases import CASES, EAGER, handler, stages


def test_finds_exactly():
    for case in CASES:
        check_case(case)


@pytest.mark.parametrize(("count", "listed"), [(6, "A0, A1, A2, A3, A4, A5"), (7, "A0, A1, A2, A3, A4, A5, …")])
def test_the_first_classes_of_many_are_named(count, listed):
    source = "".join(f"class A{number}: pass\n" for number in range(count))
    many = f"it has {count} classes of its own ({listed}) where the server wants exactly one"
    assert handler("many", source).findings()[0].message.startswith(many)
    model = Case("many", {"handler.py": BASE, "model.py": source}, model=EAGER)
    assert many in [finding.message for finding in model.findings()]


@pytest.mark.parametrize(
    ("entry", "files", "hint"),
    [
        ("handler.py", {"hander.py": CLASS}, "did you mean hander.py?"),
        ("handler.py", {"src/handler.py": CLASS}, "pack it at the archive's root"),
        ("handlr", {"handler.py": CLASS}, "did you mean handler?"),
        ("image_clasifier", {"handler.txt": ""}, "did you mean image_classifier?"),
    ],
)
def test_hints_at_the_handler_that_was_meant(entry, files, hint):
    assert Case("meant", files, model={"handler": entry}).findings()[0].hint == hint


@pytest.mark.parametrize("imported", [1, 100, 101])
def test_hints_at_the_imported_class_to_derive_from(imported):
    others = "".join(f"from torch import a{number}\n" for number in range(imported - 1))
    found = handler("derive", f"{others}from ts.torch_handler.base_handler import BaseHandler\n").findings()
    (hint,) = (finding.hint for finding in found if finding.code == "handler-no-entry")
    assert ("class Handler(BaseHandler): pass" in (hint or "")) is (imported <= 100)


@pytest.mark.parametrize(
    ("star", "others", "expected"),
    [
        ("from other import *", {"other.py": f"__all__ = []\n{FUNCTION}"}, "N handler-undecided handler.py"),
        ("from other import *", {"other.py": "from os import *\n"}, "E handler-no-entry handler.py"),
        ("from .other import *", {}, "N handler-undecided handler.py"),
        ("from nowhere import *", {}, "N handler-undecided handler.py"),
        ("from ts.context import *", {}, "E handler-no-entry handler.py"),
    ],
)
def test_a_star_binds_what_its_module_shows(star, others, expected):
    assert expected in told(Case("star", {"handler.py": f"{star}\n", **others}).findings())


def test_what_a_base_that_is_not_packed_may_set_is_not_missed():
    source = stages("def handle(self, data, context): return [self.mapping['0']]")
    mixed = f"from mylib import Mixin\n{source}".replace("(BaseHandler)", "(Mixin, BaseHandler)")
    assert "W handler-skips-initialize handler.py:8" in told(handler("plain", source).findings())
    assert not [line for line in told(handler("mixed", mixed).findings()) if "handler-skips-initialize" in line]
