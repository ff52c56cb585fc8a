import time

import numpy as np
import pytest

from marpack.protocol.messages import ModelOutput, Trouble
from marpack.worker.notes import (
    Explained,
    add_timing,
    attempt,
    drain_notes,
    drain_outputs,
    drain_timings,
    explained,
    milliseconds_since,
    note,
    record_output,
)


def test_a_note_is_kept_once_and_until_it_is_told():
    drain_notes()
    for message in ("a", "b", "a"):
        note("kind", message, stage="import", hint="mend it")
    assert drain_notes() == tuple(
        Trouble(kind="kind", message=message, stage="import", hint="mend it") for message in ("a", "b")
    )
    note("kind", "a")
    assert drain_notes() == (Trouble(kind="kind", message="a"),)
    assert drain_notes() == ()


def test_of_more_notes_than_anyone_reads_the_first_hundred_are_kept():
    drain_notes()
    for number in range(102):
        note("kind", str(number))
    assert [each.message for each in drain_notes()] == [str(number) for number in range(100)]


def test_time_is_told_in_milliseconds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 12.25)
    assert milliseconds_since(10.0) == 2250.0


def test_times_add_up_until_they_are_told():
    drain_timings()
    for what, spent in (("compile", 1.5), ("export", 1.0), ("compile", 2.0)):
        add_timing(what, spent)
    assert drain_timings() == {"compile": 3.5, "export": 1.0}
    assert drain_timings() == {}


def test_outputs_are_told_once_each():
    drain_outputs()
    for width in (*range(101), 1):
        record_output(np.zeros((2, width)))
    record_output(np.zeros((2, 3, 4)))
    record_output({"logits": np.zeros((2, 3))})
    assert drain_outputs() == {ModelOutput(width) for width in range(100)}
    assert drain_outputs() == frozenset()


def test_an_exception_is_explained_on_its_way_out():
    said: list[Exception] = []
    with pytest.raises(KeyError) as caught, Explained(said.append):
        raise KeyError("a")
    assert said == [caught.value]
    with Explained(said.append):
        pass
    with pytest.raises(SystemExit), Explained(said.append):
        raise SystemExit
    assert len(said) == 1


def test_what_is_attempted_returns_what_it_raises_but_for_what_ends_a_process():
    assert attempt(lambda: 1) == 1
    assert isinstance(attempt(lambda: 1 / 0), ZeroDivisionError)
    with pytest.raises(KeyboardInterrupt):
        attempt(lambda: exec("raise KeyboardInterrupt"))


def test_an_exception_is_told_with_what_explains_it_and_without_other_notes():
    drain_notes()
    note("before", "before", hint="not this")
    with pytest.raises(KeyError), Explained(lambda _: note("why", "because", hint="mend it")):
        raise KeyError
    note("after", "after", hint="nor this")
    trouble = Trouble(kind="KeyError", message="", notes=("while",))
    assert explained(trouble) == Trouble(kind="KeyError", message="", notes=("because", "while"), hint="mend it")
    own = Trouble(kind="KeyError", message="", hint="its own")
    assert explained(own).hint == "its own"
    drain_notes()
    assert explained(own) is own
