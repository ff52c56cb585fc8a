"""`marpack build`, as one types it: output, exit codes, and the sentence for each mistake."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Terminal
from invoking import Invoked, invoke

from marpack.archive.reader import open_archive
from marpack.version import __version__

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
FLAGS = ["--model-name", "m", "--version", "1.0", "--handler", "handler.py", "--serialized-file", "digits.pt"]


def build(*arguments: str | Path) -> Invoked:
    return invoke("build", *map(str, arguments), code=None)


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the digits project, which is the current folder."""
    folder = tmp_path / "digits"
    shutil.copytree(DIGITS, folder, ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    monkeypatch.chdir(folder)
    edit("marpack.yaml", "enable: false", "enable: true")  # there is a note on what is off
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return folder


def codes(outcome: Invoked) -> tuple[str, ...]:
    return tuple(finding.code for finding in outcome.error.findings) if outcome.error else ()


def edit(name: str, old: str, new: str) -> None:
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new))


def append(name: str, text: str) -> None:
    Path(name).write_text(Path(name).read_text() + text)


# --- what it does ---


@pytest.mark.usefixtures("digits")
def test_a_dry_run_shows_the_plan_and_writes_nothing() -> None:
    before = {*Path().iterdir()}
    planned = build("--dry-run", "--json")
    plan = json.loads(planned.stdout)
    assert (planned.returncode, {*Path().iterdir()}) == (0, before)
    assert "digits.mar" in build("--dry-run").stdout
    assert build().returncode == 0
    with open_archive(plan["path"]) as archive:
        sizes = {name: entry.size for name, entry in archive.entries.items()}
    added = {"MAR-INF/MANIFEST.json", "MAR-INF/marpack.json"}
    assert {each["name"]: each["size"] for each in plan["members"]} == {
        name: size for name, size in sizes.items() if name not in added
    }


@pytest.mark.usefixtures("digits")
def test_a_dry_run_fails_as_the_build_would() -> None:
    assert build("--dry-run", "--vendor").cause == "usage"
    Path("handler.py").unlink()
    found = build("--dry-run", "--json")
    assert (found.returncode, codes(found)) == (2, codes(build()))
    report = json.loads(found.stdout)
    assert (report["code"], [each["where"] for each in report["findings"]]) == ("project", ["marpack.yaml:4: handler"])


def provenance(path: str = "digits.mar") -> dict[str, str]:
    with open_archive(path) as archive, archive.open("MAR-INF/marpack.json") as file:
        found: dict[str, str] = json.loads(file.read())["provenance"]
    return found


@pytest.mark.usefixtures("digits")
def test_a_commit_is_recorded_and_the_same_bytes_come_again() -> None:
    commit = "0123456789abcdef" * 4
    assert build("--source-commit", commit).returncode == 0
    first = Path("digits.mar").read_bytes()
    assert provenance() == {"builder": f"marpack {__version__}", "source_commit": commit}
    build("--source-commit", commit.upper())
    assert Path("digits.mar").read_bytes() == first
    build()
    assert provenance() == {"builder": f"marpack {__version__}"}


@pytest.mark.parametrize(
    "commit",
    ["", "HEAD", "abc1234", "a" * 41, "g" * 40, f"{'a' * 40}\n", "٣" * 40],
)
def test_what_is_no_commit_stops_the_build(digits: Path, commit: str) -> None:
    outcome = build("--source-commit", commit)
    assert (outcome.returncode, outcome.stdout, outcome.cause) == (2, "", "invalid-commit")
    assert "git rev-parse" in outcome.stderr
    assert not Path("digits.mar").exists()


def test_json_is_all_that_stdout_holds(digits: Path) -> None:
    append("marpack.yaml", "files: ['*.nothing']\n")
    outcome = build("--json")
    result = json.loads(outcome.stdout)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert result["path"] == "digits.mar"
    assert result["format"] == "default"
    assert result["size"] == Path("digits.mar").stat().st_size
    assert result["content_digest"].startswith("sha256:")
    assert result["members"] == 18
    assert result["seconds"] > 0
    assert [finding["code"] for finding in result["findings"]] == ["glob-without-match"]
    Path("digits.mar").unlink()
    assert build("--strict").returncode == 2
    assert not Path("digits.mar").exists()


def test_the_date_comes_from_source_date_epoch_only(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    build("-o", "dated.mar")
    with open_archive("digits.mar") as plain, open_archive("dated.mar") as dated:
        assert plain.manifest.created_on is None
        assert dated.manifest.created_on == "01/01/2026 00:00:00"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["--output", "not/yet/there/x.tar.gz"], "not/yet/there/x.tar.gz"),
        (["-o", "samples"], "samples/digits.mar"),
        (["--archive-format", "tgz"], "digits.tar.gz"),
        (["--archive-format", "zip-store", "-o", "dist/"], "dist/digits.mar"),
        (["marpack.yaml"], "digits.mar"),
        (FLAGS, "m.mar"),
        ([*FLAGS, "--export-path", "not/yet"], "not/yet/m.mar"),
        ([*FLAGS, "--archive-format", "no-archive"], "m"),
    ],
)
def test_outputs(digits: Path, arguments: list[str], path: str) -> None:
    outcome = build(*arguments)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.splitlines()[0].split(maxsplit=1) == ["built", path]
    with open_archive(path) as archive:
        assert archive.manifest.model.handler == "handler.py"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model-n", "m", "--ver=1.0", "--handl", "handler.py", "--serial", "digits.pt"],
        ["--model-name=m", "-v=1.0", "--handler=handler.py", "--serialized-file=digits.pt"],
        ["--model-name", "m", "-v1.0", "--handler", "handler.py", "--serialized-file", "digits.pt", "--"],
    ],
)
def test_flags_are_spelt_as_the_original_archiver_reads_them(digits: Path, arguments: list[str]) -> None:
    assert build(*arguments).returncode == 0
    with open_archive("m.mar") as archive:
        model = archive.manifest.model
        assert (model.name, model.version, model.handler, model.serialized_file) == (
            "m", "1.0", "handler.py", "digits.pt",
        )  # fmt: skip


def test_what_could_be_two_flags_or_is_no_flag_any_more_is_taken_as_it_stands(digits: Path) -> None:
    assert "no such option '--model'" in build("--model", "m").stderr  # --model-name and --model-file
    outcome = build("--", "--model-n")
    assert (outcome.cause, "--model-name" in outcome.stderr) == ("source-not-found", False)


def test_a_project_is_built_again_without_force_and_flags_only_with_it(digits: Path) -> None:
    assert [build().returncode, build().returncode] == [0, 0]
    assert [build(*FLAGS).returncode, build(*FLAGS).returncode, build(*FLAGS, "--force").returncode] == [0, 2, 0]


# --- what goes wrong: the mistake, the exit code, the sentence ---


def _folder(name: str) -> None:
    Path(name).unlink(missing_ok=True)
    Path(name).mkdir()


LONG = "a" * 300
# A mistake in the project, the arguments, and a code (of a finding or of the error) or a name in the message.
MISTAKES: list[tuple[Callable[[], object] | None, list[str], str]] = [
    (None, ["handler.py"], "handler.py"),
    (lambda: edit("marpack.yaml", "weights", "wieghts"), [], "unknown-key"),
    (lambda: append("handler.py", "def (:\n"), [], "handler.py:36"),
    (lambda: Path("c.yaml").write_text("a: [\n"), [*FLAGS, "-c", "c.yaml"], "c.yaml:2: "),
    (lambda: _folder("digits.mar"), [], "digits.mar"),
    (None, ["-o", "digits.zip"], "digits.zip"),
    (None, ["--archive-format", "no-archive", "-o", "."], "output"),
    (None, [*FLAGS, "-o", "x.mar"], "--export-path"),
    (None, [*FLAGS, "--extra-files", "a,b"], "2 errors"),
    (lambda: Path("m.mar").touch(), FLAGS, "--force"),
    (None, [f"{LONG}/x"], "File name too long"),
    (None, ["-o", f"{LONG}.mar"], "File name too long"),
    (lambda: append("marpack.yaml", f"files: [{LONG}]\n"), [], "File name too long"),
    (None, [*FLAGS, "--extra-files", LONG], "File name too long"),
    (lambda: append("marpack.yaml", 'requirements: "a\\0b"\n'), [], "requirements"),
    (None, ["--archive-format", "zip"], "--archive-format"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_mistake_is_named_and_changes_nothing(digits: Path, number: int) -> None:
    spoil, arguments, named = MISTAKES[number]
    if spoil:
        spoil()
    before = sorted(path for path in digits.rglob("*"))
    outcome = build(*arguments)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert named in (outcome.cause, *codes(outcome)) or named in " ".join(outcome.stderr.split())
    assert sorted(path for path in digits.rglob("*")) == before


def test_a_date_that_is_none(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch in ("yesterday", "9" * 30):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        outcome = build()
        assert (outcome.returncode, outcome.cause) == (2, "invalid-source-date")
        assert epoch in outcome.stderr


# --- a terminal, and Ctrl-C ---


def sparse(name: str, size: int) -> None:
    with Path(name).open("wb") as file:
        file.truncate(size)


def test_an_interrupted_build_leaves_nothing_behind(digits: Path) -> None:
    append("marpack.yaml", "files: [big.bin]\n")
    sparse("big.bin", 6 << 30)
    before = sorted(digits.rglob("*"))
    command = [sys.executable, "-m", "marpack", "build"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _wait_until_it_copies(process.pid)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "\ninterrupted\n")
    assert sorted(digits.rglob("*")) == before


def _wait_until_it_copies(pid: int) -> None:
    """Wait until a process has copied 64 MiB, or where /proc does not tell, for two seconds."""
    counters, deadline = Path(f"/proc/{pid}/io"), time.monotonic() + (60 if Path("/proc/self/io").exists() else 2)
    while time.monotonic() < deadline:
        time.sleep(0.02)
        counts = counters.read_text().split() if counters.exists() else []
        if counts and int(counts[counts.index("rchar:") + 1]) > 64 << 20:
            return


def test_a_bar_is_shown_on_a_terminal_for_large_weights(digits: Path) -> None:
    append("marpack.yaml", "files: [big.bin]\n")
    sparse("big.bin", 96 << 20)
    with Terminal("build", cwd=digits, forked=False) as terminal:
        assert terminal.end() == 0
        assert "packing" in terminal.seen
        assert "/s" in terminal.seen
