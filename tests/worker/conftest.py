"""What every test beside the author's code shares: the notes that it leaves, and none that another test left."""

from collections.abc import Callable, Iterator

import pytest

from marpack.protocol import messages
from marpack.protocol.messages import Trouble


@pytest.fixture(autouse=True)
def _fresh_notes() -> Iterator[None]:
    messages.drain_notes()
    messages.drain_timings()
    messages._outputs.clear()
    yield
    messages.drain_notes()
    messages.drain_timings()
    messages._outputs.clear()


@pytest.fixture
def notes() -> Callable[[], dict[str, Trouble]]:
    """What was noted since the last call, by kind."""
    return lambda: {trouble.kind: trouble for trouble in messages.drain_notes()}
