"""What every command shares on a terminal."""

import pytest

from marpack.errors import BuildError
from marpack.render.console import page, plain, show_error


def test_a_text_between_colons_stays_what_it_is(capsys: pytest.CaptureFixture[str]):
    page().print(plain("models/a:cat:b [bold]"))
    show_error(BuildError("the label :fire: is missing", where="C:key:labels.txt", hint="add :fire:"))
    out, err = capsys.readouterr()
    assert out == "models/a:cat:b [bold]\n"
    assert err.splitlines() == [
        "error: the label :fire: is missing",
        "  where: C:key:labels.txt",
        "  hint:  add :fire:",
    ]
