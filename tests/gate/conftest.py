"""What makes the checks of hundreds of archives quick."""

import pytest

from marpack.gate.checks import memory


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the memory check send no more requests than its verdict needs, however fast the handler is."""
    monkeypatch.setattr(memory, "_MAX_COUNT", memory._telling(memory._GROWTH))
