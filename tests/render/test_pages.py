"""The pages of results on the console, line by line: their content, what is cut short, and after how many lines."""

from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from marpack.archive.index import Metadata
from marpack.archive.protocol import ArchiveForm, Method
from marpack.findings import Finding, Severity
from marpack.inspection.diff import Change, Diff, FieldDifference, TensorDiff
from marpack.inspection.facts import (
    ConfigFacts,
    HandlerFacts,
    Inspection,
    LabelFacts,
    MemberFacts,
    TensorFacts,
    Verified,
    WeightsFacts,
)
from marpack.inspection.pickles import PickleFacts, PickleScan, PickleVerdict, Unscanned
from marpack.project.plan import Format
from marpack.render.build import BuildReport, InitReport, build_page, init_page, show_warnings
from marpack.render.console import page_lines
from marpack.render.pages import SAFE_COVERS, diff_page, inspection_page
from marpack.weights.kind import Program, ProgramKind, WeightsFormat
from marpack.weights.tensors import Port, ScriptMethod

TRUST = PickleVerdict.NEEDS_TRUST


def facts(model: dict[str, Any] | None = None, **values: Any) -> Inspection:
    given: dict[str, Any] = {
        "source": "net.mar",
        "form": ArchiveForm.MAR,
        "content_digest": "sha256:12",
        "manifest": {"runtime": "python", "model": {"modelName": "net", "handler": "h.py", **(model or {})}},
        "handler": HandlerFacts(entry_point="h.py", file="h.py", function="handle"),
        "members": (),
    }
    return Inspection(**(given | values))


def member(name: str, size: int = 10, **values: Any) -> MemberFacts:
    return MemberFacts(**({"name": name, "size": size, "compressed_size": size, "method": Method.STORED} | values))


def shown(width: int = 80, **values: Any) -> list[str]:
    return [click.unstyle(line) for line in page_lines(inspection_page(facts(**values)), width)]


def told(label: str, **values: Any) -> list[str]:
    """Return what the page says under a label."""
    return [line[9:] for line in shown(**values) if line.startswith(f"  {label} ")]


def pickle(where: str, verdict: PickleVerdict = TRUST, names: int = 1) -> PickleFacts:
    imported = tuple(f"mine.C{number}" for number in range(names))
    return PickleFacts(
        where=where, verdict=verdict, globals=imported, opcodes=1, weights_only=False, runs_no_code=False
    )


def test_what_the_author_says_is_shown_and_told_from_what_is_known() -> None:
    said = Metadata(
        license="MIT",
        authors=tuple(f"author {number}" for number in range(10)),
        description="Tells digits\napart.\x1b[31m",
        homepage="https://example.org",
    )
    assert told("about", metadata=said) == ["Tells digits apart.\\x1b[31m"]
    assert told("rights", metadata=said) == ["MIT"]
    assert told("author", metadata=said)[0].startswith("author 0, author 1")
    assert "and 2 more" in "".join(shown(metadata=said))
    assert told("page", metadata=said) == ["https://example.org"]
    assert [told(label, metadata=Metadata()) for label in ("about", "rights", "author", "page")] == [[]] * 4
    origin = " ".join(told("made", provenance={"builder": "marpack 1", "source_commit": "a" * 40}))
    assert origin.startswith(f"by marpack 1, from commit {'a' * 40}")


PAGE = """\
net 1.0
  source net.mar
  digest sha256:12
  bytes  all 2.0 kB read, as its digests say; for its signer: marpack verify
  made   by marpack 1, on today, for torchserve, runtime python, with 2 samples
  entry  h.py: function handle
  labels 2: cat, dog
  needs  numpy, scipy

config
  batchSize: 2
  pt2:
    compile: {}

w.pt  state_dict
  holds  1,500 parameters in 2 tensors, 6.0 kB, float32
  method forward(x) -> Tensor
  input  x float32 [batch, 3]
  output y
         author: me
  layer.weight  float32  [3, 500]    5.9 kB
  layer.bias    float32  [10]      40 bytes

members  4, 2.0 kB
  w.pt         1.0 kB  deflated to 50%  0123456789ab
  data/
    words/
      a.txt    1 byte  stored
    b.txt      1.0 kB  stored
  h.py       10 bytes  stored

pickles  needs trust, 2 read
  w.pt!data.pkl  needs trust
         mine.C0, mine.C1

findings
  error net.mar!w.pt: it is damaged (damaged-member)
    hint: copy it again
  warning one (first-of-two)
  warning two (second-of-two)
  note three (small)
"""


def found(code: str, severity: Severity, message: str, **more: str) -> Finding:
    return Finding(code=code, severity=severity, message=message, **more)


def test_the_whole_page():
    lines = shown(
        manifest={"runtime": "python", "createdOn": "today", "model": {"modelName": "net", "modelVersion": "1.0"}},
        provenance={"builder": "marpack 1"},
        target="torchserve",
        samples=2,
        verified=Verified(members=4, bytes=2000, intact=True, signed_off=True),
        labels=LabelFacts(count=2, first=("cat", "dog")),
        requirements=("numpy", "scipy"),
        config=ConfigFacts(file="c.yaml", text="---\n# ours\nbatchSize: 2\n\n  # more\npt2:\n  compile: {}\n"),
        weights=(
            WeightsFacts(
                member="w.pt",
                kind=WeightsFormat.STATE_DICT,
                tensors=2,
                parameters=1500,
                bytes=6000,
                dtypes={"float32": 2},
                largest=(
                    TensorFacts(name="layer.weight", dtype="float32", shape=(3, 500), bytes=5900),
                    TensorFacts(name="layer.bias", dtype="float32", shape=(10,), bytes=40),
                ),
                methods=(ScriptMethod(name="forward", signature="(x) -> Tensor"),),
                inputs=(Port(name="x", dtype="float32", shape=("batch", 3)),),
                outputs=(Port(name="y"),),
                metadata={"author": "me"},
            ),
        ),
        members=(
            member("w.pt", 1000, compressed_size=500, method=Method.DEFLATED, sha256="0123456789abcdef"),
            member("data/words/a.txt", 1),
            member("data/b.txt", 1000),
            member("h.py"),
        ),
        pickles=PickleScan(verdict=TRUST, pickles=(pickle("w.pt!data.pkl", names=2), pickle("x", PickleVerdict.SAFE))),
        findings=(
            found("first-of-two", Severity.WARNING, "one"),
            found("small", Severity.NOTE, "three"),
            found("second-of-two", Severity.WARNING, "two"),
            found("damaged-member", Severity.ERROR, "it is damaged", where="net.mar!w.pt", hint="copy it again"),
        ),
    )
    assert lines == PAGE.splitlines()


@pytest.mark.parametrize(
    ("label", "values", "text"),
    [
        *(
            ("entry", {"handler": HandlerFacts(entry_point="h.py:x", **handler)}, text)
            for handler, text in (
                ({"problem": "line 3: it breaks off", "file": "h.py"}, "h.py:x: line 3: it breaks off"),
                ({"file": "h.py", "function": "x"}, "h.py: function x"),
                ({}, "h.py:x, a handler of the server's own"),
                ({"file": "h.py", "class_name": "Own"}, "h.py: class Own, defines nothing"),
                (
                    {"file": "h.py", "class_name": "Own", "bases": ("A", "b.B"), "stages": ("initialize", "handle")},
                    "h.py: class Own(A, b.B), defines initialize, handle",
                ),
            )
        ),
        *(
            ("bytes", {"verified": Verified(members=1, bytes=5, intact=intact, signed_off=compared)}, text)
            for intact, compared, text in (
                (True, False, "all 5 bytes read, as its CRCs say; for its signer: marpack verify"),
                (False, True, "DIFFERENT from the packed bytes: see the findings"),
            )
        ),
        ("labels", {"labels": LabelFacts(count=1000, first=("a", "b"))}, "1,000: a, b, …"),
        ("labels", {"labels": LabelFacts(problem="it is no JSON")}, "it is no JSON"),
    ],
)
def test_the_lines_of_facts(label: str, values: dict[str, Any], text: str):
    assert told(label, **values) == [text]
    assert label == "entry" or told(label) == []


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"problem": "it is cut"}, ["  broken it is cut"]),
        ({"kind": WeightsFormat.ONNX}, []),
        (
            {"tensors": 3, "parameters": 3, "bytes": 9, "dtypes": {"float32": 2, "int8": 1}},
            ["  holds  3 parameters in 3 tensors, 9 bytes, float32 (2), int8 (1)"],
        ),
        ({"inputs": (Port(name="x", dtype="int64"),)}, ["  holds  no tensors", "  input  x int64 unknown rank"]),
        (
            {"kind": WeightsFormat.ONNX, "outputs": tuple(Port(name=f"y{number}") for number in range(9))},
            [f"  output y{number}" for number in range(8)],
        ),
        (
            {
                "kind": WeightsFormat.TORCHSCRIPT,
                "methods": tuple(ScriptMethod(name=f"m{number}", signature="()") for number in range(9)),
            },
            [f"  method m{number}()" for number in range(8)],
        ),
        (
            {"kind": WeightsFormat.ONNX, "facts": {"opset": "17"}, "metadata": {"note": "x" * 301}},
            ["         opset: 17", "         note:", f"         {'x' * 300}"],
        ),
    ],
)
def test_what_weights_hold(values: dict[str, Any], lines: list[str]):
    weights = WeightsFacts(**({"member": "w.pt", "kind": WeightsFormat.STATE_DICT} | values))
    page = shown(weights=(weights,))
    begin = page.index(f"w.pt  {weights.kind}") + 1
    assert page[begin : page.index("members  0, 0 bytes") - 1] == lines


CUT = PickleFacts(where="w", verdict=TRUST, opcodes=1, weights_only=False, runs_no_code=False, problem="cut off")


@pytest.mark.parametrize(
    ("values", "title", "last"),
    [
        ({}, "none", SAFE_COVERS),
        ({"pickles": (pickle("w", PickleVerdict.SAFE),)}, "safe, 1 read", SAFE_COVERS),
        (
            {"pickles": (pickle("w", PickleVerdict.SAFE),), "unfetched": 1200},
            "safe, 1 read; 1,200 members of numbers and code, which torch never unpickles, not fetched",
            SAFE_COVERS,
        ),
        ({"verdict": TRUST, "pickles": (CUT,)}, "needs trust, 1 read", "cut off"),
        ({"verdict": TRUST, "unscanned": (Unscanned("a", "b"),) * 2}, "needs trust, 0 read, 2 not scanned", None),
    ],
)
def test_the_verdict_on_pickles(values: dict[str, Any], title: str, last: str | None):
    page = shown(pickles=PickleScan(**values))
    begin = page.index(f"pickles  {title}")
    assert [line.strip() for line in page[begin + 1 :]][-1:] == ([last] if last else [])


def test_labels_are_dim_and_findings_have_colors():
    red, yellow, cyan = (partial(click.style, fg=color) for color in ("red", "yellow", "cyan"))
    dim, bold = partial(click.style, dim=True), partial(click.style, bold=True)
    found_all = (found("a", Severity.WARNING, "one"), found("b", Severity.NOTE, "two"))
    values = {
        "config": ConfigFacts(file="c.yaml", text="a: 1\n"),
        "weights": (WeightsFacts(member="w.pt", kind=WeightsFormat.ONNX),),
        "pickles": PickleScan(verdict=PickleVerdict.DANGEROUS, pickles=(pickle("x"),)),
        "findings": found_all,
    }
    page = list(page_lines(inspection_page(facts(**values)), 80))
    for line in (
        f"{dim('  source ')}net.mar",
        f"{bold('w.pt')}  {dim('ONNX')}",
        f"{bold('pickles')}  {red('dangerous, 1 read')}",
        f"  x  {yellow('needs trust')}",
        f"  {yellow('warning')} one {dim('(a)')}",
        f"  {cyan('note')} two {dim('(b)')}",
    ):
        assert line in page


FORTY = [f"  ~ key{number:<2}  0 → 1" for number in range(40)]
EIGHT = [f"  lib{number}.so  native code" for number in range(8)]
PICKLES = [line for number in range(8) for line in (f"  w{number}  needs trust", "         mine.C0")]
CONFIG = [f"  key{number}: 1" for number in range(20)]


@pytest.mark.parametrize(("more", "line"), [(0, []), (1, ["  … and 1 more"]), (1000, ["  … and 1,000 more"])])
def test_of_many_rows_the_first_are_shown(more: int, line: list[str]):
    assert compared(config=tuple(differs(f"key{n}", before=0, after=1) for n in range(40 + more)))[5:] == FORTY + line
    page = shown(
        programs=tuple(Program(f"lib{number}.so", ProgramKind.NATIVE) for number in range(8 + more)),
        pickles=PickleScan(verdict=TRUST, pickles=tuple(pickle(f"w{number}") for number in range(8 + more))),
        config=ConfigFacts(file="c.yaml", text="".join(f"key{number}: 1\n" for number in range(20 + more))),
        requirements=tuple(f"p{number}" for number in range(8 + more)),
    )
    for title, rows in (("programs", EIGHT), ("pickles", PICKLES), ("config", CONFIG)):
        begin = next(number for number, text in enumerate(page) if text.startswith(title)) + 1
        assert page[begin : page.index("", begin) if "" in page[begin:] else None] == rows + line
    (needs,) = (text for text in page if text.startswith("  needs "))
    assert needs.endswith(f"p6, p7{f' and {more:,} more' if more else ''}")


def member_tree(members: list[MemberFacts]) -> list[str]:
    lines = shown(members=tuple(members))
    begin = next(number for number, line in enumerate(lines) if line.startswith("members ")) + 1
    return lines[begin : lines.index("", begin)]


@pytest.mark.parametrize(("count", "hidden"), [(40, 0), (41, 0), (42, 2), (2000, 1960)])
def test_of_a_crowded_folder_the_first_forty_are_shown(count: int, hidden: int):
    lines = member_tree([member(f"data/f{number}") for number in range(count)] + [member("last")])
    assert lines[0] == "  data/"
    assert lines[-1].split()[0] == "last"
    files = lines[1:-1]
    if hidden:
        assert files.pop() == f"    … and {hidden:,} more"
    assert [line.split()[0] for line in files] == [f"f{number}" for number in range(count - hidden)]


@pytest.mark.parametrize("count", [199, 200, 300])
def test_a_tree_ends_after_two_hundred_lines(count: int):
    lines = member_tree([member(f"d{number % 10}/{number}") for number in range(count - 10)])
    more = ["  … and more: --json lists all of them"] if count > 200 else []
    assert len(lines) == min(count, 200) + len(more)
    assert lines[min(count, 200) :] == more


def differs(name: str, change: Change = Change.CHANGED, before: Any = None, after: Any = None) -> FieldDifference:
    return FieldDifference(name=name, change=change, before=before, after=after)


def compared(width: int = 80, **values: Any) -> list[str]:
    given: dict[str, Any] = {"before": "a.mar", "after": "b.mar", "same": False}
    return [click.unstyle(line) for line in page_lines(diff_page(Diff(**(given | values))), width)]


def size(count: int) -> dict[str, Any]:
    return {"size": count, "sha256": None}


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


DIFFERENCES = """\
different
  -      a.mar
  +      b.mar

manifest
  ~ model.modelVersion  1.0 → 2
  + model.extensions    ["a","b"]
  - createdOn           today

recorded
  ~ target  torchserve → marpack

members
  ~ handler.py  10 bytes → 1.0 kB
  ~ labels.txt  10 bytes, other bytes
  + new.py      20 bytes
  - old.py      30 bytes

config
  ~ batchSize  1 → null

labels
  ~ 0  cat → dog

tensors of w.pt → v.pt
         4 of 7 differ
         1 have no numbers here to compare
  ~ a  float32 [3], other values
  ~ b  float32 [3] → float16 [3]
  + c  int64 []
  - d  float32 [2, 3]

tensors of x.pt
         0 of 2 differ
  broken it is cut
"""


def test_the_whole_page_of_differences():
    lines = compared(
        manifest=(
            differs("model.modelVersion", before="1.0", after=2),
            differs("model.extensions", Change.ADDED, after=["a", "b"]),
            differs("createdOn", Change.REMOVED, before="today"),
        ),
        recorded=(differs("target", before="torchserve", after="marpack"),),
        members=(
            differs("handler.py", before=size(10), after=size(1000)),
            differs("labels.txt", before=size(10), after=size(10)),
            differs("new.py", Change.ADDED, after=size(20)),
            differs("old.py", Change.REMOVED, before=size(30)),
        ),
        config=(differs("batchSize", before=1),),
        labels=(differs("0", before="cat", after="dog"),),
        tensors=(
            TensorDiff(
                member="w.pt",
                other="v.pt",
                same=2,
                uncompared=1,
                differences=(
                    differs("a", before=tensor(3), after=tensor(3)),
                    differs("b", Change.RETYPED, tensor(3), tensor(3, dtype="float16")),
                    differs("c", Change.ADDED, after=tensor(dtype="int64")),
                    differs("d", Change.REMOVED, before=tensor(2, 3)),
                ),
            ),
            TensorDiff(member="x.pt", other="x.pt", same=2, problem="it is cut"),
        ),
    )
    assert lines == DIFFERENCES.splitlines()


def test_what_was_built_and_its_warnings(capsys: pytest.CaptureFixture[str]):
    told: dict[str, Any] = {"format": Format.DEFAULT, "size": 1500, "content_digest": "sha256:12", "members": 3}
    built = BuildReport(path="net.mar", seconds=0.25, modules=("a.py", "b.py"), **told)
    lines = [click.unstyle(line) for line in page_lines(build_page(built), 80)]
    assert lines[1:3] == ["  size   1.5 kB in 3 members", "  digest sha256:12"]
    assert lines[-1] == "  also   a.py, b.py (imported, so packed)"
    notes = [
        Finding(code=f"a-{severity}", severity=severity, message="hm", where="x", hint="do")
        for severity in (Severity.NOTE, Severity.WARNING)
    ]
    show_warnings(notes)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["  note x: hm (a-note)", "  warning x: hm (a-warning)", "    hint: do"]
    show_warnings([])
    assert capsys.readouterr() == ("", "")


def init_lines(folder: Path, **values: Any) -> list[str]:
    given: dict[str, Any] = {"name": "net", "template": "image", "findings": ()}
    given |= dict.fromkeys(("written", "replaced", "skipped"), ())
    report = InitReport(folder=str(folder), **(given | values))
    return [click.unstyle(line) for line in page_lines(init_page(report), 80)]


def test_the_files_and_the_next_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names = tuple(f"f{number}" for number in range(13))
    twelve = ", ".join(names[:12])
    (line,) = init_lines(tmp_path / "new")[1:]
    assert line == f"  next   cd {tmp_path / 'new'} && marpack build && marpack check"
    assert init_lines(tmp_path, written=names[:12], replaced=names, skipped=("x", "y")) == [
        "project net, from template image",
        f"  wrote    {twelve}",
        f"  replaced {twelve} and 1 more",
        "  skipped  x, y (they exist; --force replaces them)",
        "  next     marpack build && marpack check",
    ]
    lacking = Finding(code="no-samples", severity=Severity.NOTE, message="there is no sample")
    command = "marpack build && marpack run --input FILE --record && marpack check"
    assert init_lines(tmp_path, findings=(lacking,))[1:] == [f"  next   {command}"]
    (line,) = init_lines(tmp_path, generated=("a.png",))[1:]
    assert line.startswith(f"  next   {command} (FILE: a real input; a.png")
