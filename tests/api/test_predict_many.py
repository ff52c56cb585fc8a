"""`Model.predict_many`: any number of inputs, in order, taken a little ahead, from any thread."""

import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest

import marpack
from marpack.errors import UsageError

HANDLER = """
def handle(data, context):
    if data is None:
        return None
    words = [row["body"] for row in data]
    if "bad" in words:
        raise KeyError("bad")
    return [{"word": word, "of": len(words)} for word in words]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[marpack.Model]:
    folder = tmp_path_factory.mktemp("words")
    (folder / "handler.py").write_text(HANDLER)
    (folder / "marpack.yaml").write_text("name: words\nversion: '1.0'\nhandler: handler.py\n")
    with marpack.load(folder) as model:
        yield model


def words(answers: Iterator[marpack.Model]) -> list[str]:
    return [answer.json()["word"] for answer in answers]


def test_answers_come_in_order_and_inputs_are_taken_only_a_little_ahead(model: marpack.Model) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        for taken in count():
            yield f"w{taken}"

    assert words(islice(model.predict_many(endless()), 1000)) == [f"w{number}" for number in range(1000)]
    assert taken < 1000 + 500
    assert model.predict("after").json()["word"] == "after"


def test_a_batch_fails_as_on_the_server_unless_its_inputs_are_isolated(model: marpack.Model) -> None:
    inputs = ["a", "b", "bad", "c"]
    assert [answer.status for answer in model.predict_many(inputs, batch_size=3)] == [503, 503, 503, 200]
    isolated = list(model.predict_many(inputs, batch_size=3, isolate=True))
    assert [answer.status for answer in isolated] == [200, 200, 503, 200]
    assert isolated[0].json() == {"word": "a", "of": 1}


def test_what_cannot_be_sent_ends_it_after_the_answers_before_it(model: marpack.Model) -> None:
    answers = model.predict_many(["a", "b", float("nan"), "c"])
    assert words(islice(answers, 2)) == ["a", "b"]
    with pytest.raises(UsageError) as raised:
        next(answers)
    assert raised.value.where == "inputs[2]"
    assert model.predict("after").ok
    for size in (0, -1, 1.5, "2", True):
        with pytest.raises(UsageError) as raised:
            model.predict_many(["a"], batch_size=size)
        assert raised.value.where == "batch_size"


def test_threads_get_each_their_own_answers(model: marpack.Model) -> None:
    found: dict[str, list[str]] = {}

    def ask(name: str) -> None:
        found[name] = words(model.predict_many(f"{name}{number}" for number in range(200)))
        found[name] += [model.predict(f"{name}-{number}").json()["word"] for number in range(20)]

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abcd":
        assert found[name] == [*(f"{name}{n}" for n in range(200)), *(f"{name}-{n}" for n in range(20))]
