"""SARIF as code scanning reads it: what the standard requires of each object, and places that can be found."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace
from render.reports import CHECKS, report

from marpack.gate.verdicts import GateReport, Verdict
from marpack.render.check_files import location_of, sarif, uri_of


def log_of(told: GateReport) -> dict[str, Any]:
    return json.loads(sarif(told))


def test_it_has_what_the_standard_requires():
    log = log_of(report())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "marpack"
    assert isinstance(driver["version"], str)
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids) == 4
    assert all(rule["shortDescription"]["text"].endswith(".") for rule in driver["rules"])
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
    for result in run["results"]:
        assert result["ruleId"] in ids
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert urlsplit(uri).geturl() == uri
        assert " " not in uri
        assert location["physicalLocation"].get("region", {"startLine": 1})["startLine"] >= 1


def test_each_finding_of_a_check_that_ran_is_a_result():
    results = log_of(report())["runs"][0]["results"]
    assert [(result["ruleId"], result["level"], result["properties"]["code"]) for result in results] == [
        ("preflight", "error", "syntax"),
        ("preflight", "warning", "hm"),
        ("preflight", "note", "fyi"),
        ("memory", "warning", "memory-grows"),  # as the project weighs it
    ]
    assert results[0]["message"]["text"].endswith("Mend it.")


def test_a_check_that_came_to_no_verdict_says_why():
    undecided = replace(CHECKS[3], verdict=Verdict.SKIPPED, reason="undecided")
    (result,) = log_of(report(checks=(undecided,)))["runs"][0]["results"]
    assert result["properties"]["code"] == "memory-grows"


def test_an_examination_that_was_interrupted_says_so():
    assert log_of(report(interrupted=True))["runs"][0]["invocations"] == [
        {"executionSuccessful": False, "exitCode": 130}
    ]


@pytest.mark.parametrize(
    ("where", "uri", "line", "member"),
    [
        ("p/probe.mar", "p/probe.mar", None, None),
        ("handler.py:12", "p/handler.py", 12, None),
        ("p/probe.mar!handler.py:12", "p/handler.py", 12, None),
        ("p/probe.mar!MAR-INF/samples/a b.txt", "p/samples/a%20b.txt", None, None),
        ("MAR-INF/MANIFEST.json: model.handler", "p/probe.mar", None, "MAR-INF/MANIFEST.json"),
        ("p/probe.mar!gone.py:3", "p/probe.mar", None, "gone.py:3"),
        ("../../etc/passwd\0:1", "p/probe.mar", None, "../../etc/passwd\0:1"),
    ],
)
def test_a_place_is_the_projects_file_or_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, uri: str, line: int | None, member: str | None
):
    monkeypatch.chdir(tmp_path)
    for name in ("p/handler.py", "p/samples/a b.txt", "p/probe.mar"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    location = location_of(where, report(archive="p/probe.mar", project="p"))
    physical = location["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == uri
    assert physical.get("region", {}).get("startLine") == line
    assert [item["name"] for item in location.get("logicalLocations", [])] == ([member] if member else [])


def test_a_file_elsewhere_has_a_whole_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    uri = uri_of(tmp_path / "größe #1.mar")
    assert uri.startswith("file:///")
    assert unquote(urlsplit(uri).path) == str(tmp_path / "größe #1.mar")
    assert uri_of(Path("a/../b.mar")) == "b.mar"
