import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marpack.runner.in_process import QuitDebugging, debug_failure

SOURCE = "import json\ndef ask(word):\n    json.loads(word)\nask('{')\n"


@pytest.fixture
def debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what opens the debugger on a failure in the author's file, and types some commands."""
    path = tmp_path / "handler.py"
    path.write_text(SOURCE)
    with pytest.raises(ValueError, match="Expecting") as caught:
        exec(compile(SOURCE, str(path), "exec"), {})

    def type_in(commands: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(commands))
        debug_failure(caught.value, str(tmp_path))

    return type_in


def test_the_debugger_says_what_was_raised_and_begins_in_the_authors_innermost_frame(debug, capsys):
    debug("p 'word', word\nc\n")
    said = capsys.readouterr().out
    assert said.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert "post mortem: " in said
    assert "('word', '{')" in said


def test_who_leaves_the_debugger_ends_the_run(debug):
    with pytest.raises(QuitDebugging):
        debug("q\n")
