import socket
from collections.abc import Iterator

import pytest

from marpack.protocol.messages import ForeignBytesError, Pipe, Predict
from marpack.torchserve.http import Part, Request

Ends = tuple[Pipe, Pipe]
SIZES = [0, 1, (1 << 16) - 1, 1 << 16, 3 << 20]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Two ends that do not block, as between the parent and a worker."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield Pipe(ours, Predict), Pipe(theirs, Predict)


def batch(size: int) -> Predict:
    return Predict((Request(id="id", parts=(Part("body", b"x" * size),)),))


def test_messages_of_any_size_arrive_whole_and_in_order(ends: Ends):
    ours, theirs = ends
    for size in SIZES:
        ours.post(batch(size))
    arrived = []
    while len(arrived) < len(SIZES):
        ours.flush()
        assert theirs.fill()
        while (message := theirs.arrived()) is not None:
            arrived.append(len(message.requests[0].parts[0].value))
    assert arrived == SIZES
    assert ours.flush()  # nothing is left to be sent


def test_what_does_not_fit_waits_for_the_next_time(ends: Ends):
    ours, theirs = ends
    ours.post(batch(3 << 20))
    assert not ours.flush()
    assert theirs.fill()
    assert theirs.arrived() is None


def test_while_nothing_comes_nothing_has_arrived(ends: Ends):
    assert ends[0].fill()  # the other end is there all the same
    assert ends[0].arrived() is None


def test_an_end_that_is_gone_is_noticed_by_who_reads(ends: Ends):
    ours, theirs = ends
    theirs.send(batch(1))
    theirs._sock.close()
    ours.post(batch(1))
    assert not ours.flush()
    assert ours.receive() == batch(1)
    assert not ours.fill()
    assert ours.receive() is None


@pytest.mark.parametrize(
    "payload", [b"\xc1", b"\x81\xa4type\xa4Load", b"\x81\xa4type\xa1\xff", b"\x91" * 3000 + b"\xc0"]
)
def test_what_is_no_message_is_told_each_time(ends: Ends, payload: bytes):
    ours, theirs = ends
    ours._sock.sendall(len(payload).to_bytes(4, "little") + payload)
    assert theirs.fill()
    for _ in range(2):
        with pytest.raises(ForeignBytesError, match="invalid message"):
            theirs.arrived()


@pytest.mark.parametrize(("length", "fits"), [(9, True), (10, False)])
def test_what_is_too_long_is_told_before_it_is_there(ends: Ends, length: int, *, fits: bool):
    ours, theirs = ends
    theirs.limit = 9
    ours._sock.sendall(length.to_bytes(4, "little"))
    assert theirs.fill()
    if fits:
        assert theirs.arrived() is None
        return
    with pytest.raises(ForeignBytesError, match=r"\b10\b.*\b9\b"):
        theirs.arrived()
