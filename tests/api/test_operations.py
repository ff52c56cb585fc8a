"""What a command does between its options and its output."""

from pathlib import Path

import pytest

from marpack.api.operations import archive_of
from marpack.api.options import limits_of
from marpack.archive.protocol import Limits, no_progress
from marpack.errors import UsageError


def test_limits_that_are_not_given_stay_what_they_are() -> None:
    assert limits_of() == Limits()
    assert limits_of(max_members=1, max_ratio=3) == Limits(members=1, ratio=3)
    assert limits_of(max_size=2) == Limits(total=2)


def test_a_source_is_an_archive_an_address_or_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "any.mar").touch()
    for source in ("https://host/digits.mar", str(tmp_path / "any.mar")):
        assert archive_of(source, no_progress) == source  # which nothing looks into here
    for source in ("gone.mar", "a\0b"):
        with pytest.raises(UsageError) as refused:
            archive_of(source, no_progress)
        assert (refused.value.code, refused.value.where) == ("source-not-found", source)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marpack.yaml").write_text("name: m\nversion: '1.0'\nhandler: handler.py\n")
    (tmp_path / "handler.py").write_text("def handle(data, context):\n    return data\n")
    assert archive_of(None, no_progress) == archive_of(".", no_progress) == Path("m.mar")
