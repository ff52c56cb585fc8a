"""No false alarms: archives with nothing wrong pass every check, however they are written."""

from pathlib import Path

from gate.archives import archive, examine, failures

from marpack.gate.verdicts import Verdict


def test_the_archive_that_the_others_are_broken_from_is_whole(tmp_path: Path):
    report = examine(archive(tmp_path))
    assert failures(report) == {}
    assert report.deployable
    assert {checked.name for checked in report.checks if checked.verdict is Verdict.SKIPPED} == {
        "requirements", "compiled",
    }  # fmt: skip
