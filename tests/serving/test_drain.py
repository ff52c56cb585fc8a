import signal
import time
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path

import pytest
from serving.faulty import Load, eventually, served, write_archive

nightly = pytest.mark.nightly(reason="a server each: the drain itself is tried by day")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "probe.mar")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=nightly), pytest.param(signal.SIGHUP, marks=nightly)]
)
def test_every_request_that_was_accepted_is_answered(archive: Path, number: int):
    with served(archive) as server:
        with Load(server, 8) as load:
            eventually(lambda: len(load.answers) > 200)
            assert server.end(number) == 0
        assert load.lost == []
        assert [answer for answer in load.answers if answer[1:] != (200, answer[0])] == []
        assert server.errors == []


def test_what_waits_and_what_is_at_hand_is_finished(archive: Path):
    with served(archive) as server:
        with Load(server, 4, "sleep 0.2 of") as load:
            time.sleep(0.1)
            assert server.end(signal.SIGTERM) == 0
        assert [answer for _, *answer in load.answers] == [[200, "slept 0.2"]] * 4
        assert load.lost == []


def test_a_second_signal_ends_it_at_once(archive: Path):
    with served(archive) as server, Load(server, 1, "hang"):
        time.sleep(0.2)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert server.end(signal.SIGTERM) == 130
        assert time.monotonic() - begun < 25  # what is at hand would be given 30
        assert server.errors == []


@nightly
def test_a_stream_that_outlasts_the_drain_is_cut(archive: Path):
    with served(archive, front={"drain": 0.5}) as server:
        with server.asking("stream_for_ever") as response:
            assert response.read(4) == b"one,"
            assert server.end(signal.SIGTERM) == 0
            with pytest.raises((IncompleteRead, ConnectionError)):
                response.read()
        assert server.errors == []


@nightly
def test_idle_connections_do_not_hold_up_the_end(archive: Path):
    with served(archive) as server:
        idle = [HTTPConnection("127.0.0.1", server.port) for _ in range(20)]
        for connection in idle:
            connection.connect()
        begun = time.monotonic()
        assert server.end(signal.SIGTERM) == 0
        assert time.monotonic() - begun < 25  # as above
        for connection in idle:
            connection.close()


@nightly
def test_its_workers_end_with_it(archive: Path):
    with served(archive, min_workers=2, forks=False) as server:
        server.said("loaded", times=2)
        workers = server.workers()
        assert len(workers) == 2
        assert server.end(signal.SIGTERM) == 0
        assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
