"""A sample that `marpack init` generated proves nothing, under whichever name and way its content comes."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from gate.archives import examine, failures, project

from marpack.archive.reader import open_archive
from marpack.errors import ProjectError
from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import CheckSelection
from marpack.gate.samples import given_samples, packed_samples
from marpack.gate.verdicts import GateVerdict
from marpack.project.source import resolve
from marpack.runner.inputs import FORM_TYPE, Input, RequestDefaults
from marpack.torchserve.http import Part

BEE, SKY = "a bee in summer", "why try rhythm"
CONTENTS = {"bee.txt": BEE, "copy.txt": BEE, "sky.txt": SKY}


def mark(content: str) -> str:
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def marked(folder: Path, marks: dict[str, str], contents: dict[str, str] | None = None) -> Path:
    """Write a project with some samples, marked by their names."""
    project(folder, samples=CONTENTS if contents is None else contents)
    file = folder / "marpack.yaml"
    keys = yaml.safe_load(file.read_text())
    for sample in keys["samples"]:
        name = sample["input"].removeprefix("samples/")
        sample.update({"generated": marks[name]} if name in marks else {})
    file.write_text(yaml.safe_dump(keys))
    return folder


def typed(text: str) -> Input:
    return RequestDefaults().input("typed", 7, "text/plain", text.encode())


def generated(source: Path, *inputs: Input) -> list[str]:
    with Candidate(resolve(str(source)), CheckOptions(inputs=inputs)) as candidate:
        return [sample.short_name.removeprefix("samples/") for sample in candidate.samples if sample.is_generated]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, []),
        ({"bee.txt": mark(BEE)}, ["bee.txt", "copy.txt"]),  # a copy under another name, which has no mark
        ({"copy.txt": mark(BEE)}, ["bee.txt", "copy.txt"]),
        ({"sky.txt": mark(SKY)}, ["sky.txt"]),
        ({"sky.txt": mark("before it was changed")}, []),
        ({"bee.txt": mark(BEE), "copy.txt": mark(BEE), "sky.txt": mark(BEE)}, ["bee.txt", "copy.txt"]),
    ],
)
def test_a_mark_holds_for_its_content(tmp_path: Path, marks: dict[str, str], expected: list[str]):
    assert generated(marked(tmp_path / "p", marks)) == expected


def test_the_mark_is_packed_and_a_confirmed_sample_makes_the_archive_stale(tmp_path: Path):
    folder = marked(tmp_path / "p", {"sky.txt": mark(SKY)})
    path = resolve(str(folder)).path
    with open_archive(path) as opened:
        assert packed_samples(opened).generated == {mark(SKY)}
    assert generated(path) == ["sky.txt"]
    file = folder / "marpack.yaml"
    file.write_text(file.read_text().replace(f"generated: {mark(SKY)}", ""))
    assert generated(folder) == []


def test_an_input_with_generated_content_proves_nothing_however_it_is_sent(tmp_path: Path):
    path = marked(tmp_path / "p", {"bee.txt": mark(BEE)}, {"bee.txt": BEE})
    form = RequestDefaults().input("form", 8, FORM_TYPE, (Part("data", BEE.encode()), Part("more", b"1")))
    assert generated(path, typed(BEE), form, typed(SKY)) == ["bee.txt", "typed", "form"]
    assert [sample.is_generated for sample in given_samples([typed(BEE)])] == [False]


@pytest.mark.parametrize("value", ["sha256:", "0" * 64, f"sha256:{'A' * 64}", 7, True])
def test_what_is_not_a_digest_is_refused(tmp_path: Path, value: Any):
    with pytest.raises(ProjectError) as caught:
        resolve(str(marked(tmp_path / "p", {"sky.txt": value})))
    (finding,) = caught.value.findings
    assert (finding.code, str(finding.where).rpartition(": ")[2]) == ("samples", "samples[2].generated")


def test_generated_samples_alone_prove_nothing(tmp_path: Path):
    path = marked(tmp_path / "p", {"bee.txt": mark(BEE)}, {"bee.txt": BEE, "copy.txt": BEE})
    report = examine(path, choice=CheckSelection.of(skip=["memory"]), stand_ins="on")
    assert failures(report) == {"proved": ["generated-sample"]}
    assert (report.verdict, report.samples, report.generated) == (GateVerdict.NOT_PROVED, 2, 2)
    some = CheckSelection.of(["samples", "proved"])
    beside = examine(path, choice=some, inputs=(typed(SKY),))
    assert (failures(beside), beside.samples, beside.generated) == ({}, 3, 2)
    # The batch of two holds the real input alone.
    assert [finding.code for finding in beside.checks[-1].findings] == ["one-input"]
    waived = examine(path, choice=some, allow_unproved=frozenset({"inputs"}))
    assert [finding.code for finding in waived.checks[-1].findings] == ["allowed-unproved"]


def test_a_real_sample_must_succeed_itself(tmp_path: Path):
    fails = {"no.txt": "", "bee.txt": BEE}
    folder = marked(tmp_path / "p", {"bee.txt": mark(BEE)}, fails)
    file = folder / "marpack.yaml"
    file.write_text(
        file.read_text().replace("- input: samples/no.txt", "- expect: {status: 503}\n  input: samples/no.txt")
    )
    assert failures(examine(folder, choice=CheckSelection.of(["samples", "proved"]))) == {
        "proved": ["generated-sample"]
    }
