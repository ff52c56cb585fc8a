"""What errors are worded with: the name that was meant, and one line of what another error says."""

import errno
import os
import pickle
from pathlib import Path

import pytest

from marpack.errors import (
    ArchiveError,
    ExitCode,
    MarpackError,
    MissingExtraError,
    ProjectError,
    UsageError,
    convert_os_errors,
    describe_os_error,
    did_you_mean,
    first_line,
    located,
    nearest,
    printable,
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
    ("text", "line"), [("a\nb", "a"), ("\n  a  b\n", "a b"), ("", "ValueError"), ("x" * 300, "x" * 199 + "…")]
)
def test_the_first_line_says_what_went_wrong(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line


def test_a_text_is_shortened_to_one_line() -> None:
    assert shortened("a\n b", 4) == "a b"
    assert shortened("abcde", 4) == "abc…"
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 79 + "…"


def test_characters_that_a_terminal_obeys_are_replaced() -> None:
    assert printable("a\x1b[31mb\n\u202ec") == "a\\x1b[31mb\\n\\u202ec"
    assert printable("a\tb\x07\n", keep="\t\n", stand_in="?") == "a\tb?\n"
    assert printable("größe") == "größe"


def test_a_system_error_becomes_one_of_ours_with_the_file_and_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(UsageError) as caught, convert_os_errors(UsageError, "the file cannot be read", code="mine"):
        missing.read_bytes()
    assert (caught.value.where, caught.value.code) == (str(missing), "mine")
    assert caught.value.what.endswith(os.strerror(errno.ENOENT))
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("number", "word"), [(errno.ENOSPC, "space"), (errno.EDQUOT, "space"), (errno.EMFILE, "ulimit")]
)
def test_a_full_disk_and_too_many_files_have_a_way_out(number: int, word: str) -> None:
    with pytest.raises(UsageError) as caught, convert_os_errors(UsageError, "it cannot be written", where="x"):
        raise OSError(number, os.strerror(number))
    assert word in str(caught.value.hint)


def test_a_system_error_without_words_is_described_by_its_text() -> None:
    assert describe_os_error(OSError("timed out\nlater")) == "timed out"


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    error = MissingExtraError("matplotlib", "explain", "drawing")
    assert {"drawing", "matplotlib,"} <= set(error.what.split())
    assert (".[explain]" in error.hint, error.exit_code) == (True, ExitCode.USAGE)


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
