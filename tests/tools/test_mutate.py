import ast
import json
import os
import signal
import subprocess
import time
from itertools import zip_longest
from pathlib import Path

import psutil
import pytest

from tools import mutate
from tools.mutate import Judge, Mutant, Source, applied, copy_of, end_all, is_sound, mutants_of, pick, report, verdicts

KINDS = [
    ("return a < b", ["return a <= b"]),
    ("return a >= b", ["return a > b"]),
    ("return a == b", ["return a != b"]),
    ("return (a) in (b)", ["return (a) not in (b)"]),
    ("return a not in b", ["return a in b"]),
    ("return a is b", ["return a is not b"]),
    ("return a is not b", ["return a is b"]),
    ("return a < b != c", ["return a <= b != c", "return a < b == c"]),
    ("return a and b and c", ["return a or b and c", "return a and b or c"]),
    ("return a or b", ["return a and b"]),
    ("return not a", ["return a"]),
    ("return not(a)", ["return (a)"]),
    ("return all(a)", ["return any(a)"]),
    ("return min(a)", ["return max(a)"]),
    ("return a + b", ["return a - b"]),
    ("return [a] + b", []),
    ("a -= b", ["a += b"]),
    ("return 0x10", ["return 17"]),
    ("a = True", ["a = False"]),
    ("return a[b:]", ["return a[(b) + 1:]"]),
    ("return a[:-1]", ["return a[:-2]"]),
    ("return a.startswith(b)", ["return a.endswith(b)"]),
    ("return a.b(\n    c,\n)", []),
    ("return", []),
    ("return None", []),
    ("a.b(\n    c,\n)", ["pass"]),
    ("for _ in a:\n    break", ["continue"]),
    ("while a:\n    continue", ["break"]),
    ("größe = 'größe' in a", ["größe = 'größe' not in a"]),
]
SPEAKING = [
    '"""A docstring, which is 1 sentence."""',
    "import os",
    "raise ValueError(f'not {a + 1}' if a else 2)",
    "return f'{a + 1}'",
    "return 'no such thing'",
    "b = make(a, hint='x' if not a else '')",
    "hint = 'x' if a == 1 else ''",
    "logger.info('%s', a + 1)",
    "logging.getLogger(a).warning(1)",
    "b: tuple[Literal[1], int]",
    "assert a, f'{a + 1}' + str(1)",
]


def mutants(text: str) -> list[Mutant]:
    source = Source(text.encode())
    return [mutant for mutant in mutants_of(source, "room", "m.py") if is_sound(source, mutant)]


def inside(text: str) -> str:
    return "def f(a, b=None, c=None):\n" + "".join(f"    {line}\n" for line in text.splitlines())


def after(text: str, mutant: Mutant) -> str:
    return Source(text.encode()).after(mutant.edit).decode()


@pytest.mark.parametrize(("text", "expected"), KINDS)
def test_each_kind_changes_one_place_and_keeps_the_lines(text: str, expected: list[str]):
    program = inside(text)
    made = mutants(program)
    if text.startswith("return ") and text != "return None":
        assert [mutant for mutant in made if mutant.after == "return None"]
    others = [mutant for mutant in made if mutant.after != "return None"]
    assert [mutant.after for mutant in others] == expected
    for mutant in made:
        changed = after(program, mutant)
        ast.parse(changed)
        assert changed.count("\n") == program.count("\n")
        pairs = enumerate(zip_longest(program.splitlines(), changed.splitlines()), 1)
        differing = [number for number, (old, new) in pairs if old != new]
        assert differing == list(range(mutant.line, mutant.line + len(differing)))
        assert mutant.function == "f"


def test_what_only_speaks_is_left_alone():
    for text in SPEAKING:
        assert mutants(inside(text)) == [], text


def test_what_does_not_run_is_left_alone():
    assert mutants("if TYPE_CHECKING:\n    a = 1\n") == []
    assert mutants("class A:\n    def __repr__(self):\n        return self.a + 1\n") == []
    assert mutants("def f(a: Literal[1]) -> Literal[2]:\n    ...\n") == []
    assert mutants("@cache(1)\ndef f():\n    ...\n") == []
    assert [mutant.after for mutant in mutants("class A(Struct, frozen=True, tag=True):\n    a: int\n")] == [
        "class A(Struct, frozen=True, tag=False):"
    ]


def test_functions_are_named_with_their_class():
    (mutant,) = mutants("class A:\n    class B:\n        def f(self):\n            self.g(a)\n")
    assert (mutant.function, mutant.line, mutant.before, mutant.after) == ("A.B.f", 4, "self.g(a)", "pass")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a checkout of two rooms, one of them twice as large, and of a module above them."""
    root = tmp_path / "checkout"
    function = "def f{0}(a):\n    if a < {0}:\n        return a + 1\n    return not a\n"
    files = {"archive/sizes.py": 20, "archive/names.py": 20, "cli/main.py": 20, "errors.py": 2}
    for name, many in files.items():
        path = root / mutate.PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(function.format(number) for number in range(many)))
    (root / mutate.PACKAGE / "__init__.py").write_text("")
    (root / "tests" / "archive" / "inner").mkdir(parents=True)
    return root


def test_a_seed_always_picks_the_same(project: Path):
    first = pick(project, count=20, seed=1)
    assert first == pick(project, count=20, seed=1)
    assert first != pick(project, count=20, seed=2)
    assert {mutant.edit for mutant in first} <= {mutant.edit for mutant in pick(project, count=30, seed=1)}


def test_large_rooms_have_more_and_a_function_two_at_most(project: Path):
    chosen = pick(project, count=30, seed=1)
    rooms = [mutant.room for mutant in chosen]
    assert (rooms.count("archive"), rooms.count("cli"), rooms.count(mutate.PACKAGE)) == (20, 10, 1)
    every = pick(project, count=1000, seed=1)
    functions = [(mutant.module, mutant.function) for mutant in every]
    assert {functions.count(function) for function in functions} == {2}
    lines = [(mutant.module, mutant.line) for mutant in every]
    assert len(set(lines)) == len(lines)
    assert len(functions) == 2 * 62


def test_one_room_may_be_asked_for(project: Path):
    assert {mutant.module for mutant in pick(project, count=10, seed=1, room="cli")} == {
        f"{mutate.PACKAGE}/cli/main.py"
    }


def test_a_mutant_is_undone_and_its_bytecode_is_known_to_be_stale(project: Path):
    mutant = pick(project, count=1, seed=1)[0]
    path = project / mutant.module
    before, at = path.read_bytes(), path.stat().st_mtime_ns
    seen = set()
    for number in (1, 2):
        with applied(project, mutant, number):
            assert path.read_bytes() != before
            seen.add(int(path.stat().st_mtime))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, at)
    assert len(seen | {at // 10**9}) == 3


def test_a_modules_own_tests_come_first_then_those_of_who_imports_it_and_the_rest_last(project: Path):
    (project / "tests" / "archive" / "inner" / "test_sizes.py").write_text("")
    (project / "tests" / "test_errors.py").write_text("")
    (project / "tests" / "cli").mkdir()
    (project / "tests" / "cli" / "test_main.py").write_text("")
    with (project / mutate.PACKAGE / "cli" / "main.py").open("a") as file:
        file.write(f"from {mutate.PACKAGE}.archive import sizes\n")
    judge = Judge(project, project / "results", whole=True)
    judge.usual = {"archive": 10.0, mutate.PACKAGE: 1.0, mutate.ALL: 100.0}
    module, edit = f"{mutate.PACKAGE}/archive/sizes.py", mutate.Edit(0, 0, "")
    phases = judge.phases(Mutant("archive", module, "f", 1, "", "", edit))
    own, user = "tests/archive/inner/test_sizes.py", "tests/cli/test_main.py"
    workers = ["-n", "2", "--dist", "loadfile"]
    assert list(phases) == [
        ("room", [own], 100),
        ("room", ["tests/archive", f"--ignore={own}"], 100),
        ("users", [user, *workers], 460),
        ("rest", ["tests", *workers, "--ignore=tests/archive", f"--ignore={user}"], 460),
    ]
    phases = judge.phases(Mutant(mutate.PACKAGE, f"{mutate.PACKAGE}/errors.py", "f", 1, "", "", edit))
    assert list(phases) == [
        ("room", ["tests/test_errors.py"], 64),
        ("rest", ["tests", *workers, "--ignore=tests/test_errors.py"], 460),
    ]


def test_the_report_counts_by_room_and_shows_what_was_missed():
    facts = {"module": "m/a.py", "function": "f", "line": 3, "before": "a < b", "after": "a <= b"}
    judged = [
        {**facts, "room": "archive", "verdict": "found by room"},
        {**facts, "room": "archive", "verdict": "found by timeout"},
        {**facts, "room": "cli", "verdict": "missed"},
    ]
    assert report(judged) == (
        "room          found  total\n"
        "archive           2      2  100%\n"
        "cli               0      1    0%\n"
        "together          2      3   67%\n"
        "\nmissed: m/a.py:3 f\n    a < b\n  → a <= b\n"
    )


@pytest.mark.nightly
def test_what_the_tests_start_runs_the_mutant_and_verdicts_are_kept(project: Path, monkeypatch, capsys):
    """The whole way, with a tiny project whose tests ask a child that is started as workers are."""
    for path in (project / mutate.PACKAGE).rglob("*.py"):
        path.write_text("")
    package = project / mutate.PACKAGE
    (package / "archive" / "sizes.py").write_text("def is_small(size):\n    return size < 10\n\nUNTRIED = 1 == 2\n")
    (project / "tests" / "archive" / "inner" / "test_sizes.py").write_text(
        "import subprocess, sys\n"
        "def test_sizes():\n"
        f"    code = 'from {mutate.PACKAGE}.archive.sizes import is_small; print(is_small(9), is_small(10))'\n"
        "    told = subprocess.run([sys.executable, '-P', '-c', code], cwd='/', capture_output=True, text=True)\n"
        "    assert told.stdout == 'True False\\n'\n"
    )
    (project / "tests" / "test_rest.py").write_text(
        f"from {mutate.PACKAGE}.archive.sizes import UNTRIED\ndef test_rest():\n    assert not UNTRIED\n"
    )
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    monkeypatch.setattr(mutate, "ROOT", project)
    monkeypatch.setattr(mutate, "PER_FUNCTION", 1)
    results = project.parent / "results.jsonl"
    command = ["--count", "2", "--results", str(results), "--only-room-tests"]
    mutate.main(command)
    unmutated, *judged = [json.loads(line) for line in results.read_text().splitlines()]
    assert unmutated["unmutated"] == "archive"
    told = {each["line"]: (each["verdict"], each["test"]) for each in judged}
    assert told == {
        2: ("found by room", "tests/archive/inner/test_sizes.py::test_sizes"),
        4: ("missed by room", None),
    }
    assert "archive           1      2   50%" in capsys.readouterr().out
    mutate.main(command)
    assert len(verdicts(results)) == len(results.read_text().splitlines()) - 1 == 2
    mutate.main(command[:-1])
    assert [each["verdict"] for each in sorted(verdicts(results).values(), key=lambda each: each["line"])] == [
        "found by room",
        "found by users",
    ]


def test_a_room_that_fails_without_a_mutant_judges_none(project: Path):
    (project / "tests" / "archive" / "test_names.py").write_text("def test_no(): assert False\n")
    judge = Judge(project, project / "results", whole=False)
    with pytest.raises(SystemExit, match=r"without any mutant the tests \(archive\) fail.*::test_no"):
        judge.judge(pick(project, count=1, seed=1, room="archive")[0], 1)
    assert not (project / "results").exists()


def test_a_hang_is_found(project: Path, monkeypatch):
    (project / "tests" / "archive" / "test_names.py").write_text("import time\ndef test_it(): time.sleep(600)\n")
    judge = Judge(project, project / "results", whole=False)
    judge.usual = {"archive": 0.0}
    monkeypatch.setattr(mutate, "MORE", 1.0)
    assert judge.judge(pick(project, count=1, seed=1, room="archive")[0], 1) == "found by timeout"


def test_nothing_is_left_of_a_run_and_others_are_left_alone():
    command = ["sleep", "600"]
    mine = subprocess.Popen(command, env=os.environ | {"MUTATION_RUN": "mine"}, start_new_session=True)
    other = subprocess.Popen(command, env=os.environ | {"MUTATION_RUN": "other"})
    while "MUTATION_RUN" not in psutil.Process(mine.pid).environ():  # empty until the program is laid out in memory
        time.sleep(0.01)
    end_all("mine")
    assert mine.wait(10) == -signal.SIGKILL
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_copy_leaves_out_what_git_ignores(project: Path, tmp_path: Path):
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    (project / ".gitignore").write_text("*.mar\n")
    (project / "a.mar").write_text("")
    copy = copy_of(project, tmp_path / "copy")
    assert not (copy / "a.mar").exists()
    assert (copy / mutate.PACKAGE / "cli" / "main.py").read_bytes()
