"""The check `alike`: the responses of an archive, compared with those of another one."""

from pathlib import Path

import pytest
from gate.archives import HANDLER, archive, examine, found
from refusals import has_code

from marpack.errors import UsageError
from marpack.gate.check import DEFAULT_CHECKS, select_checks
from marpack.gate.verdicts import GateReport, GateVerdict, Similarity, Verdict
from marpack.project.schema import ALIKE
from marpack.project.source import resolve

pytestmark = pytest.mark.usefixtures("small_windows")

WRONG = HANDLER.replace("return {self", "raise ValueError\n        return {self")


def beside(new: Path, old: Path, only: tuple[str, ...] = (ALIKE,), **options: object) -> GateReport:
    return examine(new, choice=select_checks(only, further=[ALIKE]), against=resolve(str(old)), **options)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with another response to one of three samples."""
    return archive(tmp_path_factory.mktemp("other"), HANDLER.replace('in "aeiou"', 'in "aeiouy"'))


def test_every_check_runs_and_the_responses_are_compared(sound: Path):
    report = examine(sound, choice=select_checks((), further=[ALIKE]), against=resolve(str(sound)))
    assert (report.verdict, report.deployable) == (GateVerdict.DEPLOYABLE, True)
    comparison = found(report, ALIKE).comparison
    assert comparison is not None
    assert (comparison.alike, comparison.proved, comparison.counts["exact"]) == (True, True, 3)
    assert [side.handler for side in comparison.sides] == ["handler.Handler"] * 2
    assert all(side.milliseconds > 0 and side.content_digest == report.content_digest for side in comparison.sides)


def test_a_response_that_differs_fails_with_every_difference(sound: Path, other: Path):
    report = beside(sound, other)
    checked = found(report, ALIKE)
    assert (checked.verdict, report.exit_code) == (Verdict.FAILED, 1)
    assert {finding.code for finding in checked.findings} == {"differs"}
    assert checked.comparison is not None
    assert [side.archive for side in checked.comparison.sides] == [str(other), str(sound)]
    assert checked.comparison.largest == pytest.approx(3 / 14)
    apart = [each for each in checked.comparison.results if not each.alike]
    assert len(apart) == len(checked.findings) == 1
    assert checked.findings[0].message.endswith("; ".join(apart[0].differences))
    within = beside(sound, other, tolerance=0.5)
    assert within.exit_code == 0
    comparison = found(within, ALIKE).comparison
    assert comparison is not None
    assert Similarity.ROUNDED in {each.likeness for each in comparison.results}


@pytest.mark.parametrize(
    ("handler", "code", "words"),
    [
        (WRONG, "differs", "the status is 200, not 503"),
        (HANDLER.replace("self.labels = ", "self.labels = {}['x'] or "), "handler", "cannot be compared"),
    ],
)
def test_an_old_archive_that_fails_is_not_alike(sound: Path, tmp_path: Path, handler: str, code: str, words: str):
    report = beside(sound, archive(tmp_path, handler))
    checked = found(report, ALIKE)
    assert (checked.verdict, checked.findings[0].code, report.exit_code) == (Verdict.FAILED, code, 1)
    assert words in checked.findings[0].message


def test_two_archives_that_only_fail_are_not_alike(tmp_path: Path):
    path = archive(tmp_path, WRONG)
    assert [finding.code for finding in found(beside(path, path), ALIKE).findings] == ["not-compared"]


def test_without_requests_or_proof_nothing_is_compared(sound: Path, tmp_path: Path):
    bare = archive(tmp_path, samples={})
    unproved = beside(bare, sound, ("proved",))
    assert unproved.verdict is GateVerdict.NOT_PROVED
    assert found(unproved, ALIKE).reason == "proved failed"
    allowed = beside(bare, sound, ("proved",), allow_unproved=frozenset({"inputs"}), stand_ins="off")
    assert found(allowed, ALIKE).findings[0].code == "not-compared"
    assert allowed.exit_code == 1


def test_an_archive_that_the_checks_refuse_is_not_compared(sound: Path, tmp_path: Path):
    damaged = tmp_path / "damaged.mar"
    damaged.write_bytes(sound.read_bytes()[:-40])
    report = beside(damaged, sound)
    assert (report.exit_code, found(report, ALIKE).verdict) == (3, Verdict.SKIPPED)


def test_alike_requires_another_archive_and_a_removed_check_names_its_replacement():
    assert ALIKE not in DEFAULT_CHECKS
    assert ALIKE not in select_checks((), (ALIKE,), further=[ALIKE])
    assert ALIKE in select_checks(("samples",), further=[ALIKE])
    for name, hint in ((ALIKE, "--against"), ("no-slower", "--repeat")):
        for only, skip in (((name,), ()), ((), (name,))):
            with pytest.raises(UsageError, check=has_code("unknown-check", name)) as refused:
                select_checks(only, skip)
            assert hint in str(refused.value.hint)
