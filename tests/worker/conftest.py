"""What every test beside the author's code shares: the notes that it leaves, and none that another test left."""

from collections.abc import Callable, Iterator

import pytest

from marpack.protocol import diagnostics
from marpack.protocol.messages import Trouble


@pytest.fixture(autouse=True)
def _fresh_notes() -> Iterator[None]:
    diagnostics.drain_notes()
    diagnostics.drain_timings()
    diagnostics._outputs.clear()
    yield
    diagnostics.drain_notes()
    diagnostics.drain_timings()
    diagnostics._outputs.clear()


@pytest.fixture
def notes() -> Callable[[], dict[str, Trouble]]:
    """What was noted since the last call, by kind."""
    return lambda: {trouble.kind: trouble for trouble in diagnostics.drain_notes()}
