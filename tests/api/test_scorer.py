"""`marpack.Scorer`: one model over tables of any library, wherever it is sent to."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conformance.forking import shared
from lazy import pa, pd

import marpack
from marpack.errors import UsageError

HANDLER = """
import os
def handle(data, context):
    if data is None:
        return None
    words = [row["body"] for row in data]
    if "exit" in words:
        os._exit(1)
    if "bad" in words:
        raise KeyError("bad")
    return [{"label": word.upper(), "length": len(word), "of": len(words)} for word in words]
"""
MAPPING = marpack.RowMapping(text="t", keep=("id",), select={"label": "label", "length": "length:int"})
COLUMNS = ["id", "label", "length", "status", "error"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("words")
    (folder / "handler.py").write_text(HANDLER)
    (folder / "marpack.yaml").write_text("name: words\nversion: '1.0'\nhandler: handler.py\n")
    return marpack.build(folder).path


@pytest.fixture(scope="module")
def scorer(archive: str) -> Iterator[marpack.Scorer]:
    with marpack.Scorer(archive, MAPPING, batch_size=2, isolate=True) as scorer:
        yield scorer


def columns_of(table: Any) -> dict[str, list[Any]]:
    if isinstance(table, pa.Table | pa.RecordBatch):
        return table.to_pydict()
    if isinstance(table, pd.DataFrame):
        return {name: [None if pd.isna(value) else value for value in table[name]] for name in table.columns}
    return {name: list(values) for name, values in table.items()}


ROWS = {"id": [1, 2, 3], "t": ["a", None, "bad"], "x": [0.5, 1.5, 2.5]}


@pytest.mark.parametrize(
    "make_rows",
    [
        lambda: ROWS,
        lambda: {name: np.array(values, object if name == "t" else None) for name, values in ROWS.items()},
        lambda: pa.table(ROWS),
        lambda: pa.RecordBatch.from_pydict(ROWS),
        lambda: pd.DataFrame(ROWS, index=["i", "j", "k"]),
    ],
    ids=["lists", "numpy", "table", "batch", "pandas"],
)
def test_a_table_comes_back_as_the_kind_that_it_was(scorer: marpack.Scorer, make_rows: Callable[[], Any]) -> None:
    rows = make_rows()
    answered = scorer(rows)
    assert type(answered) is type(rows)
    found = columns_of(answered)
    assert list(found) == COLUMNS
    assert (found["id"], found["status"]) == ([1, 2, 3], [200, 0, 503])
    assert (found["label"], found["length"]) == (["A", None, None], [1, None, None])
    assert found["error"][0] is None
    assert ("null" in found["error"][1], "KeyError" in found["error"][2]) == (True, True)
    if isinstance(answered, pd.DataFrame):
        assert list(answered.index) == ["i", "j", "k"]
    if isinstance(answered, pa.Table):
        assert answered.schema.field("length").type == pa.int64()
        assert answered.schema.field("status").type == pa.int32()


def test_an_iterator_of_tables_is_answered_as_it_comes(scorer: marpack.Scorer) -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            taken.append(number)
            yield pa.RecordBatch.from_pydict({"id": [number], "t": ["w" * number]})

    answers = scorer(batches())
    assert taken == []
    assert columns_of(next(answers))["length"] == [0]
    assert taken == [0]
    assert [columns_of(each)["length"] for each in answers] == [[1], [2]]


def test_a_row_that_kills_its_worker_costs_only_itself(scorer: marpack.Scorer) -> None:
    words = ["a", "exit", "b", "bad", "c", "exit", "d"]
    statuses = scorer({"id": list(range(7)), "t": words})["status"]
    assert statuses == [200, 500, 200, 503, 200, 500, 200]


def test_it_pickles_as_its_arguments_and_loads_where_it_is_called(archive: str) -> None:
    with marpack.Scorer(archive, MAPPING, batch_size=3) as scorer:
        scorer(ROWS)  # loaded or not
        data = pickle.dumps(scorer)
    assert len(data) < 2000
    code = (
        "import pickle, sys, json\nscorer = pickle.loads(sys.stdin.buffer.read())\n"
        "assert 'torch' not in sys.modules\n"
        "from conformance.forking import ForkServer, forked_workers\nfrom marpack.runner.client import Worker\n"
        "server = ForkServer(sys.argv[1])\nWorker.spawn = forked_workers(lambda: server)\n"
        "print(json.dumps(scorer({'id': [7, 8], 't': ['x', 'yy']})))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", code, shared(with_torch=False).address]
    done = subprocess.run(words, input=data, env=environment, capture_output=True, check=True)
    columns = {"id": [7, 8], "label": ["X", "YY"], "length": [1, 2], "status": [200, 200], "error": [None, None]}
    assert json.loads(done.stdout) == columns


def test_what_it_started_ends_with_it(archive: str) -> None:
    scorer = marpack.Scorer(archive, MAPPING)
    scorer(ROWS)
    worker = scorer._session.pool._workers[0].worker
    assert not worker.process.ended()
    del scorer
    assert worker.process.ended(within=30)


def test_a_column_of_pandas_may_hold_anything(archive: str) -> None:
    frame = pd.DataFrame({"t": pd.Series(["a", 5, float("nan")], dtype=object)})
    with marpack.Scorer(archive, marpack.RowMapping(text="t")) as scorer:
        assert list(scorer(frame)["status"]) == [200, 0, 0]


def test_unusable_tables_are_refused(scorer: marpack.Scorer) -> None:
    wrong = [{"t": ["a"]}, {"id": [1], "T": ["a"]}, {"id": [1, 2], "t": ["a"]}, ["a"], "a"]
    for rows in (*wrong, pa.table({"id": [1], "t": [1]})):
        with pytest.raises(UsageError):
            scorer(rows)
