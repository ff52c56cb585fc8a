"""What counts as the same answer, and that a recording comes back as it was stored."""

from dataclasses import replace

import pytest
from conformance import recording
from conformance.likeness import alike, differing
from conformance.probe import Call, Probe
from conformance.recording import Recording, Reply, current, question_of, store

PLAIN = Reply(200, "", (), b'{"a": [1.0, 2]}')


def bodied(body: bytes) -> Reply:
    return replace(PLAIN, body=body)


@pytest.mark.parametrize(
    ("body", "same"),
    [
        (b'{"a": [1.0000001, 2]}', True),
        (b'{"a": [1.001, 2]}', False),
        (b'{"a": [1.0, 3]}', False),
        (b'{"a": [1.0]}', False),
        (b'{"b": [1.0, 2]}', False),
        (b"[1.0, 2]", False),
        (b"not json", False),
    ],
)
def test_floats_of_other_machines(body, same):
    assert alike(PLAIN, bodied(body), numeric=True) is same
    assert not alike(PLAIN, bodied(body), numeric=False)


@pytest.mark.parametrize(
    "change", [{"status": 201}, {"phrase": "OK"}, {"headers": (("a", "b"),)}, {"end": "reset"}, {"pieces": (b"x",)}]
)
def test_all_but_the_body_must_be_equal(change):
    assert not alike(PLAIN, replace(PLAIN, **change), numeric=True)


REPLIES = {
    "text": bodied("caf\u00e9\n".encode()),
    "binary": bodied(b"\x00\xff"),
    "streamed": Reply(200, "", (("ts_stream_next", "true"),), b"a\xff", (b"a", b"\xff"), "reset"),
}


def test_a_recording_comes_back_as_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    kept = Recording("p", question_of(ASKED), PLAIN, REPLIES)
    store(ASKED, kept)
    assert current(ASKED) == kept


ASKED = Probe(name="p", files={"handler.py": "x = 1"}, steps=(Call("text", "a"),))


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"handler.py": "x = 2"}},
        {"steps": (Call("text", "b"),)},
        {"batch_size": 2},
        {"model": {"handler": "h.py"}},
        {"name": "unrecorded"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_probe_asks_for_a_new_recording(change, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    store(ASKED, Recording("p", question_of(ASKED), PLAIN))
    with pytest.raises(LookupError, match=r"record\.py"):
        current(replace(ASKED, **change))


def test_calls_that_differ_or_are_missing_are_named():
    one = Recording("p", "q", PLAIN, {"same": PLAIN, "number": bodied(b'{"a": [3.0, 2]}'), "gone": PLAIN})
    other = Recording("p", "q", PLAIN, {"same": PLAIN, "number": PLAIN, "new": PLAIN})
    assert differing(one, other, numeric=True) == ["number", "gone", "new"]
    assert differing(one, one, numeric=False) == []
