"""Consent to a download, on a terminal and without one."""

import io
from contextlib import nullcontext

import pytest
from refusals import has_facts

from marpack.api.sessions import Consent, answer_on_terminal
from marpack.errors import UnconfirmedDownloadError
from marpack.runner.pip_sizes import Download


@pytest.mark.parametrize(
    ("size", "yes", "answer", "asks", "goes_on"),
    [
        (0, False, None, False, True),
        (500_000_000, False, None, False, True),
        (500_000_001, False, None, True, False),
        (500_000_001, False, False, True, False),
        (500_000_001, False, True, True, True),
        (500_000_001, True, None, False, True),
        (500_000_001, "no", None, True, False),  # only True is a yes
        (None, False, None, True, False),
        (None, False, True, True, True),
        (None, True, None, False, True),
    ],
)
def test_a_large_download_or_one_of_unknown_size_is_confirmed(size, yes, answer, asks, goes_on):
    asked: list[str] = []
    told: list[str] = []

    def ask(question: str) -> bool | None:
        asked.append(question)
        return answer

    download = Download(("big-1.0-py3-none-any.whl",), size, "" if size is not None else "why")
    with nullcontext() if goes_on else pytest.raises(UnconfirmedDownloadError, check=has_facts("--yes")):
        Consent(yes, ask).confirm(download, told.append)
    assert UnconfirmedDownloadError.exit_code == 2
    assert bool(asked) is asks
    if size != 0:
        assert ("500.0 MB" if size else "unknown") in told[0]
        assert "big-1.0" in told[0]


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdin", "stderr", "answer"),
    [
        (Typed("y\n"), Typed(), True),
        (Typed("YES\n"), Typed(), True),
        (Typed("\n"), Typed(), False),
        (Typed(""), Typed(), False),  # Ctrl-D
        (io.StringIO("y\n"), Typed(), None),
        (Typed("y\n"), io.StringIO(), None),
        (None, Typed(), None),
    ],
)
def test_only_a_terminal_is_asked(stdin, stderr, answer, monkeypatch):
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("sys.stderr", stderr)
    assert answer_on_terminal("really? ") is answer
    assert stderr.getvalue() == ("" if answer is None else "really? ")
