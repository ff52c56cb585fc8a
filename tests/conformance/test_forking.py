import os
import signal
import time

import pytest
from conformance.forking import ForkServer

from marpack.errors import WorkerError


@pytest.mark.slow
def test_a_server_that_ends_is_reported_and_ends_its_workers_at_once() -> None:
    """The tests of workers and pools show the rest: they fork their workers."""
    with ForkServer.start() as server:
        started = time.monotonic()
        for _ in range(5):
            server.launch().kill()
        assert time.monotonic() - started < 10  # the grace that five would be given to end by themselves
        os.killpg(server._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="fork server is gone"):
            server.launch()
