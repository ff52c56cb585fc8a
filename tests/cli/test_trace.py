"""`marpack run --trace` and `marpack check --hermetic` as a person asks for them, and what does not go with them."""

import json
from pathlib import Path

import pytest
from cli.running import marpack

HANDLER = """
def handle(data, context):
    if data is None:
        open("/etc/passwd").close()
        return
    if "two" in str(data[0]):
        for number in range(30):
            open(f"/etc/{'group' if number else 'shells'}").close()
    return [b"yes" for _ in data]
"""
HERMETIC = "def handle(data, context):\n    return [b'yes' for _ in data or ()]\n"


@pytest.fixture
def touching(make_mar) -> str:
    return str(make_mar(HANDLER))


def test_what_is_touched_is_told_below_the_answers(touching: str):
    done = marpack("run", touching, "--data", "one", "--data", "two", "--trace")
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert lines[-4].startswith("not hermetic")
    assert lines[-3:] == [
        "read /etc/group handle",
        "read /etc/passwd initialize",
        "read /etc/shells handle",
    ]
    assert max(map(len, done.stderr.splitlines())) <= 80


def test_in_json_each_input_has_its_own(touching: str):
    told = json.loads(marpack("run", touching, "--data", "one", "--data", "two", "--trace", "--json").stdout)
    of_inputs = [[each["target"] for each in result["touched"]] for result in told["results"]]
    assert (told["hermetic"], of_inputs) == (False, [[], ["/etc/shells", "/etc/group"]])
    assert told["loaded"]["touched"] == [{"kind": "read", "target": "/etc/passwd", "stage": "initialize"}]
    assert [each["target"] for each in told["touched"]] == ["/etc/group", "/etc/passwd", "/etc/shells"]


def test_the_report_says_whether_the_handler_is_hermetic(make_mar, touching: str, tmp_path: Path):
    page = tmp_path / "report.html"
    marpack("run", touching, "--data", "one", "--trace", "--report", str(page))
    assert ">Not hermetic<" in page.read_text()
    assert "/etc/passwd" in page.read_text()
    done = marpack("run", str(make_mar(HERMETIC)), "--data", "one", "--trace", "--report", str(page), "--workers", "2")
    assert done.stderr.splitlines()[-1] == "hermetic"
    assert ">Hermetic<" in page.read_text()


def test_what_does_not_load_still_tells_what_it_touched(make_mar):
    done = marpack("run", str(make_mar("open('/nowhere/weights.pt')")), "--data", "x", "--trace", code=4)
    assert "read     /nowhere/weights.pt" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "run --trace --in-process",
        "run --trace --repeat 3",
        "run --trace --unpacked",
        "check --hermetic --skip proved",
        "check --hermetic --skip hermetic",
        "check --only hermetic --skip proved",
        "check --hermetic --allow-unproved inputs",
        "check --only hermetic --allow-unproved inputs",
        "check --hermetic --compile on,off",
    ],
)
def test_options_that_exclude_each_other_are_refused(make_mar, words: str):
    command, *rest = words.split()
    done = marpack(command, str(make_mar(HERMETIC)), "--data", "x", *rest, code=2)
    assert ("--trace" if command == "run" else "hermetic") in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("hermetic", ["{reed: [/x]}", "{read: /x}", "[/x]", "{connect: [[x]]}"])
def test_an_invalid_allowance_is_refused(tmp_path: Path, hermetic: str):
    (tmp_path / "handler.py").write_text(HERMETIC)
    (tmp_path / "marpack.yaml").write_text(f"name: p\nversion: '1'\nhandler: handler.py\nhermetic: {hermetic}\n")
    assert "hermetic" in marpack("check", "--hermetic", cwd=tmp_path, code=2).stderr
