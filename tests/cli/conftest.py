from collections.abc import Callable
from pathlib import Path

import pytest
from invoking import invoke


@pytest.fixture
def marpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command in `tmp_path` and returns its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def marpack(*words: str) -> tuple[int, str, str]:
        done = invoke(*words, code=None)
        return done.returncode, done.stdout, done.stderr

    return marpack
