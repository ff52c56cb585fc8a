"""Every result is what the command writes with --json, and a short line of text."""

import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from invoking import invoke
from lazy import jsonschema

import marpack
from marpack.api import results
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput, Result, results_of
from marpack.torchserve.http import Part, Request, Response
from tools.schemas import REPORTS

ROOT = Path(__file__).parents[2]
TIMES = {"seconds", "stages", "throughput", "load", "peak_memory", "metrics"}
TIME = re.compile(r"in [\d.]+ m?s")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Go to a folder with two versions of a project."""
    folder = tmp_path_factory.mktemp("work")
    for name, version in (("low", "1.0"), ("other", "1.1")):
        (folder / name).mkdir()
        (folder / name / "marpack.yaml").write_text(
            f"name: low\nversion: '{version}'\nhandler: handler.py\n"
            "samples:\n- input: a.txt\n  expect: {text: a}\nfiles: [none.*]\n"
        )
        (folder / name / "a.txt").write_text("A")
        (folder / name / "handler.py").write_text(
            "def handle(data, context):\n    return [row['body'].lower() for row in data or ()]\n"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def written(*words: str) -> Any:
    """Return what a command writes."""
    done = invoke(*words, code=None, forks=False)  # as the functions do
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)


def timeless(value: Any) -> Any:
    """Return JSON without what is another time's."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, str):
        return TIME.sub("in … s", value)
    return [timeless(item) for item in value] if isinstance(value, list) else value


def fits(command: str, document: Any) -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / f"{command}.json").read_text())
    jsonschema.validate(document, schema)


SAME = {
    "build": (("build", "low", "--json"), lambda: marpack.build("low")),
    "inspect": (("inspect", "low", "--verify", "--json"), lambda: marpack.inspect("low", verify=True)),
    "diff": (("diff", "low", "other", "--json"), lambda: marpack.diff("low", "other")),
    "unpack": (
        ("unpack", "low/low.mar", "-d", "unpacked", "--only", "*.py", "--only", "MAR-INF", "--force", "--json"),
        lambda: marpack.unpack("low/low.mar", "unpacked", only=["*.py", "MAR-INF"], force=True),
    ),
    "init": (
        ("init", "new", "-t", "function", "--force", "--json"),
        lambda: marpack.init("new", template="function", force=True),
    ),
    "check": (
        ("check", "low", "--only", "samples", "--only", "loads", "--json"),
        lambda: marpack.check("low", only=["samples", "loads"]),
    ),
    "run": (
        ("run", "low", "--input", "low/a.txt", "low/marpack.yaml", "--batch-size", "2", "--json"),
        lambda: marpack.run("low", [Path("low/a.txt"), Path("low/marpack.yaml")], batch_size=2),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_result_is_what_the_command_writes_and_a_short_line(work: Path, name: str) -> None:
    words, call = SAME[name]
    call(), call()  # what is there already is told of by both
    theirs, ours = written(*words), call()
    assert timeless(ours.to_dict()) == timeless(theirs)
    assert ours.to_dict().keys() == theirs.keys()
    fits(name, ours.to_dict())
    assert msgspec.convert(ours.to_dict(), REPORTS[name][0], strict=False).__class__ in type(ours).__mro__
    assert (repr(ours).count("\n"), len(repr(ours)) < 100) == (0, True)
    with pytest.raises(AttributeError):
        ours.seconds = 5.0


def test_an_answer_is_a_line_of_jsonl(work: Path) -> None:
    with marpack.load("low") as model:
        answer = model.predict(Path("low/a.txt"))
    theirs = json.loads(invoke("run", "low", "--input", "low/a.txt", "--jsonl", forks=False).stdout)
    assert timeless(answer.to_dict()) == timeless(theirs) | {"input": answer.input}
    fits("run-jsonl", answer.to_dict())


RESPONSE = Response(status=200, phrase="OK", content_type="application/json", body=b'{"a": 0.5}')
(RESULT,) = results_of(("x",), BatchResult(responses=(RESPONSE,)))


def test_what_was_asked_is_no_part_of_an_answer() -> None:
    asked = Input("x", Request(id="1", parts=(Part("body", b"secret text", "text/plain"),)))
    answer, bare = results.Answer.to(AnsweredInput(asked, RESULT), {}, "handler.py"), results.Answer.of(RESULT)
    assert answer == bare
    assert "secret" not in f"{answer!r} {answer.to_dict()} {pickle.dumps(answer)!r}"
    assert "secret text" in answer._repr_html_()
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert "secret" not in pickle.loads(pickle.dumps(answer))._repr_html_()
    assert isinstance(answer, Result)
    assert answer.json() == {"a": 0.5}


def test_a_long_answer_has_a_short_line() -> None:
    long = results.Answer.of(msgspec.structs.replace(RESULT, body="x" * 1_000_000, input="y" * 1_000_000))
    assert len(repr(long)) < 100
    assert repr(results.Answer.of(RESULT)) == 'Answer(200, {"a":0.5})'
