"""Project → Plan: the members, their names, and everything that stops a build."""

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.errors import OutputExistsError, ProjectError, UsageError
from marpack.findings import Severity
from marpack.project.load import load_project
from marpack.project.plan import Format, Plan, PlannedMember, Role
from marpack.project.planning import plan_project
from marpack.version import __version__

Make = Callable[..., Path]
HEAD = "name: tiny\nversion: '1.0'\nhandler: handler.py\n"


def plan(folder: Path, **options: object) -> Plan:
    return plan_project(load_project(folder), check=False, **options).plan


def names(folder: Path, **options: object) -> list[str]:
    return [member.name for member in plan(folder, **options).members]


def errors(folder: Path, **options: object) -> list[tuple[str, str, str | None]]:
    """Return the errors that stop a build, as (place in marpack.yaml, code, message without the folder)."""
    with pytest.raises(ProjectError) as caught:
        plan(folder, **options)
    found = [(f.where or "", f.code, f.message.replace(f"{folder}/", "")) for f in caught.value.findings]
    return [(where.removeprefix(f"{folder}/").removeprefix("marpack.yaml:"), *rest) for where, *rest in found]


def test_a_whole_project_becomes_one_plan(make_project: Make) -> None:
    folder = make_project(
        "name: tiny\nversion: 1.0\nhandler: src/entry.py:run\nweights: w/tiny.pt\nmodel_file: src/net.py\n"
        "labels: labels.txt\nrequirements: env/requirements.txt\nconfig: {batchSize: 8, ü: [1, no]}\n"
        "target: marpack\nfiles: [vocab.json]\nsamples: [{input: samples/a.png, expect: {status: 200}}]\n",
        **{
            "src/entry.py": "import near\n",
            "src/near.py": "",
            "src/net.py": "",
            "w/tiny.pt": b"weights",
            "labels.txt": "a\nb\n",
            "env/requirements.txt": "",
            "vocab.json": "{}",
            "samples/a.png": b"png",
        },
    )
    planned = plan_project(load_project(folder), check=False)
    made = b'batchSize: 8\n"\\xFC":\n- 1\n- false\n'
    assert planned.plan == Plan(
        manifest=Manifest(
            model=ManifestModel(
                name="tiny",
                version="1.0",
                handler="entry.py:run",
                serialized_file="tiny.pt",
                model_file="net.py",
                requirements_file="requirements.txt",
                config_file="model-config.yaml",
            ),
            archiver_version=f"marpack {__version__}",
        ),
        members=(
            PlannedMember("MAR-INF/samples/a.png", folder / "samples/a.png", Role.META),
            PlannedMember("entry.py", folder / "src/entry.py"),
            PlannedMember("index_to_name.json", b'{\n  "0": "a",\n  "1": "b"\n}\n'),
            PlannedMember("model-config.yaml", made),
            PlannedMember("near.py", folder / "src/near.py"),
            PlannedMember("net.py", folder / "src/net.py"),
            PlannedMember("requirements.txt", folder / "env/requirements.txt"),
            PlannedMember("tiny.pt", folder / "w/tiny.pt", Role.WEIGHTS),
            PlannedMember("vocab.json", folder / "vocab.json"),
        ),
        output=folder / "tiny.mar",
        format=Format.DEFAULT,
        replace=True,
        samples=({"input": "MAR-INF/samples/a.png", "expect": {"status": 200}},),
        target="marpack",
    )
    assert planned.modules == ("near.py",)
    assert yaml.safe_load(made) == {"batchSize": 8, "ü": [1, False]}


@pytest.mark.parametrize(
    ("handler", "in_manifest", "member"),
    [
        ("image_classifier", "image_classifier", None),
        ("handler:fn", "handler.py:fn", "handler.py"),
        ("./sub/../handler.py", "handler.py", "handler.py"),
        ("sub/other", "other.py", "other.py"),
    ],
)
def test_handlers(make_project: Make, handler: str, in_manifest: str, member: str | None) -> None:
    folder = make_project(f"name: tiny\nversion: 1\nhandler: {handler}\n", **{"sub/other.py": ""})
    assert plan(folder).manifest.model.handler == in_manifest
    assert names(folder) == ([member] if member else [])


TREE = {
    "assets/a.json": "1",
    "assets/b.json": "2",
    "assets/deep/c.txt": "3",
    "assets/.hidden": "",
    "assets/.git/x": "",
    "assets/__pycache__/x": "",
    "data/vocab.json": "",
    "data/odd[1].txt": "",
}

SEEN = ["assets/a.json", "assets/b.json", "assets/deep/c.txt"]

FILES = {
    "file": ("data/vocab.json", ["data/vocab.json"]),
    "file with dots": ("./data/./vocab.json", ["data/vocab.json"]),
    "folder": ("assets/", SEEN),
    "glob": ("assets/*.json", ["assets/a.json", "assets/b.json"]),
    "glob of some letters": ("'assets/[bc].js?n'", ["assets/b.json"]),
    "a file whose name is a pattern": ("'data/odd[1].txt'", ["data/odd[1].txt"]),
    "glob of folders": ("assets/d*", ["assets/deep/c.txt"]),
    "file to a deeper name": ("{from: data/vocab.json, to: a/b/v.json}", ["a/b/v.json"]),
    "file into a folder": ("{from: data/vocab.json, to: a/}", ["a/vocab.json"]),
    "file into the root": ("{from: data/vocab.json, to: .}", ["vocab.json"]),
    "file into the root, as no name": ("{from: data/vocab.json, to: ''}", ["vocab.json"]),
    "folder to itself": ("{from: assets/, to: assets/}", SEEN),
    "folder into the root": ("{from: assets, to: .}", ["a.json", "b.json", "deep/c.txt"]),
    "glob into a folder": ("{from: assets/*.json, to: j}", ["j/a.json", "j/b.json"]),
    "a hidden file by name": ("assets/.hidden", ["assets/.hidden"]),
    "the project": ("{from: ., to: all}", [f"all/{name}" for name in (*SEEN, *list(TREE)[-1:-3:-1], "handler.py")]),
}


@pytest.mark.parametrize(("entry", "expected"), FILES.values(), ids=FILES)
def test_files_get_their_names(make_project: Make, entry: str, expected: list[str]) -> None:
    folder = make_project(f"{HEAD}files: [{entry}]\n", **TREE)
    (folder / "tiny.mar").touch()
    assert names(folder) == sorted([*expected, "handler.py"])


def test_a_file_named_by_its_whole_path_keeps_its_last_name(make_project: Make, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").touch()
    for entry in (f"{tmp_path}/outside.txt", "../outside.txt"):
        folder = make_project(f"{HEAD}files: [{entry}]\n")
        assert names(folder, allow_outside=True) == ["handler.py", "outside.txt"]


def test_local_modules_come_along_unless_a_file_has_their_name(make_project: Make) -> None:
    folder = make_project(
        f"{HEAD}files: [{{from: other/helpers.py, to: helpers.py}}]\nmodel_file: model.py\n",
        **{
            "handler.py": "import helpers, more",
            "helpers.py": "",
            "other/helpers.py": "",
            "more.py": "",
            "model.py": "import more, parts",
            "parts/__init__.py": "",
        },
    )
    planned = plan_project(load_project(folder), check=False)
    assert planned.modules == ("more.py", "parts/__init__.py")
    sources = {member.name: member.source for member in planned.plan.members}
    assert sources["helpers.py"] == folder / "other/helpers.py"


def test_samples_keep_their_paths_and_expectations(make_project: Make) -> None:
    folder = make_project(
        HEAD + "samples:\n"
        "- {input: samples/a/x.png}\n"
        "- {input: data/x.png, expect: {json: {7: {min: 0.9}, b: 2024-01-01}, body: 1.50}}\n"
        "- {input: ../x.png, expect: {}}\n- {input: ../x.png, expect: {json: null}}\n"
        "- {input: data/x.png, expect: {text: {contains: a}}}\n",
        **{"samples/a/x.png": "1", "data/x.png": "2", "../x.png": "3"},
    )
    made = plan(folder, allow_outside=True)
    assert made.samples == (
        {"input": "MAR-INF/samples/a/x.png"},
        {
            "input": "MAR-INF/samples/data/x.png",
            "expect": {"body": "1.50", "json": {"7": {"min": 0.9}, "b": "2024-01-01"}},
        },
        {"input": "MAR-INF/samples/x.png", "expect": {}},
        {"input": "MAR-INF/samples/x.png", "expect": {"json": None}},
        {"input": "MAR-INF/samples/data/x.png", "expect": {"text": {"contains": "a"}}},
    )
    assert json.loads(json.dumps(made.samples)) == list(made.samples)
    assert sum(member.role is Role.META for member in made.members) == 3


BUILT_IN = "name: a\nversion: 1\nhandler: {}\n"
EVERYTHING = (
    "weights: a.pt\nmodel_file: b.py\nlabels: c.txt\nrequirements: d.txt\nconfig: e.yaml\n"
    "files: [f.json, {from: g, to: h}]\nsamples: [{input: i.png}]\n"
)
MISSING = (
    *("4: weights", "5: model_file", "7: requirements", "6: labels", "8: config", "9: files[0]", "9: files[1]"),
    "10: samples[0].input",
)
SAMPLE = HEAD + "samples:\n  - input: one\n    expect: {}\n"


def files(entries: str) -> str:
    return f"{HEAD}files: [{entries}]\n"


# What is wrong → marpack.yaml, the places and codes of the errors, and a word of the last message. The files: OTHERS.
OTHERS = dict.fromkeys(("one", "two", "w.pt/x"), "") | {"l.txt": "a\n\nb", "labels.txt": "a"}
ERRORS: dict[str, tuple[str, list[str], str]] = {
    "name": ("name: a b\nversion: 1\nhandler: base_handler", ["1: name model-name"], "'a b'"),
    "name with an end": ('name: "a\\n"\nversion: 1\nhandler: base_handler', ["1: name model-name"], "'a"),
    "version": ("name: a\nversion: ' '\nhandler: base_handler", ["2: version version"], "empty"),
    "misspelt built-in": (BUILT_IN.format("image_clasifier"), ["3: handler missing-file"], "image_clasifier"),
    "missing handler": (BUILT_IN.format("nowhere.py:f"), ["3: handler missing-file"], "nowhere.py"),
    "everything missing": (HEAD + EVERYTHING, [f"{place} missing-file" for place in MISSING], "i.png"),
    "a folder as weights": (HEAD + "weights: w.pt\n", ["4: weights not-a-file"], "w.pt"),
    "one name for two": (files("{from: one, to: handler.py}"), ["4: files[0] name-collision"], "handler.py and one"),
    "half a pattern": (files("'x[.txt', 'x].txt'"), ["4: files[0] missing-file", "4: files[1] missing-file"], "x].txt"),
    "over what marpack makes": (
        files("{from: one, to: index_to_name.json}") + "labels: labels.txt\n",
        ["4: files[0] name-collision"],
        "index_to_name.json",
    ),
    "names that differ in case": (
        files("{from: one, to: A.TXT}, {from: two, to: a.txt}"),
        ["4: files[1] name-collision"],
        "A.TXT and a.txt",
    ),
    "names that differ in Unicode form": (
        files("{from: one, to: x\u00b2.txt}, {from: two, to: x2.txt}"),
        ["4: files[1] name-collision"],
        "x\u00b2.txt and x2.txt",
    ),
    "file and folder": (files("{from: one, to: x}, {from: one, to: x/y}"), [" name-collision"], "x/y"),
    "out of the archive": (files("{from: one, to: ../x}"), ["4: files[0] member-name"], "'../x'"),
    "an absolute name": (files("{from: one, to: /etc/x}"), ["4: files[0] member-name"], "/etc/x"),
    "into MAR-INF": (files("{from: one, to: mar-inf/}"), ["4: files[0] reserved-name"], "mar-inf"),
    "labels": (HEAD + "labels: l.txt\n", ["l.txt:2 labels"], "label"),
    "no status": (SAMPLE.replace("{}", "{status: 999}"), ["6: samples[0].expect.status samples"], "999"),
    "a range that is merged in": (
        SAMPLE.replace("{}", "{json: {x: {<<: {min: 2, max: 1}}}}"),
        ["4: samples[0].expect.json.x.min samples"],
        "2",
    ),
    "no JSON": (SAMPLE.replace("{}", "{json: {yes: 1}}"), ["5: samples[0].input samples"], "text"),
}


@pytest.mark.parametrize(("text", "expected", "word"), ERRORS.values(), ids=ERRORS)
def test_every_error_is_reported_where_it_is(make_project: Make, text: str, expected: list[str], word: str) -> None:
    found = errors(make_project(text, **OTHERS))
    assert [f"{where} {code}" for where, code, _ in found] == expected
    assert word in str(found[-1][2])


def test_special_files_are_refused_and_not_opened(make_project: Make) -> None:
    folder = make_project(f"{HEAD}labels: l.txt\nfiles: [assets, loose]\n", **{"assets/x": ""})
    os.mkfifo(folder / "l.txt")
    os.mkfifo(folder / "assets/pipe")
    (folder / "assets/dangling").symlink_to("nowhere")
    (folder / "assets/long").symlink_to("a" * 300)
    (folder / "loose").symlink_to("loose")
    found = errors(folder)
    assert [(where, code, str(message).split()[0]) for where, code, message in found] == [
        ("4: labels", "not-a-file", "l.txt"),
        ("5: files[0]", "missing-file", "assets/dangling"),
        ("5: files[0]", "unreadable", "assets/long"),
        ("5: files[0]", "not-a-file", "assets/pipe"),
        ("5: files[1]", "unreadable", "loose"),
    ]
    assert "symlink" in str(found[1][2])
    assert os.strerror(errno.ENAMETOOLONG) in str(found[2][2])
    assert os.strerror(errno.ELOOP) in str(found[4][2])


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a while: root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_files_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which is closed to strangers
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "marpack.yaml").write_text(f"{HEAD}weights: w.pt\nfiles: [closed]\n")
        (folder / "handler.py").touch()
        (folder / "w.pt").touch(0)
        (folder / "closed").mkdir(0)
        project = load_project(folder)
        try:
            with unprivileged(), pytest.raises(ProjectError) as caught:
                plan_project(project, check=False)
        finally:
            (folder / "closed").chmod(0o700)
    assert [(found.code, found.message.split()[0]) for found in caught.value.findings] == [
        ("unreadable", f"{folder}/w.pt"),
        ("unreadable", f"{folder}/closed"),
    ]


def test_symlinks_are_followed_and_those_that_lead_out_are_told(make_project: Make, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/w.pt").write_text("w")
    folder = make_project(f"{HEAD}weights: w.pt\nfiles: [assets]\n", **{"assets/a": "", "inner": ""})
    (folder / "w.pt").symlink_to(tmp_path / "store/w.pt")
    (folder / "assets/out").symlink_to(tmp_path / "store")
    (folder / "assets/in").symlink_to("../inner")
    (folder / "assets/loop").symlink_to(".")
    planned = plan_project(load_project(folder), check=False, allow_outside=True)
    assert names(folder, allow_outside=True) == ["assets/a", "assets/in", "assets/out/w.pt", "handler.py", "w.pt"]
    (finding,) = planned.findings
    assert (finding.code, finding.severity) == ("symlink-outside", Severity.WARNING)
    assert finding.message.endswith(f" {folder}/assets/out/w.pt")
    assert errors(folder, strict=True, allow_outside=True)[0][1] == "symlink-outside"


def test_what_is_probably_not_meant_is_a_warning(make_project: Make) -> None:
    folder = make_project(f"{HEAD}files: ['*.nothing', empty]\n")
    (folder / "empty").mkdir()
    planned = plan_project(load_project(folder), check=False)
    assert [finding.code for finding in planned.findings] == ["glob-without-match", "empty-folder"]
    assert [code for _, code, _ in errors(folder, strict=True)] == ["glob-without-match", "empty-folder"]


OUTPUTS = {
    "default": (None, None, "tiny.mar", Format.DEFAULT),
    "format alone": (None, Format.TGZ, "tiny.tar.gz", Format.TGZ),
    "a .mar": ("out/x.mar", None, "out/x.mar", Format.DEFAULT),
    "a .tar.gz": ("x.tar.gz", None, "x.tar.gz", Format.TGZ),
    "a folder that is there": ("there", None, "there/tiny.mar", Format.DEFAULT),
    "a folder that is there, tgz": ("there", Format.TGZ, "there/tiny.tar.gz", Format.TGZ),
    "a folder to come": ("dist/", None, "dist/tiny.mar", Format.DEFAULT),
    "the folder itself": ("x", Format.NO_ARCHIVE, "x", Format.NO_ARCHIVE),
}


@pytest.mark.parametrize(("output", "form", "path", "expected"), OUTPUTS.values(), ids=OUTPUTS)
def test_outputs(make_project: Make, output: str | None, form: Format | None, path: str, expected: Format) -> None:
    folder = make_project()
    (folder / "there").mkdir()
    given = None if output is None else f"{folder}/{output}"
    made = plan(folder, output=given, form=form)
    assert (made.output, made.format) == (folder / path, expected)


@pytest.mark.parametrize(
    ("output", "form", "facts"),
    [
        ("x", None, ("default", ".mar")),
        ("x.mar", Format.TGZ, ("tgz", ".tar.gz")),
        ("x.mar", Format.NO_ARCHIVE, ("no-archive", "suffix")),
    ],
)
def test_outputs_that_contradict_their_format(
    make_project: Make, output: str, form: Format | None, facts: tuple[str, str]
) -> None:
    with pytest.raises(UsageError) as caught:
        plan(make_project(), output=output, form=form)
    assert caught.value.code == "wrong-suffix"
    assert {*facts, output} <= {word.rstrip(",") for word in caught.value.what.split()}


def test_outputs_that_must_not_be_overwritten(make_project: Make, tmp_path: Path) -> None:
    folder = make_project(f"{HEAD}weights: w.pt\n", **{"w.pt": "w", "notes/x.txt": ""})
    (folder / "link.mar").symlink_to("w.pt")
    (folder / "folder.mar").mkdir()
    (folder / "model/MAR-INF").mkdir(parents=True)
    (folder / "model/MAR-INF/MANIFEST.json").touch()
    os.mkfifo(folder / "pipe.mar")
    whole = Format.NO_ARCHIVE
    refused = {  # → what the message names
        ("link.mar", None): "w.pt",
        ("folder.mar", None): "folder",
        ("pipe.mar", None): "regular",
        ("w.pt/x.mar", None): "w.pt",
        ("notes", whole): "MANIFEST.json",
        ("w.pt", whole): "file",
        (".", whole): "handler.py",
    }
    for (output, form), fact in refused.items():
        ((_, code, message),) = errors(folder, output=folder / output, form=form)
        assert code == "output"
        assert fact in str(message)
    assert plan(folder, output=folder / "model", form=whole).output == folder / "model"


def test_an_output_that_may_not_be_replaced(make_project: Make) -> None:
    folder = make_project()
    (folder / "tiny.mar").touch()
    with pytest.raises(OutputExistsError) as caught:
        plan(folder, replace=False)
    assert caught.value.where == str(folder / "tiny.mar")
    (folder / "handler.py").unlink()
    assert [code for _, code, _ in errors(folder, replace=False)] == ["missing-file"]


def test_a_missing_file_gets_the_name_that_was_meant(make_project: Make) -> None:
    with pytest.raises(ProjectError) as caught:
        plan(make_project(f"{HEAD}weights: digit.pt\n", **{"digits.pt": ""}))
    assert "/digits.pt" in str(caught.value.findings[0].hint)


def test_large_members_lie_with_the_weights(make_project: Make) -> None:
    folder = make_project(
        f"{HEAD}files: [a.bin, b.txt, c.txt]\n", **{"a.bin": "", "b.txt": b"x" * (1 << 20), "c.txt": ""}
    )
    roles = {member.name: member.role for member in plan(folder).members}
    assert roles == {"a.bin": Role.WEIGHTS, "b.txt": Role.WEIGHTS, "c.txt": Role.FILE, "handler.py": Role.FILE}
