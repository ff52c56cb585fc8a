"""Faults that only a request shows, in archives without samples: none of them is deployable."""

from pathlib import Path
from typing import NamedTuple

import pytest
from gate.archives import archive, examine, failures

from marpack.gate.verdicts import GateVerdict
from marpack.runner.inputs import Input, RequestDefaults, type_of


def inputs_of(contents: dict[str, str | bytes]) -> tuple[Input, ...]:
    shape = RequestDefaults()
    bodies = ((name, body.encode() if isinstance(body, str) else body) for name, body in contents.items())
    return tuple(shape.input(name, at, type_of(name, body), body) for at, (name, body) in enumerate(bodies))


def rows(answer: str, before: str = "", *, initialize: str = "self.seen = 0") -> str:
    """Return a handler whose `handle` returns an expression of `data`, the rows."""
    return f"""
import json
import os
{before}


class Handler:
    def initialize(self, context):
        {initialize}

    def handle(self, data, context):
        return {answer}
"""


class Faulty(NamedTuple):
    source: str
    sent: dict[str, str | bytes]
    batch: int = 1


TEXT: dict[str, str | bytes] = {"a.txt": "a bee", "b.txt": "the sea"}
JSON: dict[str, str | bytes] = {"a.json": "[1, 2, 3]", "b.json": "[4, 5, 6]"}
BASE = "from ts.torch_handler.base_handler import BaseHandler"
FAULTY = {
    "a tensor is returned": Faulty(rows("torch.ones(len(data))", "import torch"), TEXT),
    "a generator is returned": Faulty(rows("(len(row) for row in data)"), TEXT),
    "nothing is returned": Faulty(rows("print(len(data))"), TEXT),
    "numbers of numpy's": Faulty(rows("[{'n': numpy.float32(1)} for row in data]", "import numpy"), TEXT),
    "a tensor in a dict": Faulty(rows("[{'n': torch.ones(2)} for row in data]", "import torch"), TEXT),
    "decoded JSON is decoded": Faulty(rows("[json.loads(row['body'].decode()) for row in data]"), JSON),
    "the body is looked for elsewhere": Faulty(rows("[len(row['data']) for row in data]"), TEXT),
    "a mapping that was never read": Faulty(
        rows("[self.mapping['0'] for row in data]", BASE).replace("class Handler", "class Handler(BaseHandler)"), TEXT
    ),
    "a file that was not packed": Faulty(rows("[open('vocabulary.txt').read() for row in data]"), TEXT),
    "a module that is imported late": Faulty(rows("[__import__('no_such_module') for row in data]"), TEXT),
    "a model of another width": Faulty(
        rows("self.net(torch.tensor([row['body'] for row in data], dtype=torch.float)).tolist()",
             "import torch", initialize="self.net = torch.nn.Linear(4, 2)"),
        JSON,
    ),
    "one result for three rows": Faulty(rows("[len(data[0]['body'])]"), TEXT, batch=3),
    "one row short": Faulty(rows("[len(row['body']) for row in data[: max(1, len(data) - 1)]]"), TEXT, batch=4),
    "a batch that does not stack": Faulty(
        rows("torch.tensor([[ord(c) for c in row['body']] for row in data]).tolist()", "import torch"), TEXT, batch=2
    ),
    "the first row's answer for all": Faulty(rows("[len(data[0]['body'])] * len(data)"), TEXT, batch=2),
}  # fmt: skip
DAY = ("a tensor is returned", "decoded JSON is decoded", "one result for three rows")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in DAY else pytest.mark.slow) for name in FAULTY])
def test_an_archive_that_fails_on_requests_is_never_deployable(name: str, tmp_path: Path):
    fault = FAULTY[name]
    path = archive(tmp_path / "p", fault.source, samples={}, labels=None, config={"batchSize": fault.batch})
    blind = examine(path)
    assert failures(blind).keys() == {"proved"}, "nothing but a request shows it"
    assert blind.verdict is GateVerdict.NOT_PROVED
    asked = examine(path, inputs=inputs_of(fault.sent))
    assert asked.verdict is GateVerdict.REFUSED
    assert asked.exit_code == 1
