"""Stages are timed, and the handler stays what its author made."""

import copy
import pickle
import time

import pytest

from marpack.worker.stages import StageClock


class Base:
    def preprocess(self, data):
        return [*data, "base"]

    def inference(self, data):
        if "bad" in data:
            raise KeyError("bad")
        return data

    @staticmethod
    def postprocess(data):
        return data


class Handler(Base):
    def __init__(self) -> None:
        self.words = ["a"]

    def preprocess(self, data):
        return super().preprocess([*data, "own"])


def watched(handler: object) -> StageClock:
    clock = StageClock()
    clock.watch(handler)
    return clock


def test_methods_are_timed_once_wherever_they_are_inherited_from():
    handler = Handler()
    clock = watched(handler)
    assert handler.postprocess(handler.inference(handler.preprocess([]))) == ["own", "base"]
    assert clock.take().keys() == {"preprocess", "inference"}
    assert clock.take() == {}


def test_calls_of_a_stage_add_up_whether_or_not_they_fail(monkeypatch: pytest.MonkeyPatch):
    moments = iter([1.0, 1.5, 2.0, 2.25, 3.0, 3.125])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    handler = Handler()
    clock = watched(handler)
    handler.inference([])
    with pytest.raises(KeyError):
        handler.inference(["bad"])
    handler.preprocess([])
    assert clock.failed == "inference"
    assert clock.take() == {"inference": 750.0, "preprocess": 125.0}
    assert clock.failed is None


def test_of_stages_that_call_each_other_the_innermost_has_failed():
    handler = type("Nested", (Base,), {"preprocess": lambda self, data: self.inference(data)})()
    clock = watched(handler)
    with pytest.raises(KeyError):
        handler.preprocess(["bad"])
    assert clock.failed == "inference"


def test_the_instance_is_left_as_it_was():
    handler = Handler()
    watched(handler)
    assert vars(handler) == {"words": ["a"]}
    assert vars(copy.deepcopy(handler)) == vars(handler)
    assert pickle.loads(pickle.dumps(handler.preprocess))(["x"]) == ["x", "own", "base"]
    assert Handler.preprocess.__qualname__ == "Handler.preprocess"


def test_others_of_the_class_are_not_counted_and_a_later_handler_takes_over():
    first, second = Handler(), Handler()
    early = watched(first)
    second.preprocess([])
    assert early.take() == {}
    late = watched(second)
    assert second.preprocess([]) == ["own", "base"]
    assert (early.take(), set(late.take())) == ({}, {"preprocess"})


def test_what_an_author_puts_into_the_class_counts_and_what_cannot_be_timed_still_answers():
    assert (watched(None).take(), watched({}).take()) == ({}, {})
    handler = Handler()
    clock = watched(handler)
    Handler.inference = lambda self, data: "patched"
    try:
        assert handler.inference([]) == "patched"
    finally:
        del Handler.inference
    assert clock.take() == {}
