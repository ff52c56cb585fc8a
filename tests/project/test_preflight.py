"""What the static checks find in a plan's members is told where the author wrote it, and only once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from marpack.errors import ProjectError
from marpack.findings import Finding, Severity
from marpack.project.load import load_project
from marpack.project.planning import Flags, PlanResult, plan_flags, plan_project

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
HEAD = "name: tiny\nversion: '1.0'\nhandler: {}\n"
FUNCTION = "def handle(data, context):\n    return [1 for _ in data or []]\n"

Make = Callable[..., Path]


def told(find: Callable[[], PlanResult], folder: Path) -> list[tuple[str, str, str]]:
    """Return what planning finds, as (severity, code, place without the folder), notes left out."""
    findings: tuple[Finding, ...]
    try:
        findings = find().findings
    except ProjectError as error:
        findings = error.findings
    return [
        (str(finding.severity), finding.code, (finding.where or "").removeprefix(f"{folder}/"))
        for finding in findings
        if finding.severity is not Severity.NOTE
    ]


def found(folder: Path) -> list[tuple[str, str, str]]:
    return told(lambda: plan_project(load_project(folder)), folder)


H, ENTRY, BUILT_IN = map(HEAD.format, ("handler.py", "src/entry.py", "image_classifier"))
FAR = {"src/entry.py": "import near\n" + FUNCTION, "src/near.py": "import far\n", "far.py": "\n\nx = (\n"}
MISSPELT = {"conf/my.yaml": "minWorkers: 1\nbatchsize: 8\n"}
# marpack.yaml, files beside a sound handler.py, and the findings as "severity code place".
CASES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "a sound function": (H, {}, []),
    "a module that does not parse, two imports away": (ENTRY, FAR, ["error source-syntax far.py:3"]),
    "an inline config": (
        H + "config:\n  minWorkers: 1\n  batchsize: 8\n",
        {},
        ["warning config-unknown-key marpack.yaml:6: config.batchsize"],
    ),
    "a config file": (H + "config: conf/my.yaml\n", MISSPELT, ["warning config-unknown-key conf/my.yaml:2"]),
    "a built-in without weights": (BUILT_IN, {}, ["error weights-none marpack.yaml: weights"]),
    "a missing file is reported once": (
        BUILT_IN + "weights: tiny.pt\n",
        {},
        ["error missing-file marpack.yaml:4: weights"],
    ),
    "a missing file hides nothing else": (
        ENTRY + "samples: [{input: s.png}]\n",
        {"src/entry.py": "def handle(:\n"},
        ["error missing-file marpack.yaml:4: samples[0].input", "error source-syntax src/entry.py:1"],
    ),
}


@pytest.mark.parametrize(("yaml", "files", "expected"), CASES.values(), ids=CASES)
def test_findings_are_reported_where_they_were_written(
    make_project: Make, yaml: str, files: dict[str, str], expected: list[str]
) -> None:
    assert [" ".join(each) for each in found(make_project(yaml, **{"handler.py": FUNCTION, **files}))] == expected


def test_weights_are_judged_by_their_content(make_project: Make) -> None:
    folder = make_project(HEAD.format("image_classifier") + "weights: w/tiny.pt\n")
    (folder / "w").mkdir()
    shutil.copy(DIGITS / "state_dict.pt", folder / "w/tiny.pt")
    ((severity, code, where),) = found(folder)
    assert (severity, where) == ("error", "w/tiny.pt")
    assert code.startswith("weights-")
    shutil.copy(DIGITS / "digits.pt", folder / "w/tiny.pt")
    assert found(folder) == []


def test_labels_that_marpack_makes_are_told_at_their_key(make_project: Make) -> None:
    folder = make_project(
        HEAD.format("image_classifier") + "weights: tiny.pt\nlabels: l.csv\n", **{"l.csv": "0,a\n2,b\n"}
    )
    shutil.copy(DIGITS / "digits.pt", folder / "tiny.pt")
    assert ("warning", "labels-gap", "marpack.yaml:5: labels") in found(folder)


def test_the_same_in_flags(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    Path("broken.py").write_text("def handle(:\n")
    Path("conf/broken.yaml").write_text("a: [\n")

    def flags(**given: str) -> list[str]:
        planned = told(lambda: plan_flags(Flags(model_name="m", version="1.0", **given)), workshop)
        return [" ".join(each) for each in planned]

    assert flags(handler="functions") == []
    assert flags(handler="broken") == ["error source-syntax broken.py:1"]
    assert "error handler-no-entry functions.py" in flags(handler="functions:nothing")
    assert flags(handler="functions", config_file="conf/broken.yaml") == ["error config-syntax conf/broken.yaml:2"]
    assert flags(handler="image_classifier") == ["error weights-none --serialized-file"]
    assert flags(handler="image_classifier", serialized_file="a.pt") == ["error missing-file --serialized-file"]
    assert flags(handler="libdigits", runtime="LSP") == ["warning runtime-lsp --runtime"]


def test_a_target_decides_what_is_an_error(make_project: Make) -> None:
    yaml = HEAD.format("base_handler") + "weights: weights.safetensors\nmodel_file: model.py\n"
    folder = make_project(yaml)
    for name in ("weights.safetensors", "model.py"):
        shutil.copy(DIGITS.parent / "safetensors_compile" / name.replace("weights", "progression"), folder / name)
    assert ("error", "weights.safetensors") in {(severity, where) for severity, _, where in found(folder)}
    (folder / "marpack.yaml").write_text(yaml + "target: marpack\n")
    assert found(folder) == []


def test_strict_stops_at_warnings_and_lets_notes_pass(make_project: Make) -> None:
    folder = make_project(
        HEAD.format("handler.py") + "requirements: r.txt\n", **{"handler.py": FUNCTION, "r.txt": "numpy\n"}
    )
    planned = plan_project(load_project(folder), strict=True)
    assert {finding.severity for finding in planned.findings} == {Severity.NOTE}
    (folder / "marpack.yaml").write_text(HEAD.format("handler.py") + "config: {batchsize: 8}\n")
    assert plan_project(load_project(folder)).findings[0].severity is Severity.WARNING
    with pytest.raises(ProjectError) as caught:
        plan_project(load_project(folder), strict=True)
    assert [finding.severity for finding in caught.value.findings] == [Severity.ERROR]


READS = """\
import os
HERE = "{line}"


def handle(data, context):
    return [1 for _ in data or []]
"""
NAMED = {
    "a file beside it": ("vocab.json", "", ["vocab.json"]),
    "a file in a folder": ("/assets/merges.txt", "", ["assets/merges.txt"]),
    "a file in a folder that is packed": ("assets/merges.txt", "files: [assets]\n", []),
    "a folder": ("assets", "", []),
    "a module": ("other.py", "", []),
    "a text that no path can be": ("x" * 255 + ".y", "", []),
    "a text with a null": (r"a\0.json", "", []),
    "a file elsewhere": ("../vocab.json", "", []),
}


@pytest.mark.parametrize(("text", "yaml", "expected"), NAMED.values(), ids=NAMED)
def test_files_that_the_handler_names_and_nobody_packs(
    make_project: Make, text: str, yaml: str, expected: list[str]
) -> None:
    files = {"vocab.json": "{}", "other.py": "", "assets/merges.txt": ""}
    source = READS.replace("{line}", text)
    folder = make_project(HEAD.format("src/handler.py") + yaml, **files, **{"src/handler.py": source})
    findings = plan_project(load_project(folder)).findings
    left = [finding for finding in findings if finding.code == "file-not-packed"]
    assert [finding.message.split()[3].rstrip(",") for finding in left] == expected
    assert all((finding.where or "").endswith("src/handler.py:2") for finding in left)


def test_a_name_joined_of_parts_and_one_for_those_who_run_the_file(make_project: Make) -> None:
    joined = 'import os\nPATH = os.path.join("", "assets", "merges.txt")\n'
    script = 'if __name__ == "__main__":\n    open("vocab.json")\n'
    files = {"handler.py": joined + FUNCTION + script, "vocab.json": "{}", "assets/merges.txt": ""}
    assert found(make_project(HEAD.format("handler.py"), **files)) == [("warning", "file-not-packed", "handler.py:2")]
