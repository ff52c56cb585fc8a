import ast
import re
from pathlib import Path

import pytest

from marpack.torchserve import model_config
from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.model_config import (
    KEYS,
    ConfigError,
    Sequences,
    Torchrun,
    batch_size_of,
    read_config,
    seconds_of,
)

NO_NUMBERS = [None, 0, -1, True, 2.0, "5", [5], 1 << 31]


def test_what_java_holds_is_taken_and_as_seconds_what_a_clock_can_wait_for():
    for value in NO_NUMBERS:  # count as not set
        assert batch_size_of({"batchSize": value}) == 1
        assert seconds_of({"responseTimeout": value}, "responseTimeout") == 120.0
    for value, seconds in ((1, 1.0), (7, 7.0), (1_000_000, 1e6), (1_000_001, 1e6), ((1 << 31) - 1, 1e6)):
        assert batch_size_of({"batchSize": value}) == value
        assert seconds_of({"startupTimeout": value}, "startupTimeout") == seconds


@pytest.mark.parametrize(
    ("config", "ranks"),
    [
        ({"parallelType": "tp", "torchrun": {"nproc-per-node": 4}}, 4),
        ({"parallelType": "PPTP", "torchrun": {"nproc-per-node": 2, "nnodes": 3}}, 6),
        ({"parallelType": "pp", "torchrun": {"nproc-per-node": 1}}, 1),
        ({"parallelType": "pp", "torchrun": {"nproc-per-node": 1, "nnodes": 2}}, 2),
        ({"parallelType": "custom", "torchrun": {"nproc-per-node": 4}}, None),
        ({"parallelType": "tp", "parallelLevel": 4}, None),
        ({"torchrun": {"nproc-per-node": 4}}, None),
        ({"parallelType": "tp", "torchrun": [4]}, None),
        *(({"parallelType": "tp", "torchrun": {"nproc-per-node": value}}, None) for value in NO_NUMBERS),
    ],
)
def test_torchrun_starts_so_many_ranks(config: dict[str, object], ranks: int | None):
    torchrun = Torchrun.of(config)
    assert (torchrun and torchrun.ranks) == ranks


def test_a_mapping_is_read_as_it_stands(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("batchSize: 4\nhandler: {1: on}\ntorchrun: {nproc-per-node: 2}\n")
    found = read_config(str(tmp_path), "config.yaml")
    assert found == {"batchSize": 4, "handler": {1: True}, "torchrun": {"nproc-per-node": 2}}
    with pytest.raises(ConfigError, match=r"configFile.* 3"):
        read_config(str(tmp_path), 3)


def test_what_the_server_refuses_is_refused(tmp_path: Path):
    keys = {"on: 1": "the key True", "a: 1\n2: 3": "the key 2", "torchrun: {3: 4}": "the key 3"}
    for text, words in ({"": "is empty", "- 1": "is a list"} | keys).items():
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(ConfigError, match=words) as caught:
            read_config(str(tmp_path), "config.yaml")
        assert ("uote the key" if text in keys else "at least one key") in caught.value.hint


PACKAGE = Path(model_config.__file__).parents[1]
IN_RUN = ("worker", "torchserve", "runner", "gate")


def literals(*rooms: str) -> set[str]:
    """Return every text in the code of some rooms, the table of the keys aside."""
    paths = {path for room in rooms for path in (PACKAGE / room).rglob("*.py")} - {Path(model_config.__file__)}
    own = ast.parse(Path(model_config.__file__).read_text())
    functions = [node for node in ast.walk(own) if isinstance(node, ast.FunctionDef)]
    nodes = [node for tree in (*functions, *(ast.parse(path.read_text()) for path in paths)) for node in ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def asked_of_a_config() -> set[str]:
    """Return every key that code asks a model config for."""
    asked = r"""(?:\bconfig|model_yaml_config|\.values)(?:\.get\(|\[)"(\w+)\""""
    rooms = (*IN_RUN, "serving", "exporting", "inspection/lint")
    places = [path for room in rooms for path in PACKAGE.glob(f"{room}/**/*.py")]
    return {key for path in places for key in re.findall(asked, path.read_text())}


def test_what_code_asks_a_config_for_is_in_the_table():
    assert len(asked_of_a_config()) > 8
    assert asked_of_a_config() <= set(KEYS)


def test_what_the_table_says_of_run_and_serve_is_what_their_code_reads():
    run, serve = literals(*IN_RUN), literals("serving", "worker", "torchserve")
    by_name = {name.rpartition(".")[2]: key for name, key in KEYS.items()}
    assert {name for name, key in by_name.items() if not key.run.startswith("no")} <= run
    assert {name for name, key in by_name.items() if not key.serve.startswith("no")} <= serve
    unread = {name for name, key in by_name.items() if key.run.startswith("no")} & run
    assert not unread
    shown = {name for name, key in by_name.items() if key.serve.startswith("no") and "shows" not in key.serve}
    assert shown & serve == {"parallelLevel"}  # whose 0 a description has, as the server's


@pytest.mark.parametrize(
    ("idle", "stuck"), [(None, True), (0, True), (-1, True), (True, True), ("6000", True), (1, False), (6000, False)]
)
def test_without_an_idle_time_the_server_answers_no_sequence(idle: object, stuck: bool):
    assert Sequences.of({"sequenceBatching": True, "sequenceMaxIdleMSec": idle}) == Sequences(stuck)
    assert [Sequences.of({"sequenceBatching": asked}) for asked in ("true", False)] == [None, None]


def test_a_request_of_no_sequence_begins_one():
    context = Context("m", ".", {}, 1, None, "0.12.0")
    names = ("ts_request_sequence_id", "ts_request_sequence_start")
    requests = [RequestProcessor(sent) for sent in ({}, {names[0]: ""}, {names[0]: "mine"})]
    for request in requests:
        Sequences(stuck=False).enter(request, context)
    first, second, third = ([request.get_request_property(name) for name in names] for request in requests)
    assert (first[0][:7], second[0][:7], first[0] == second[0]) == ("ts-seq-", "ts-seq-", False)
    assert (first[1], second[1]) == ("true", "true")
    assert third == ["mine", None]
