"""`marpack run --repeat`."""

import pytest
from cli.running import marpack

HANDLER = """
import time
def handle(data, context):
    if data is None: return
    if data[0]["body"] == "bad": raise ValueError
    time.sleep(0.001)
    return ["x" for _ in data]
"""


@pytest.fixture
def mar(make_mar) -> str:
    return str(make_mar(HANDLER, files={"c.yaml": "batchSize: 4\n"}, configFile="c.yaml"))


def test_batch_sizes_up_to_the_servers_are_timed(mar: str):
    done = marpack("run", mar, "--data", "a", "--data", "b", "--repeat", "10")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "4"]
    assert "p99" in lines[0]
    assert "memory" in done.stdout
    assert max(map(len, lines)) <= 80


def test_a_benchmark_wants_every_input(mar: str, tmp_path):
    (tmp_path / "list").write_text("gone.txt\n")
    assert "gone.txt" in marpack("run", mar, "--input", "@list", "--repeat", "2", cwd=tmp_path, code=2).stderr
