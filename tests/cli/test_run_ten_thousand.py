"""Whatever a handler does to five inputs of many, the others are answered, in order, and nothing is left."""

import json
import os
import textwrap
from pathlib import Path

import pytest
from cli.running import apart

HANDLER = textwrap.dedent(
    """
    import ctypes, os, time
    from pathlib import Path
    with open(os.environ["PIDS"], "a") as file:
        file.write(f"{os.getpid()}\\n")

    def handle(data, context):
        if data is None: return
        return [answer(bytes(row["body"]).decode()) for row in data]

    def answer(word):
        if word == "segfault": ctypes.string_at(0)
        if word == "hang": time.sleep(600)
        if word == "exit": os._exit(5)
        if word == "raise": raise KeyError(word)
        if word == "fill":
            hoard = []
            while True: hoard.append(bytearray(16 << 20))
        return word[::-1]
    """
)
STATUS = {"raise": 503, "segfault": 500, "hang": 500, "fill": 507, "exit": 500}


@pytest.mark.parametrize(
    ("count", "workers", "size"),
    [pytest.param(100, 2, 1, marks=pytest.mark.peer), pytest.param(10_000, 2, 8, marks=pytest.mark.slow)],
)
def test_five_bad_inputs_of_many_do_not_affect_the_others(
    make_mar, tmp_path: Path, count: int, workers: int, size: int
):
    # Where they lie: at the ends, one after the other, and in the middle.
    bad = {0: "raise", count // 4: "segfault", count // 4 + 1: "hang", count // 2: "fill", count - 1: "exit"}
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05}.bin").write_text(bad.get(number, f"w{number}"))
    done = apart(
        "run", str(make_mar(HANDLER)), "--input", "in", "--jsonl", "--workers", str(workers),
        "--timeout", "3", "--max-memory", "600M", "--batch-size", str(size),
        cwd=tmp_path, env={"PIDS": str(tmp_path / "pids")}, code=1,
    )  # fmt: skip

    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [item["input"] for item in told] == [f"in/{number:05}.bin" for number in range(count)]
    lost = {number for place in bad for number in range(place // size * size, place // size * size + size)}
    for number, item in enumerate(told):
        if number not in lost:
            assert (item["status"], item["body"]) == (200, f"w{number}"[::-1])
    for number, word in bad.items():
        assert told[number]["status"] == STATUS[word]
        assert told[number]["troubles"]
    restarts = sum(item["restarted"] for number, item in enumerate(told) if number % size == 0)
    assert restarts in {2, 3}

    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == workers + restarts
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
