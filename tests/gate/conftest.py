"""What makes the checks of hundreds of archives quick."""

import pytest

from marpack.gate import process


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the memory check send no more requests than its verdict needs, however fast the handler is."""
    monkeypatch.setattr(process, "_MAX_COUNT", process.requests_to_notice(process._GROWTH))
