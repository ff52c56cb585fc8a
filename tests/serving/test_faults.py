import resource
import signal
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from pathlib import Path

import psutil
import pytest
from serving.commands import SECONDS, Serving, wait_until
from serving.faulty import Load, served, write_archive

slow = pytest.mark.slow(reason="seconds of load, or of waiting")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "probe.mar")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that no test changes."""
    with served(write_archive(tmp_path_factory.mktemp("shared") / "probe.mar"), response_timeout=15) as server:
        yield server
        assert server.end(signal.SIGTERM) == 0
        assert server.other == []


@pytest.mark.parametrize(
    ("does", "status", "body"),
    [
        ("error", 503, "Prediction failed"),
        ("killed", 507, "Worker died."),
        ("exit", 500, "Worker died."),
        pytest.param("hang", 500, "Worker died.", marks=slow),
        ("closes", 500, "Worker died."),
        ("large 7000000", 500, "Worker died."),
    ],
)
def test_after_any_failure_of_a_handler_the_next_request_succeeds(shared: Serving, does: str, status: int, body: str):
    answer = shared.ask(does)
    assert (answer[0], body in answer[1]) == (status, True)
    assert shared.ask("next") == (200, "next")


def test_a_handler_may_print_20_megabytes(archive: Path):
    with served(archive, response_timeout=60) as server:
        assert server.ask("prints 20000000") == (200, "printed")
        assert server.ask("next") == (200, "next")


@pytest.mark.parametrize(
    "does", ["stream_dies", pytest.param("stream_fails", marks=slow), pytest.param("stream_hangs", marks=slow)]
)
def test_a_stream_that_fails_after_its_first_piece_is_broken_off(shared: Serving, does: str):
    with shared.sending("/predictions/probe", does.encode()) as response:
        assert response.status == 200
        with pytest.raises((IncompleteRead, ConnectionError)) as raised:
            response.read()
    assert getattr(raised.value, "partial", b"one,") == b"one,"
    assert shared.ask("next") == (200, "next")


def test_a_stream_under_the_status_of_an_error_is_reset(shared: Serving):
    with pytest.raises((RemoteDisconnected, ConnectionError)):
        shared.ask("stream_refuses")
    assert shared.ask("streams 3") == (200, "0,1,2,end")


@slow
def test_a_handler_that_leaks_meets_its_bound(archive: Path):
    with served(archive, max_memory=300 << 20) as server:
        statuses = [server.ask("leak 60000000")[0] for _ in range(6)]
        assert statuses == sorted(statuses)
        assert statuses[-1] == 507
        assert server.ask("next") == (200, "next")


@slow
def test_a_client_that_leaves_a_stream_ends_nothing_else(archive: Path):
    with served(archive, response_timeout=1, min_workers=2) as server:
        server.wait_for("loaded", times=2)
        with server.sending("/predictions/probe", b"stream_for_ever") as response:
            assert response.read(4) == b"one,"
        assert [server.ask(f"mark {number}") for number in range(5)] == [(200, f"mark {number}") for number in range(5)]


def test_a_bug_in_the_task_of_a_worker_ends_the_server(archive: Path):
    with served(archive, bug=2) as server:
        assert server.ask("killed")[0] == 507
        assert server.process.wait(SECONDS) == 1
        wait_until(lambda: server.other)
        assert server.other[-1] == "KeyError: 'a bug'"


def asked(server: Serving, text: str) -> HTTPConnection:
    """Return a connection whose request is on its way."""
    connection = HTTPConnection("127.0.0.1", server.port(), timeout=SECONDS)
    connection.request("POST", "/predictions/probe", body=text.encode())
    time.sleep(0.01)  # so that they queue in this order
    return connection


def test_a_client_may_leave_at_any_place_of_a_batch(archive: Path, tmp_path: Path):
    with served(archive, batch_size=4, max_batch_delay=60_000) as server:
        for place in range(4):
            gate = tmp_path / f"gate-{place}"
            busy = [asked(server, f"await {gate}") for _ in range(4)]
            wait_until(gate.with_name(f"{gate.name}.begun").exists)
            waiting = [asked(server, f"mark {place}-{number}") for number in range(5)]
            waiting[place].close()
            assert server.request("/ping")[0] == 200  # by now, the server has noticed
            gate.touch()
            for number, connection in enumerate(waiting):
                if number != place:
                    assert connection.getresponse().read().decode() == f"mark {place}-{number}"
            for connection in (*busy, *waiting):
                connection.close()
        done = [asked(server, "done") for _ in range(4)]
        seen = done[0].getresponse().read().decode().splitlines()
        for connection in done:
            connection.close()
        gone = {f"mark {place}-{place}" for place in range(4)}
        assert gone & set(seen) == set()
        assert len([text for text in seen if text.startswith("mark")]) == 16


@slow
def test_a_worker_whose_files_do_not_fit_the_disk_waits_until_they_do(archive: Path):
    with served(archive) as server:
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, most))
        assert server.ask("removes data.txt") == (200, "removed")
        assert server.ask("killed")[0] == 507
        assert server.wait_for("error")["code"] == "extraction"
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert server.ask("file data.txt") == (200, "old")


@pytest.mark.parametrize("renamed", [True, pytest.param(False, marks=slow)])
def test_a_replaced_archive_is_served_as_before_and_extracted_again_if_possible(archive: Path, renamed: bool):
    with served(archive) as server:
        new = write_archive(archive.with_name("new.mar"), "new")
        if renamed:
            new.replace(archive)
        else:
            archive.write_bytes(new.read_bytes())
            assert server.ask("killed")[0] == 507
        assert server.ask("file data.txt") == (200, "old")
        assert server.ask("removes data.txt") == (200, "removed")
        assert server.ask("killed")[0] == 507
        if renamed:
            assert server.ask("file data.txt") == (200, "old")
        else:
            assert server.wait_for("error")["code"] == "damaged-archive"


def test_a_second_server_on_the_same_port_is_an_error(archive: Path, shared: Serving):
    with served(archive, front={"port": shared.port()}, loaded=0) as second:
        assert second.process.wait(SECONDS) == 2
        wait_until(lambda: second.other)
        (said,) = second.other
        assert said.startswith("address-in-use: ")
        assert f" 127.0.0.1:{shared.port()}: " in said
    assert shared.ask("still there") == (200, "still there")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=slow), pytest.param(signal.SIGHUP, marks=slow)]
)
def test_every_request_that_was_accepted_is_answered(archive: Path, number: int):
    with served(archive) as server:
        with Load(server, 8) as load:
            wait_until(lambda: len(load.answers) > 200)
            assert server.end(number) == 0
        assert load.lost == []
        assert [answer for answer in load.answers if answer[1:] != (200, answer[0])] == []
        assert server.other == []


def connections(server: Serving, status: str = psutil.CONN_ESTABLISHED) -> list[object]:
    """Return the server's connections."""
    return [each for each in psutil.Process(server.process.pid).net_connections("tcp") if each.status == status]


def test_what_waits_and_what_is_at_hand_is_finished(archive: Path):
    with served(archive) as server:
        with Load(server, 4, "sleep 0.2 of") as load:
            wait_until(lambda: len(connections(server)) == 4)
            time.sleep(0.1)  # until it has read the requests
            assert server.end(signal.SIGTERM) == 0
        assert {answer[1:] for answer in load.answers} == {(200, "slept 0.2")}
        assert len(load.answers) >= 4
        assert load.lost == []


def test_a_second_signal_ends_it_at_once(archive: Path):
    with served(archive) as server, Load(server, 1, f"await {archive.parent}/never"):
        wait_until(lambda: [*archive.parent.glob("never *.begun")])
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not connections(server, psutil.CONN_LISTEN))  # it has the first signal
        assert server.end(signal.SIGTERM) == 130
        assert time.monotonic() - begun < 25  # what is at hand would be given 30
        assert server.other == []


@slow
def test_a_stream_that_outlasts_the_drain_is_cut(archive: Path):
    with served(archive, front={"drain": 0.5}) as server:
        with server.sending("/predictions/probe", b"stream_for_ever") as response:
            assert response.read(4) == b"one,"
            assert server.end(signal.SIGTERM) == 0
            with pytest.raises((IncompleteRead, ConnectionError)):
                response.read()
        assert server.other == []


@slow
def test_its_workers_end_with_it_and_idle_connections_do_not_hold_it_up(archive: Path):
    with served(archive, min_workers=2, forks=False) as server:
        server.wait_for("loaded", times=2)
        workers = server.workers()
        assert len(workers) == 2
        idle = [socket.create_connection(("127.0.0.1", server.port())) for _ in range(20)]
        begun = time.monotonic()
        assert server.end(signal.SIGTERM) == 0
        assert time.monotonic() - begun < 25  # what is at hand would be given 30
        for connection in idle:
            connection.close()
        assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
