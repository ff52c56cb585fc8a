"""A batch that failed, asked again one by one: a bad input costs only itself."""

import textwrap
from collections.abc import Iterator

import pytest
from workers import launch

from marpack.errors import UsageError
from marpack.protocol.messages import Load
from marpack.runner.inputs import Input, RequestDefaults, unreadable
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.runner.results import Result, answered_inputs

HANDLER = textwrap.dedent(
    """
    import os
    from ts.utils.util import PredictionException
    class Handler:
        def initialize(self, context): pass
        def handle(self, data, context):
            words = [bytes(row["body"]).decode() for row in data]
            if "exit" in words: os._exit(1)
            if "raise" in words: raise KeyError("raise")
            if "refuse" in words: raise PredictionException("no such word", 404)
            if "short" in words: return words[1:]
            for index, word in enumerate(words):
                if word == "own": context.set_response_status(503, "busy", index)
            return words
    """
)


@pytest.fixture
def pool(make_folder) -> Iterator[LocalPool]:
    with LocalPool(Load(model_dir=str(make_folder(HANDLER))), PoolSettings(launch=launch)) as pool:
        pool.start()
        yield pool


def input_of(number: int, word: str) -> Input:
    if word == "unreadable":
        return unreadable(word, UsageError("no such file"))
    return RequestDefaults().input(word, number, "", word.encode())


def answered(pool: LocalPool, words: list[str], size: int, *, isolate: bool) -> list[Result]:
    inputs = (input_of(number, word) for number, word in enumerate(words))
    return [each.result for each in answered_inputs(pool, inputs, batch_size=size, isolate=isolate)]


BAD = {"exit": 500, "raise": 503, "refuse": 404, "short": 503, "own": 503, "unreadable": 0}


def test_a_bad_input_costs_only_itself(pool: LocalPool):
    for bad in BAD:
        words = [f"w{number}" for number in range(50)]
        words[21] = bad
        answers = answered(pool, words, 8, isolate=True)
        assert [answer.input for answer in answers] == words
        assert [answer.status for answer in answers] == [BAD.get(word, 200) for word in words]
        assert all(answer.body == answer.input for answer in answers if answer.ok)


def test_of_a_batch_that_fails_each_input_is_sent_again_if_asked(pool: LocalPool):
    def statuses(words: list[str], size: int, *, isolate: bool = True) -> list[int]:
        return [answer.status for answer in answered(pool, words, size, isolate=isolate)]

    assert statuses(["a", "raise", "b", "c"], 2, isolate=False) == [503, 503, 200, 200]  # as on the server
    assert statuses(["exit", "raise"] * 3, 3) == [500, 503] * 3
    answers = answered(pool, ["a", "own"], 2, isolate=True)  # a failure of the handler's own stays
    assert [(answer.status, answer.batch) for answer in answers] == [(200, 2), (503, 2)]
