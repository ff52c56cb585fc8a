"""marpack.yaml with other samples: it says what was meant, and every other character of it is kept."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marpack.errors import ProjectError
from marpack.project.yaml_edits import update_samples, with_samples

HEAD = "name: m # the model\nversion: '1.0'\nhandler: h.py # ours\n"
OK = {"status": 200}
# before, samples, after
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no samples yet": (HEAD, {"a.png": OK}, HEAD + "samples:\n  - {input: a.png, expect: {status: 200}}\n"),
    "comments at the end": (
        HEAD + "\n# the end\n", {"a.png": OK},
        HEAD + "\n# the end\nsamples:\n  - {input: a.png, expect: {status: 200}}\n",
    ),
    "one more": (
        HEAD + "samples: # some\n- {input: a.png} # one\n# more to come\ntarget: marpack\n", {"b.png": OK},
        HEAD + "samples: # some\n- {input: a.png} # one\n# more to come\n- {input: b.png, expect: {status: 200}}\n"
        "target: marpack\n",
    ),
    "a first expectation": (
        HEAD + "samples:\n  - input: a.png # one\n  - input: b.png\n", {"a.png": OK},
        HEAD + "samples:\n  - input: a.png # one\n    expect: {status: 200}\n  - input: b.png\n",
    ),
    "a status gets company, and keeps its comments": (
        HEAD + "samples:\n- input: a.png\n  expect:\n    # always\n    status: 200 # one\n# end\n",
        {"a.png": OK | {"json": {"a": 1}, "shape": [2]}},
        HEAD + "samples:\n- input: a.png\n  expect:\n    # always\n    status: 200 # one\n# end\n"
        "    json: {a: 1}\n    shape: [2]\n",
    ),
    "an expectation over several lines": (
        HEAD + "samples:\n  - input: a.png\n    expect:\n      status: 404\n      body: |\n"
        "        gone\n\n  - input: b.png # two\n", {"a.png": OK},
        HEAD + "samples:\n  - input: a.png\n    expect:\n      status: 200\n  - input: b.png # two\n",
    ),
    "the expectation first": (
        HEAD + "samples:\n- expect:\n    status: 404\n  input: a.png\n", {"a.png": OK},
        HEAD + "samples:\n- expect:\n    status: 200\n  input: a.png\n",
    ),
    "a long one": (
        HEAD + "samples:\n  - input: a.png\n", {"b.png": {"status": 200, "json": {"x" * 60: "y" * 60}}},
        HEAD + f"samples:\n  - input: a.png\n  - input: b.png\n    expect:\n      status: 200\n"
        f"      json: {{{'x' * 60}: {'y' * 60}}}\n",
    ),
    "lines of Windows": (
        HEAD.replace("\n", "\r\n") + "samples:\r\n  - input: a.png # one\r\n", {"a.png": OK, "b.png": OK},
        HEAD.replace("\n", "\r\n") + "samples:\r\n  - input: a.png # one\r\n    expect: {status: 200}\r\n"
        "  - {input: b.png, expect: {status: 200}}\r\n",
    ),
    "a hash in text": (
        HEAD + "samples:\n  - {input: 'a#b.png', expect: {body: 'no # comment'}}\n", {"a#b.png": {"body": "# x"}},
        HEAD + "samples:\n  - {input: 'a#b.png', expect: {body: '# x'}}\n",
    ),
    "keys that YAML takes for others": (
        HEAD, {"a.png": {"json": {"7": 1, "no": "yes", "null": None, "1.5": True}}},
        HEAD + "samples:\n  - {input: a.png, expect: {json: {'7': 1, 'no': 'yes', 'null': null, '1.5': true}}}\n",
    ),
    "a marked end": (
        "---\n" + HEAD + "...\n", {"a.png": OK},
        "---\n" + HEAD + "samples:\n  - {input: a.png, expect: {status: 200}}\n",
    ),
    "nothing to do": (HEAD, {}, HEAD),
}  # fmt: skip


@pytest.mark.parametrize(("before", "samples", "after"), CASES.values(), ids=CASES)
def test_only_the_samples_change(before: str, samples: dict[str, Any], after: str):
    assert with_samples(before, samples, file="marpack.yaml") == after


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "config: {c: &c {status: 404}}\nsamples:\n  - {input: a.png, expect: *c}\n",
        HEAD + "samples:\n  - {input: a.png, expect: &e {status: 404}}\n  - {input: b.png, expect: *e}\n",
        HEAD + "samples:\n  - input: a.png\n    expect:\n      json:\n        a: 1 # c1\n",
    ],
)
def test_what_cannot_be_changed_safely_is_left_alone(text: str, tmp_path: Path):
    file = tmp_path / "marpack.yaml"
    file.write_text(text)
    with pytest.raises(ProjectError) as caught:
        update_samples(file, {"a.png": OK})
    assert caught.value.code == "unsafe-edit"
    assert file.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["marpack.yaml"]


def test_a_file_that_cannot_be_written_is_left_alone(tmp_path: Path):
    (tmp_path / "marpack.yaml").mkdir()
    with pytest.raises(ProjectError) as caught:
        update_samples(tmp_path / "marpack.yaml", {"a.png": OK})
    assert caught.value.code == "unreadable-file"


def test_the_file_keeps_its_mode_its_mark_and_its_link(tmp_path: Path):
    file = tmp_path / "real.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    file.chmod(0o640)
    link = tmp_path / "marpack.yaml"
    link.symlink_to(file)
    update_samples(link, {"a.png": OK})
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.read_bytes().startswith(b"\xef\xbb\xbfname: m # the model\n")
    assert yaml.safe_load(file.read_text("utf-8-sig"))["samples"] == [{"input": "a.png", "expect": OK}]


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
EXPECTATIONS = st.fixed_dictionaries({"status": st.integers(200, 500)}, optional={"json": VALUES, "body": st.text()})
NAMES = st.sampled_from(["a.png", "b b.txt", "samples/ü.json", "- x", "c: d"])
COMMENT = re.compile(r"# c\d+")


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draw a marpack.yaml with samples in some style, and a comment wherever one may stand."""
    lines = ["name: m # c0", "# c1", "version: '1'"]
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    dash = draw(st.sampled_from(["- ", "  - ", "    -   "]))
    inner = " " * len(dash)
    if names:
        lines.append("samples: # c2")
    for number, name in enumerate(names, 3):
        expect = draw(st.sampled_from(["", "expect: {status: 404}", "expect:\n{0}  status: 404\n{0}  text: x"]))
        expect = expect.format(inner, number) if "\n" in expect else expect
        if "\n" not in expect and draw(st.booleans()):
            both = ", ".join(filter(None, [f"input: {name!r}", expect]))
            lines.append(f"{dash}{{{both}}} # c{number}")
        else:
            lines.append(f"{dash}input: {name!r} # c{number}")
            lines += [f"{inner}{expect} # c{number}9"] if expect else []
        lines += [f"{inner}# c{number}2"] * draw(st.integers(0, 1))
    return "\n".join([*lines, "handler: h.py # c98", "# c99", ""])


@example(text=HEAD, samples={"a.png": {"status": 200, "body": "\x85"}})
@example(text=HEAD, samples={"a.png": {"status": 200, "body": "a\u2028"}})
@example(text=HEAD + "samples: []\n", samples={"a.png": OK})
@example(text=HEAD + "samples: [{input: a.png}]\n", samples={"a.png": OK, "b.png": OK})
@example(text="{name: m, version: '1', handler: h.py}\n", samples={"a.png": OK})
@example(text=HEAD + "samples:\n  - {input: a.png, expect: {\n    status: 404 # c1\n    }}\n", samples={"a.png": OK})
@example(text=HEAD + "samples:\n  - input: a.png\n    expect: # c1\n      status: 404\n", samples={"a.png": OK})
@example(text=HEAD, samples={"a.png": {"status": 200, "json": [6.073553856524109e-100, 1e17]}})
@example(text=HEAD + "samples:\n- input: a\n  expect: {status: 404}\n", samples={"a": OK | {"body": "0{"}})
@example(text="version: 1.10\n" + HEAD.replace("version", "x"), samples={"a.png": OK})
@settings(max_examples=20)
@given(text=documents(), samples=st.dictionaries(NAMES, EXPECTATIONS, min_size=1, max_size=4))
def test_it_says_what_was_meant_and_keeps_every_comment(text: str, samples: dict[str, Any]):
    changed = with_samples(text, samples, file="marpack.yaml")
    before, after = yaml.safe_load(text), yaml.safe_load(changed)
    assert {key: value for key, value in after.items() if key != "samples"} == {
        key: value for key, value in before.items() if key != "samples"
    }
    told = {sample["input"]: sample.get("expect") for sample in after["samples"]}
    kept = {sample["input"]: sample.get("expect") for sample in before.get("samples", [])}
    assert told == kept | samples
    assert sorted(COMMENT.findall(changed)) == sorted(COMMENT.findall(text))
