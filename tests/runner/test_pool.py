import textwrap
from collections.abc import Iterator

import pytest
from workers import launch

from marpack.errors import ClosedError
from marpack.protocol.messages import Load
from marpack.runner.client import LoadError
from marpack.runner.pool import LocalPool, PoolSettings, keep_spare_workers
from marpack.torchserve.http import Part, Request

HANDLER = textwrap.dedent(
    """
    import os, sys, time
    class Handler:
        def initialize(self, context): pass
        def handle(self, data, context):
            return [self.answer(bytes(row["body"]).decode()) for row in data]
        def answer(self, word):
            print("saw", word)
            if word == "exit": os._exit(1)
            if word == "hang": time.sleep(60)
            if word == "raise": raise KeyError(word)
            if word == "slow": time.sleep(0.2)
            return word
    """
)


@pytest.fixture
def pool(make_folder) -> Iterator[LocalPool]:
    with LocalPool(Load(model_dir=str(make_folder(HANDLER))), PoolSettings(launch=launch)) as pool:
        pool.start()
        yield pool


def batches(words: list[str]) -> Iterator[tuple[Request, ...]]:
    for number, word in enumerate(words):
        yield (Request(id=str(number), parts=(Part("body", word.encode()),)),)


def test_every_input_is_answered_in_order_whatever_the_handler_does(make_folder):
    bad = {100: "exit", 300: "hang", 500: "raise", 501: "exit", 502: "exit"}
    words = [bad.get(number, f"w{number}") for number in range(1000)]
    load = Load(model_dir=str(make_folder(HANDLER)))
    with LocalPool(load, PoolSettings(workers=2, timeout=3.0, launch=launch)) as pool:
        pool.start()
        outcomes = list(pool.outcomes(batches(words)))
        assert pool.restarts == 4
    assert len(outcomes) == len(words)
    for number, (word, outcome) in enumerate(zip(words, outcomes, strict=True)):
        if number in bad:
            assert outcome.responses[0].status in {500, 503}
        else:
            assert outcome.responses[0].body == word.encode()
            assert outcome.logs.startswith(f"saw {word}\n")


def test_batches_are_asked_for_only_as_they_are_needed(pool: LocalPool):
    asked = 0

    def endless() -> Iterator[tuple[Request, ...]]:
        nonlocal asked
        while True:
            asked += 1
            yield (Request(id="x", parts=(Part("body", b"x" * 1000),)),)

    outcomes = pool.outcomes(endless())
    for _ in range(500):
        next(outcomes)
    assert asked < 500 + 200


def test_an_error_of_the_inputs_own_leaves_no_process_behind(pool: LocalPool):
    def broken() -> Iterator[tuple[Request, ...]]:
        yield from batches(["a"])
        raise OSError("the disk is gone")

    worker = pool._workers[0].worker
    with pytest.raises(OSError, match="disk"), pool:
        list(pool.outcomes(broken()))
    assert worker.process.ended()


def test_a_worker_that_could_not_be_restarted_is_started_for_the_next_batches(make_folder, tmp_path):
    broken = tmp_path / "broken"
    handler = HANDLER.replace("context): pass", f"context): os.path.exists({str(broken)!r}) and sys.exit()")
    with LocalPool(Load(model_dir=str(make_folder(handler))), PoolSettings(launch=launch)) as pool:
        pool.start()
        other = pool.outcomes(batches(["a", "b", "c"]))
        assert next(other).responses[0].body == b"a"
        broken.touch()
        for _ in range(2):
            with pytest.raises(LoadError):
                list(pool.outcomes(batches(["exit"])))
        broken.unlink()
        assert [outcome.responses[0].body for outcome in pool.outcomes(batches(["d", "e"]))] == [b"d", b"e"]
        assert [outcome.responses[0].body for outcome in other] == [b"b", b"c"]


def test_a_closed_pool_starts_no_worker(pool: LocalPool):
    pool.close()
    with pytest.raises(ClosedError):
        list(pool.outcomes(batches(["a"])))
    assert (pool.restarts, len(pool.loads)) == (0, 1)


def test_a_spare_worker_is_there_for_each_that_is_taken(make_folder):
    load = Load(model_dir=str(make_folder(HANDLER)))
    with keep_spare_workers(launch, 2) as take:
        with LocalPool(load, PoolSettings(workers=2, launch=take)) as pool:
            pool.start()
            outcomes = list(pool.outcomes(batches(["a", "exit", "b"])))
            assert pool.restarts == 1
        waiting = [take() for _ in range(3)]
        assert not any(worker.process.ended() for worker in waiting)
        for worker in waiting:
            worker.kill()
        left = take()
    assert [outcome.responses[0].status for outcome in outcomes] == [200, 500, 200]
    left.kill()


@pytest.mark.parametrize(
    ("settings", "config", "bounds"),
    [
        ({}, {}, (120.0, 120.0)),
        ({}, {"responseTimeout": 5, "startupTimeout": 7}, (5.0, 7.0)),
        ({"timeout": 1.5}, {"responseTimeout": 5}, (1.5, 120.0)),
        ({"startup_timeout": 2.5}, {"startupTimeout": 7}, (120.0, 2.5)),
    ],
)
def test_a_batch_and_loading_may_take_as_long_as_on_the_server(settings, config, bounds: tuple[float, float]):
    served = PoolSettings(workers=3, **settings).as_served(config)
    assert (served.timeout, served.startup_timeout, served.workers) == (*bounds, 3)


def test_streams_side_by_side_yield_each_its_own(make_folder):
    with LocalPool(Load(model_dir=str(make_folder(HANDLER))), PoolSettings(workers=2, launch=launch)) as pool:
        pool.start()
        first, second = (pool.outcomes(batches([f"{name}{n}" for n in range(600)])) for name in "ab")
        both = [(next(first), next(second)) for _ in range(600)]
        assert not list(first)
        assert not list(second)
    for number, pair in enumerate(both):
        assert [outcome.responses[0].body.decode() for outcome in pair] == [f"a{number}", f"b{number}"]


def test_a_stream_that_is_dead_leaves_nothing_to_the_next(pool: LocalPool):
    given_up = pool.outcomes(batches(["a", "b", "exit", *"c" * 400]))
    assert next(given_up).responses[0].body == b"a"
    given_up.close()
    (outcome,) = pool.outcomes(batches(["mine"]))
    assert outcome.responses[0].body == b"mine"
    list(pool.outcomes(batches(["x"] * 400)))
    assert (pool.restarts, pool._done, pool._unwanted) == (1, {}, set())
