import subprocess
from pathlib import Path

import pytest

from tools import mutate
from tools.mutate import mutants_of, pick


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", ["(a <= b)"]),
        ("a not in b", ["(a in b)"]),
        ("a and b", ["(a or b)"]),
        ("not a", ["(a)"]),
        ("a + True", ["(a - True)", "(False)"]),
        ("a.b()", ["pass"]),
        ("def f() -> Literal[1]:\n    return a", ["return None"]),
        ("raise ValueError(a + 1)", []),
        ("note(message=a + 1)", ["pass"]),
        ("größe = 0", ["(1)"]),
    ],
)
def test_each_change_is_of_one_place(text: str, expected: list[str]):
    source = text.encode()
    made = list(mutants_of(source, "marpack/room/m.py"))
    assert [mutant.after for mutant in made] == expected
    for mutant in made:
        compile(source[: mutant.start] + mutant.after.encode() + source[mutant.end :], "m", "exec")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout whose tests start a child as workers start, and miss one mutant."""
    root = tmp_path / "project"
    (root / mutate.PACKAGE / "archive").mkdir(parents=True)
    (root / "tests" / "archive").mkdir(parents=True)
    for folder in ("", "archive"):
        (root / mutate.PACKAGE / folder / "__init__.py").write_text("")
    (root / mutate.PACKAGE / "archive" / "sizes.py").write_text("def is_small(size):\n    return size < 10\nFREE = 1\n")
    (root / "tests" / "archive" / "test_sizes.py").write_text(
        "import subprocess, sys\n"
        "def test_sizes():\n"
        f"    code = 'from {mutate.PACKAGE}.archive.sizes import is_small; print(is_small(9), is_small(10))'\n"
        "    child = subprocess.run([sys.executable, '-P', '-c', code], cwd='/', capture_output=True, text=True)\n"
        "    assert child.stdout == 'True False\\n'\n"
    )
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def test_a_seed_picks_the_same_mutants_and_one_a_line(project: Path):
    chosen = pick(project, count=9, seed=1)
    assert chosen == pick(project, count=9, seed=1, room="archive")
    assert sorted(mutant.line for mutant in chosen) == [2, 3]


@pytest.mark.slow
def test_verdicts_are_reported_and_kept(project: Path, monkeypatch, capsys):
    monkeypatch.setattr(mutate, "ROOT", project)
    results = project.parent / "results.jsonl"
    for _ in range(2):
        mutate.main(["--count", "2", "--results", str(results)])
        assert "1 of 2 mutants were caught\nmissed: marpack/archive/sizes.py:3" in capsys.readouterr().out
        assert len(results.read_text().splitlines()) == 2
