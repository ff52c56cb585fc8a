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
    many = f"{count} classes of its own ({listed})"
    assert many in handler("many", source).findings()[0].message
    model = Case("many", {"handler.py": BASE, "model.py": source}, model=EAGER)
    assert [finding for finding in model.findings() if many in finding.message]


@pytest.mark.parametrize(
    ("entry", "files", "hint"),
    [
        ("handler.py", {"hander.py": CLASS}, "hander.py"),
        ("handler.py", {"src/handler.py": CLASS}, "archive's root"),
        ("handlr", {"handler.py": CLASS}, "handler?"),
        ("image_clasifier", {"handler.txt": ""}, "image_classifier"),
    ],
)
def test_hints_at_the_handler_that_was_meant(entry, files, hint):
    assert Case("meant", files, model={"handler": entry}).findings()[0].hint.count(hint) == 1


@pytest.mark.parametrize("imported", [1, 100, 101])
def test_hints_at_the_imported_class_to_derive_from(imported):
    others = "".join(f"from torch import a{number}\n" for number in range(imported - 1))
    found = handler("derive", f"{others}from ts.torch_handler.base_handler import BaseHandler\n").findings()
    (hint,) = (finding.hint for finding in found if finding.code == "handler-no-entry")
    assert ("class Handler(BaseHandler): pass" in (hint or "")) is (imported <= 100)


@pytest.mark.parametrize("star", ["from other import *", "from .other import *", "from nowhere import *"])
def test_a_star_that_may_bind_the_handler_is_no_finding(star):
    found = told(Case("star", {"handler.py": f"{star}\n", "other.py": FUNCTION}).findings())
    assert not [line for line in found if "handler-" in line]


def test_what_a_base_that_is_not_packed_may_set_is_not_missed():
    source = stages("def handle(self, data, context): return [self.mapping['0']]")
    mixed = f"from mylib import Mixin\n{source}".replace("(BaseHandler)", "(Mixin, BaseHandler)")
    assert "W handler-skips-initialize handler.py:8" in told(handler("plain", source).findings())
    assert not [line for line in told(handler("mixed", mixed).findings()) if "handler-skips-initialize" in line]


def test_a_base_that_is_not_packed_is_a_note():
    source = "from mylib import Base\nclass H(Base):\n    def handle(self, data, context): return [1]\n"
    assert "N handler-base-unknown handler.py:2" in told(handler("base", source).findings())
