"""What errors are worded with: the name that was meant, and one line of what another error says."""

import pickle

import pytest

from marpack.errors import (
    ArchiveError,
    ExitCode,
    MarpackError,
    MissingExtraError,
    ProjectError,
    UsageError,
    did_you_mean,
    first_line,
    located,
    nearest,
    shortened,
)
from marpack.findings import Finding, Severity
from marpack.protocol.messages import LoadFailed, Trouble
from marpack.runner.client import LoadError


def test_the_nearest_name_is_what_was_meant() -> None:
    assert nearest("biuld", ["inspect", "build", "run"]) == "build"
    assert nearest("serve", ["inspect", "build"]) is None
    assert "build?" in str(did_you_mean("biuld", ["build"]))
    assert did_you_mean("biuld", []) is None


def test_what_no_hand_has_written_costs_nothing() -> None:
    assert nearest("x" * 100_000, ["x" * 100_000]) is None
    assert nearest("name", [*(str(number) for number in range(500)), "names"]) is None
    assert nearest("name", [*(str(number) for number in range(499)), "names"]) == "names"
    assert nearest("x" * 81, ["x" * 81]) is None
    assert nearest("x" * 80, ["x" * 80]) == "x" * 80


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb", "a"), ("\n  a  b\n", "a b"), ("", "ValueError"), ("x" * 300, "x" * 199 + "…")],
)
def test_the_first_line_says_what_went_wrong(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line


def test_a_text_is_shortened_to_one_line() -> None:
    assert shortened("a\n b", 4) == "a b"
    assert shortened("abcde", 4) == "abc…"
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 79 + "…"


def test_an_error_reads_as_its_place_and_what_is_wrong() -> None:
    assert str(MarpackError("it is gone", where="a.mar", hint="fetch it")) == "a.mar: it is gone"
    assert str(MarpackError("it is gone")) == "it is gone"


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    error = MissingExtraError("matplotlib", "explain", "drawing")
    assert {"drawing", "matplotlib,"} <= set(error.what.split())
    assert (error.hint, error.exit_code) == ("pip install 'marpack[explain]'", ExitCode.USAGE)


def test_an_error_gets_its_place_where_it_knows_no_nearer_one() -> None:
    for where, told in ((None, "a.mar"), ("a.mar!x", "a.mar!x")):
        with pytest.raises(UsageError) as caught, located("a.mar"):
            raise UsageError("no", where=where)
        assert caught.value.where == told


@pytest.mark.parametrize(
    "error",
    [
        MarpackError("it is gone", where="a.mar", hint="fetch it"),
        MissingExtraError("matplotlib", "explain", "drawing"),
        ProjectError("two things are wrong", findings=(Finding(code="a", severity=Severity.ERROR, message="b"),)),
        LoadError(LoadFailed(trouble=Trouble(kind="ImportError", message="no"), status=500), "said before", where="m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: MarpackError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_exit_codes_are_a_promise_to_scripts() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 130]
    assert (MarpackError.exit_code, ArchiveError.exit_code) == (ExitCode.SHORT, ExitCode.ARCHIVE)
