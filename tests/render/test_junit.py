"""JUnit XML as CI systems read it: elements, attributes and counts of the schema that Jenkins holds files to."""

import re
from xml.etree import ElementTree as ET

from msgspec.structs import replace
from render.reports import CHECKS, report

from marpack.gate.verdicts import Verdict
from marpack.render.check_files import junit

# Element → attributes it must have, attributes it may have (the schema is junit-10.xsd of Jenkins' xunit plugin).
SCHEMA = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"time", "skipped"}),
    "testcase": ({"name"}, {"time", "classname"}),
    "failure": (set(), {"type", "message"}),
    "skipped": (set(), {"type", "message"}),
    "system-out": (set(), set()),
}
CHILDREN = {"testsuites": {"testsuite"}, "testsuite": {"testcase"}, "testcase": {"failure", "skipped", "system-out"}}


def test_it_keeps_to_the_schema():
    for element in ET.fromstring(junit(report())).iter():
        needed, optional = SCHEMA[element.tag]
        assert needed <= set(element.attrib) <= needed | optional
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert re.fullmatch(r"\d+\.\d{3}", element.get("time", "0.000"))


def test_every_check_is_a_test():
    suite = ET.fromstring(junit(report()))[0]
    assert suite.get("name") == "marpack check my model.mar"
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "0", "skipped": "1",
    }  # fmt: skip
    assert [(case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("digests", []),
        ("preflight", ["failure"]),
        ("loads", ["skipped"]),
        ("memory", ["system-out"]),  # weighs as a warning: told, and no failure
    ]


def test_a_failure_tells_everything_and_what_no_xml_holds_is_replaced():
    failure = ET.fromstring(junit(report())).find(".//failure")
    assert failure.get("message") == 'a <b>"bold"</b> & �[31mred� � ü 🦆 [red]markup[/]'
    assert "error syntax: handler.py:12: a <b>" in failure.text
    assert "(hint: Mend it.)" in failure.text
    assert "warning hm: MAR-INF/MANIFEST.json: model.handler: hm" in failure.text


def test_what_a_check_came_to_is_told_where_ci_systems_look():
    root = ET.fromstring(junit(report()))
    assert (root.get("time"), root[0].get("time")) == ("1.500", "1.500")
    passed, failed, skipped, weighing = root[0]
    assert [case.get("classname") for case in root[0]] == ["marpack.check"] * 4
    assert (passed.get("time"), failed.get("time")) == ("0.000", "0.250")
    assert failed[0].get("type") == "preflight"
    assert failed[0].text.splitlines()[1:] == [
        "warning hm: MAR-INF/MANIFEST.json: model.handler: hm",
        "note fyi: my model.mar!labels 1.json: fyi",
    ]
    assert skipped[0].get("message") == "preflight failed"
    assert weighing[0].text == "error memory-grows: it grows"


def test_a_check_that_came_to_no_verdict_says_why():
    undecided = replace(CHECKS[3], verdict=Verdict.SKIPPED, reason="undecided")
    (case,) = ET.fromstring(junit(report(checks=(undecided,))))[0]
    assert [child.tag for child in case] == ["skipped", "system-out"]
    assert case[1].text == "error memory-grows: it grows"
