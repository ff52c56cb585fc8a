"""`marpack init`, as one types it: what it writes and leaves alone, and the sentence for each mistake."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Terminal
from invoking import Invoked, invoke

from marpack.findings import Severity
from marpack.project.load import load_project
from marpack.project.planning import plan_project
from marpack.project.scaffold.template import template_names, templates

pytestmark = pytest.mark.usefixtures("uncovered")

ROOT = Path(__file__).parents[2]
TEMPLATES = template_names()
WEIGHTS = templates() / "init" / "image_classifier" / "model.pt"


def init(*arguments: str | Path) -> Invoked:
    return invoke("init", *map(str, arguments), code=None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty current folder."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def run(module: str, *args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(argument) for argument in args]
    return subprocess.run([sys.executable, "-m", module, *words], cwd=cwd, capture_output=True, text=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- the templates ---


def test_every_scaffold_plans_without_a_finding_and_is_written_as_its_author_would(here: Path):
    for name in TEMPLATES:
        assert init(name, "-t", name).returncode == 0
        findings = plan_project(load_project(here / name)).findings
        assert [finding for finding in findings if finding.severity is not Severity.NOTE] == []
        for path in (here / name).rglob("*.md"):
            assert max(map(len, path.read_text().splitlines())) <= 120
    for asked in (["check", "--isolated", "--select", "E,F,I,W,UP,B"], ["format", "--isolated", "--check"]):
        done = run("ruff", *asked, "--line-length", "120", ".", cwd=here)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.peer if name == "object_detector" else pytest.mark.slow)
        for name in TEMPLATES
    ],
)
def test_every_scaffold_is_built_checked_and_tested_as_it_is(name: str, here: Path):
    assert init("new", "-t", name).returncode == 0
    invoke("build", "--strict", cwd=here / "new")
    invoke("check", cwd=here / "new")
    tested = run("pytest", "-q", "-p", "no:cacheprovider", cwd=here / "new")
    assert tested.returncode == 0, tested.stdout
    assert "no tests ran" not in tested.stdout


@pytest.mark.slow
def test_the_toy_models_are_those_that_their_script_makes(tmp_path: Path):
    done = run("tools.toy_models", tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    made = contents(tmp_path)
    assert made
    committed = contents(templates() / "init")
    assert {name: len(data) for name, data in made.items()} == {name: len(committed[name]) for name in made}


# --- around what is there ---


def test_weights_and_labels_make_a_project(here: Path):
    shutil.copy(WEIGHTS, here / "colors.pt")
    (here / "names.txt").write_text("a\nb\nc\nd\ne\nf\n")
    before = contents(here)
    outcome = init("-t", "image_classifier")
    assert outcome.returncode == 0
    assert "found  colors.pt TorchScript, 4.0 kB" in outcome.stderr
    assert "found  names.txt 6 labels" in outcome.stderr
    last = outcome.stdout.splitlines()[-1]
    assert "marpack build && marpack run --input FILE --record && marpack check" in last
    assert "samples/stand-in.png" in last
    project = load_project(here)
    digest = hashlib.sha256((here / "samples/stand-in.png").read_bytes()).hexdigest()
    assert [(each.input, each.generated) for each in project.samples] == [("samples/stand-in.png", f"sha256:{digest}")]
    assert (project.name, project.weights, project.labels) == ("colors", "colors.pt", "names.txt")
    assert contents(here).items() >= before.items()


def test_existing_files_are_kept_and_named(here: Path):
    (here / "marpack.yaml").write_text("mine")
    (here / "README.md").write_text("mine")
    outcome = init()
    assert outcome.returncode == 0
    assert "skipped marpack.yaml, README.md (they exist; --force replaces them)" in outcome.stdout
    assert (here / "marpack.yaml").read_text() == (here / "README.md").read_text() == "mine"


def test_json_holds_what_was_done(here: Path):
    (here / "README.md").write_text("mine")
    outcome = init("--json", "-t", "function", "--name", "f")
    report = json.loads(outcome.stdout)
    assert outcome.stderr == ""
    assert report["name"] == "f"
    assert report["template"] == "function"
    assert report["skipped"] == ["README.md"]
    assert "handler.py" in report["written"]


# --- from an archive ---


def test_an_archive_becomes_a_project_that_rebuilds_it(here: Path):
    shutil.copytree(ROOT / "examples" / "digits", "first", ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    invoke("build", "first", cwd=here)
    outcome = init("--from", "first/digits.mar")
    assert outcome.returncode == 0
    assert outcome.stdout.endswith("next   cd digits && marpack build && marpack check\n")
    invoke("build", "digits", cwd=here)
    assert Path("digits/digits.mar").read_bytes() == Path("first/digits.mar").read_bytes()


def test_an_archives_project_never_lands_on_something_else(here: Path, make_mar: Callable[..., Path]):
    mar = make_mar("def handle(data, context): ...\n")
    Path("probe").mkdir()
    outcome = init("--from", mar)
    assert outcome.returncode == 2
    assert "marpack init probe --from" in outcome.stderr
    assert init("probe", "--from", mar).returncode == 0
    assert Path("probe/handler.py").exists()


# --- on a terminal ---


def test_nothing_is_asked(here: Path):
    with Terminal("init", cwd=here) as terminal:
        assert terminal.end() == 0
        assert "next   marpack build" in terminal.seen
    assert load_project(here).handler == "image_classifier"


def test_yes_is_still_taken(here: Path):
    assert init("--yes").returncode == 0


# --- mistakes ---


WRONG = {  # words → exit code
    "file.txt": 2,
    "--from none.mar": 3,
    "--from x.mar -t onnx": 2,
    "--from x.mar --model-file m.py": 2,
    "--name a+b": 2,
    "--weights none.pt": 2,
    "--labels odd.txt": 2,
    "--handler image_clasifier": 2,
    "file.txt/new": 1,
    "--labels ../outside.txt": 2,
    "--model-file ../outside.txt": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code_and_leaves_nothing(here: Path, words: str):
    (here.parent / "outside.txt").write_text("a\nb\n")
    (here / "file.txt").write_text("text")
    (here / "odd.txt").write_text("a\n\nb\n")
    before = contents(here)
    outcome = init(*words.split())
    assert (outcome.returncode, outcome.stdout) == (WRONG[words], "")
    assert "error:" in outcome.stderr or "Error:" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert contents(here) == before
