"""A project's small files: marpack.yaml, any YAML, labels and metrics_config."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from marpack.errors import ExitCode, NoProjectError, ProjectError
from marpack.inspection.yaml_document import MAX_BYTES
from marpack.project.load import (
    checked_metrics_config,
    count_labels,
    declared_metrics,
    labels_member,
    load_project,
    parse_document,
    read_document,
)
from marpack.project.schema import ProjectFile
from marpack.torchserve.metrics import SERVER_METRICS, Declared, MetricTypes, Section

EVERYTHING = """\
name: digits
version: "1.0"
weights: digits.pt
model_file: model.py
handler: handler.py
labels: labels.txt
requirements: requirements.txt
target: marpack
files: [vocab.json, {from: assets/, to: assets/}]
config:
  batchSize: 8
  pt2: {compile: {enable: true, backend: inductor}}
stand_ins: auto
samples:
  - input: samples/seven.png
    expect: {status: 200, json: {"7": {min: 0.9}}}
  - input: samples/other.png
    expect: {text: {contains: [a, b], regex: "c+"}, shape: [1, 3], body: "x"}
  - {input: bare.json}
"""


def test_every_key_of_the_file_is_read(make_project: Callable[..., Path]) -> None:
    folder = make_project(EVERYTHING)
    project = load_project(folder)
    expected = msgspec.structs.asdict(msgspec.convert(yaml.safe_load(EVERYTHING), ProjectFile))
    assert {key: getattr(project, key) for key in expected} == expected
    assert (project.folder, project.file) == (folder, f"{folder}/marpack.yaml")
    assert project.place("samples[1].expect.text.regex") == f"{folder}/marpack.yaml:18: samples[1].expect.text.regex"


@pytest.mark.parametrize("written", ["1.10", "2", "2024-01-01", "1e3", "0x10", '"1.0"', "no"])
def test_a_version_is_taken_as_it_is_written(make_project: Callable[..., Path], written: str) -> None:
    project = load_project(make_project(f"name: 7\nversion: {written}\nhandler: base_handler\n"))
    assert (project.name, project.version) == ("7", written.strip('"'))


HEAD = "name: n\nversion: 1\nhandler: h.py\n"
EXPECT = HEAD + "samples: [{{input: a, expect: {}}}]\n"
# marpack.yaml → the line and key, and the code of the one finding, and a word of its message or hint.
WRONG = {
    HEAD + "wieghts: a\n": ("4: wieghts", "unknown-key", "weights?"),
    HEAD + "zzz: 1\n": ("4: zzz", "unknown-key", ", ".join(ProjectFile.__struct_fields__)),
    HEAD + "1: a\n": ("4: 1", "unknown-key", "1"),
    EXPECT.format("{text: {containing: a}}"): ("4: samples[0].expect.text.containing", "unknown-key", "contains?"),
    "name: n\nversion: 1\n": ("", "missing-key", "handler"),
    HEAD + "files:\n  - {from: a}\n": ("5: files[0]", "missing-key", "to"),
    HEAD + "weights:\n": ("4: weights", "empty-key", "weights"),
    HEAD + "weights: [a]\n": ("4: weights", "wrong-type", "a list, not text"),
    HEAD + "files: a\n": ("4: files", "wrong-type", "'a', not a list"),
    EXPECT.format("{status: ok}"): ("4: samples[0].expect.status", "wrong-type", "'ok', not a number"),
    EXPECT.format("{status: true}"): ("4: samples[0].expect.status", "wrong-type", "true, not a number"),
    HEAD + "samples: [a.png]\n": ("4: samples[0]", "wrong-type", "'a.png', not a mapping of input, expect, generated"),
    HEAD + "files: [[a]]\n": ("4: files[0]", "wrong-type", "a list, not text or a mapping of from, to"),
    HEAD + "stand_ins: never\n": ("4: stand_ins", "wrong-type", "'never', not true or false or auto"),
    HEAD + "checks: {samples: warnin}\n": ("4: checks.samples", "wrong-type", "warning?"),
    HEAD + "checks: {memry: warning}\n": ("4: checks.memry", "unknown-key", "memory?"),
    HEAD + "target: torchsrve\n": ("4: target", "wrong-type", "torchserve?"),
}


@pytest.mark.parametrize("yaml", WRONG)
def test_a_mistake_is_reported_where_it_is(make_project: Callable[..., Path], yaml: str) -> None:
    folder = make_project(yaml)
    with pytest.raises(ProjectError) as caught:
        load_project(folder)
    (finding,) = caught.value.findings
    place, code, word = WRONG[yaml]
    assert (finding.where, finding.code) == (f"{folder}/marpack.yaml" + (f":{place}" if place else ""), code)
    assert word in f"{finding.message} {finding.hint}"


def test_every_problem_is_told_in_one_go(make_project: Callable[..., Path]) -> None:
    folder = make_project("version: []\nfiles: [{to: a}, 3, {from: a, to: b, x: 1}]\nsamples: {}\nwieghts: 1\n")
    with pytest.raises(ProjectError, match=r"marpack\.yaml .* 7 ") as caught:
        load_project(folder)
    keys = ("version", "from", "x", "samples", "wieghts", "name", "handler")
    assert len(caught.value.findings) == len(keys)
    for key, finding in zip(keys, caught.value.findings, strict=True):
        assert key in re.split(r"[' .]", finding.message)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n", "text\n"])
def test_a_file_that_holds_no_keys(make_project: Callable[..., Path], text: str) -> None:
    with pytest.raises(ProjectError) as caught:
        load_project(make_project(text))
    assert caught.value.code == "not-a-mapping"
    assert ("empty" in caught.value.what) == (text[:1] in {"", "#"})


def test_no_project_here(tmp_path: Path) -> None:
    def refused(path: Path) -> NoProjectError:
        with pytest.raises(NoProjectError) as caught:
            load_project(path)
        return caught.value

    assert refused(tmp_path).where == str(tmp_path)
    assert "marpack init" in str(refused(tmp_path).hint)
    assert refused(tmp_path / "nowhere").where == str(tmp_path / "nowhere")
    (tmp_path / "marpack.yml").touch()
    assert refused(tmp_path).hint == "Rename marpack.yml to marpack.yaml."
    assert refused(tmp_path / "marpack.yml").where == str(tmp_path / "marpack.yml")
    (tmp_path / "marpack.yaml").mkdir()
    assert refused(tmp_path).where == str(tmp_path / "marpack.yaml")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(plain)
def test_plain_values_come_back_as_they_went_in(value: object) -> None:
    text = yaml.safe_dump(value)
    assert parse_document(text, file="f").value == value


@given(st.text(alphabet="ab:-[]{}&*!|>\"'#?, \n\t\x00é%@`01.~<=", max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    error = None
    try:
        parse_document(text, file="f")
    except ProjectError as raised:
        error = raised
    assert error is None or ((error.where or "").startswith("f") and "\n" not in error.what)


def test_lines_and_texts_belong_to_their_keys() -> None:
    document = parse_document("a: 1.10\nb:\n  - x\n  - c: 2020-01-01\n    d: {e: no}\n", file="f")
    assert document.lines == {"a": 1, "b": 2, "b[0]": 3, "b[1]": 4, "b[1].c": 4, "b[1].d": 5, "b[1].d.e": 5}
    assert document.texts == {"a": "1.10", "b[0]": "x", "b[1].c": "2020-01-01", "b[1].d.e": "no"}


_TENFOLD = "[{0},{0},{0},{0},{0},{0},{0},{0},{0},{0}]"
BOMB = "a0: &a0 1\n" + "".join(f"a{n}: &a{n} {_TENFOLD.format(f'*a{n - 1}')}\n" for n in range(1, 9))

REFUSED = {
    "bomb": (BOMB, 6, "50,000"),
    "self": ("a: 1\nb: &b [1, *b]\n", 2, "*b"),
    "deep": ("a: " + "[" * 100, 1, "64"),
    "twice": ("a: 1\nb: 2\na: 3\n", 3, "line is 1"),
    "object": ("a: !!python/object/apply:os.system [id]", 1, "python/object/apply:os.system"),
    "two documents": ("a: 1\n---\nb: 1\n", 2, "document"),
    "undefined alias": ("a: *b\n", 1, "alias"),
    "a tab": ("a:\n\tb: 1\n", 2, "tabs"),
    "a tab in a list": ("a: [1\n\tb: 1\n", 2, "tabs"),
    "a tab where it may be": ("a: b: c\t\n\td", 1, "this line, or the one before"),
    "a list without an end": ("a: 1\nb: [1\n", 2, "closing bracket"),
    "a mapping without an end": ("a: {b: c\nd: e\n", 1, "closing brace"),
    "a quotation without an end": ('a: "b\nc: d\ne: f\n', 1, "closing quotation mark"),
    "a key alone": ("a: 1\nb\nc: 2\n", 2, "'key: value'"),
}


@pytest.mark.parametrize(("text", "line", "word"), REFUSED.values(), ids=REFUSED)
def test_refuses_what_no_project_needs(text: str, line: int, word: str) -> None:
    with pytest.raises(ProjectError) as caught:
        parse_document(text, file="f")
    assert caught.value.where == f"f:{line}"
    assert word in f"{caught.value.what} {caught.value.hint}"


def test_aliases_and_merges_are_taken_when_they_stay_small() -> None:
    document = parse_document("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n", file="f")
    assert document.value == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]}


def test_refuses_a_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"#" * MAX_BYTES)
    assert read_document(tmp_path / "f.yaml").value is None
    (tmp_path / "f.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ProjectError, match="larger than 1024 KiB"):
        read_document(tmp_path / "f.yaml")


@pytest.mark.parametrize("data", [b"a: \xff\xfe", b"a: \x00", bytes(range(256))])
def test_refuses_bytes_that_are_no_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f.yaml").write_bytes(data)
    with pytest.raises(ProjectError) as caught:
        read_document(tmp_path / "f.yaml")
    assert caught.value.code == "not-utf8"


ANIMALS = {"0": "cat", "1": "dog, small", "2": "no"}

SPELLINGS = {
    "l.txt": "cat\ndog, small\nno\n",
    "windows.txt": "\ufeffcat\r\n dog, small \r\nno\r\n\r\n",
    "list.json": '["cat", "dog, small", "no"]',
    "map.yml": "1: dog, small\n2: no\n0: cat\n",
    "header.csv": 'index, label\n1, "dog, small"\n0,cat\n2,no\n',
    "gaps.csv": '\n1,"dog, small"\n\n,\n0,cat\n2,no\n\n',
    "other-header.csv": 'nr,text\n1,"dog, small"\n0,cat\n2,no\n',
    "turned.csv": '"label","id"\n"dog, small",1\ncat,0\nno,2\n',
    "one-column.csv": 'cat\n"dog, small"\nno\n',
    "one-column-header.csv": 'label\ncat\n"dog, small"\nno\n',
}


@pytest.mark.parametrize(("name", "text"), SPELLINGS.items())
def test_spellings_agree(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert labels_member(path) == json.dumps(ANIMALS, indent=2).encode() + b"\n"


@pytest.mark.parametrize(
    "text", ['{"0":"cat"}', '{"0": ["n01", "cat"]}', '{"object_type_names": ["a", "b"]}', '{"any": {"thing": 1}}']
)
def test_a_json_object_is_packed_byte_for_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "index_to_name.json"
    path.write_text(text)
    assert labels_member(path) == path


def test_lists_as_labels_and_object_type_names_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "l.yaml"
    path.write_text("object_type_names: [a, b]\n")
    assert json.loads(labels_member(path)) == {"object_type_names": ["a", "b"]}
    path.write_text("10: [n01, cat]\n9: [n02, é]\n")
    assert labels_member(path) == json.dumps({"9": ["n02", "é"], "10": ["n01", "cat"]}, indent=2).encode() + b"\n"


# What is wrong → the file, its content, the line, a word of the message.
WRONG_LABELS = {
    "empty line": ("l.txt", "a\n\nb\n", ":2", "1"),
    "nothing": ("l.txt", "\n", "", "no labels"),
    "no index": ("l.csv", "0,a\nb,c\n", ":2", "'b'"),
    "no label": ("l.csv", "0,a\n1\n", ":2", "no label"),
    "index twice": ("l.csv", "0,a\n0,b\n", ":2", "repeated"),
    "open quote": ("l.csv", '0,"a\n', ":1", "CSV"),
    "index twice in two spellings": ("l.yaml", "0: a\n00: b\n", "", "repeated"),
    "no index in yaml": ("l.yaml", "cat: 0\n", "", "'cat'"),
    "no text": ("l.json", "[1, 2]", "", "label of 0"),
    "no text in a list of them": ("l.json", '["a", ["b", 2]]', "", "label of 1"),
    "an empty list": ("l.yaml", "0: []\n", "", "label of 0"),
    "a number": ("l.json", "7", "", "mapping"),
    "bad json": ("l.json", '{\n"0": a}', ":2", "JSON"),
    "deep json": ("l.json", "[" * 100_000, "", "deep"),
    "bad yaml": ("l.yaml", "a: [", ":2", "YAML"),
    "other suffix": ("l.tsv", "a", "", "l.tsv"),
    "no text at all": ("l.txt", "\0", "", "UTF-8"),
}


@pytest.mark.parametrize(("name", "text", "line", "word"), WRONG_LABELS.values(), ids=WRONG_LABELS)
def test_invalid_labels_are_reported_with_their_line(
    tmp_path: Path, name: str, text: str, line: str, word: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ProjectError) as caught:
        labels_member(path)
    assert caught.value.where == f"{path}{line}"
    assert word in caught.value.what


@pytest.mark.parametrize("text", ["{}", "[]", '{"lr": "1"}', '{"0": "a", "lr": "1"}', "7"])
def test_what_does_not_read_as_labels_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    assert count_labels(tmp_path / "settings.json") is None


def test_a_file_of_over_a_megabyte_is_not_looked_at_for_labels(tmp_path: Path) -> None:
    for size, count in ((1 << 20, 1), ((1 << 20) + 1, None)):
        (tmp_path / "l.txt").write_bytes(b"x" * size)
        assert count_labels(tmp_path / "l.txt") == count


METRIC = "{name: a, unit: ms, dimensions: [Level]}"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "metrics.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "text",
    [
        f"model_metrics: {{gauge: [{METRIC}], histogram: []}}",
        f"mode: log\nts_metrics: 5\nmodel_metrics: {{counter: [{METRIC}]}}",  # a worker reads model_metrics alone
        "model_metrics: {counter: [{name: a, unit: ms, dimensions: [], help: text}]}",
    ],
)
def test_a_file_with_which_workers_start_is_taken(tmp_path: Path, text: str):
    assert checked_metrics_config(written(tmp_path, text)) == str(tmp_path.resolve() / "metrics.yaml")


@pytest.mark.parametrize("text", ["", "[1]", "a: 1", "model_metrics:", "model_metrics: [1]", "model_metrics: {}"])
def test_a_file_without_metrics_is_told_what_it_needs(tmp_path: Path, text: str):
    with pytest.raises(ProjectError) as caught:
        checked_metrics_config(written(tmp_path, text))
    assert (caught.value.code, caught.value.exit_code) == ("no-model-metrics", ExitCode.USAGE)


@pytest.mark.parametrize(
    ("text", "where", "code"),
    [
        ("model_metrics:\n  counts: []\n", "2: model_metrics.counts", "unknown-key"),
        ("model_metrics:\n  counter:\n", "2: model_metrics.counter", "empty-key"),
        ("model_metrics:\n  gauge:\n  - name: a\n    unit: ms\n", "3: model_metrics.gauge[0]", "missing-key"),
        ("model_metrics: {gauge: [a]}\n", "1: model_metrics.gauge[0]", "wrong-type"),
        ("ts_metrics: 5\nmodel_metrics: {gauge: []}", "1: ts_metrics", "wrong-type"),
        ("ts_metrics: {meter: []}\nmodel_metrics: {gauge: []}", "1: ts_metrics.meter", "unknown-key"),
    ],
)
def test_a_mistake_in_metrics_is_reported_with_its_line(tmp_path: Path, text: str, where: str, code: str):
    with pytest.raises(ProjectError) as caught:
        declared_metrics(written(tmp_path, text))
    (finding,) = caught.value.findings
    assert (finding.where, finding.code) == (f"{tmp_path / 'metrics.yaml'}:{where}", code)


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(ProjectError) as caught:
        checked_metrics_config(tmp_path / "gone.yaml")
    assert (caught.value.code, caught.value.where) == ("metrics-file-not-found", str(tmp_path / "gone.yaml"))


def test_a_file_without_ts_metrics_leaves_the_server_its_own(tmp_path: Path):
    declared = declared_metrics(written(tmp_path, f"ts_metrics:\nmodel_metrics: {{histogram: [{METRIC}]}}"))
    handlers = [metric for metric in declared if metric.section is Section.MODELS]
    assert declared == (*SERVER_METRICS, *handlers)
    histogram = MetricTypes.HISTOGRAM
    assert handlers == [
        Declared(section=Section.MODELS, kind=histogram, name="a", unit="ms", labels=("Level", "Hostname"))
    ]


def test_a_file_with_ts_metrics_says_all_that_the_server_shows(tmp_path: Path):
    text = f"ts_metrics: {{counter: [{METRIC}], gauge: }}\nmodel_metrics: {{gauge: [{METRIC}]}}"
    server, handlers = declared_metrics(written(tmp_path, text))
    assert (server.section, server.kind, server.labels) == (Section.SERVER, MetricTypes.COUNTER, ("Level",))
    assert (handlers.section, handlers.kind) == (Section.MODELS, MetricTypes.GAUGE)


def test_of_metrics_with_one_name_the_last_counts(tmp_path: Path):
    text = f"ts_metrics: {{}}\nmodel_metrics: {{histogram: [{METRIC}], counter: [{METRIC}]}}"
    (metric,) = declared_metrics(written(tmp_path, text))
    assert metric.kind is MetricTypes.HISTOGRAM  # the server reads counters first
