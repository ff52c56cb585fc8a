"""Fixtures that every part's tests share: real archives, made in a temporary folder."""

import io
import json
import os
import signal
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["ray_cluster", "render.browser"]
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of commands would each compile marpack anew

MakeMar = Callable[..., Path]
_PIECE = 25  # tests of a module that one process runs after another
_WHOLE = {"tests/conformance/test_live.py"}  # modules that share one server


# The same examples in every run: what a search finds belongs into the test as an @example. HYPOTHESIS_PROFILE=search
# goes looking for more.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("search", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


CACHE = tempfile.TemporaryDirectory(prefix="marpack-cache-", ignore_cleanup_errors=True)


def pytest_unconfigure() -> None:
    """Remove what the tests extracted."""
    CACHE.cleanup()


def pytest_configure() -> None:
    """Keep this user's cache out of the tests, and take the signals that a shell may have had ignored."""
    os.environ["XDG_CACHE_HOME"] = CACHE.name
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


class _PieceScheduling(LoadScopeScheduling):
    """Gives a process a piece of a module at a time, and a module that shares one server as a whole."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._counts: Counter[str] = Counter()
        self._pieces: dict[str, str] = {}  # test → its piece

    def _split_scope(self, nodeid: str) -> str:
        if nodeid not in self._pieces:
            module = nodeid.partition("::")[0]
            self._counts[module] += 1
            piece = 0 if module in _WHOLE else self._counts[module] // _PIECE
            self._pieces[nodeid] = f"{module} {piece}"
        return self._pieces[nodeid]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadscope`, divide the tests into pieces; pytest-xdist's groups do not work with pytest 9.2."""
    return _PieceScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what takes long: first the tests that share a server, then the other marked ones."""

    def order(item: pytest.Item) -> int:
        is_long = any(item.get_closest_marker(name) for name in ("slow", "peer"))
        return 0 if item.nodeid.partition("::")[0] in _WHOLE else 1 if is_long else 2

    items.sort(key=order)


def _files(
    handler: str, files: Mapping[str, str | bytes], name: str, entry: str, model: Mapping[str, Any]
) -> dict[str, bytes]:
    manifest = {"modelName": name, "modelVersion": "1.0", "handler": entry, **model}
    text = json.dumps({"runtime": "python", "model": manifest})
    members = {"handler.py": handler, **files, "MAR-INF/MANIFEST.json": text}
    return {member: text.encode() if isinstance(text, str) else text for member, text in members.items()}


@pytest.fixture
def make_mar(tmp_path: Path) -> MakeMar:
    """Return a function that writes a .mar as any tool might: `make_mar(handler_source, files=…, **model)`."""

    def make(
        handler: str,
        *,
        name: str = "probe",
        files: Mapping[str, str | bytes] = {},
        entry: str = "handler.py",
        **model: Any,
    ) -> Path:
        path = tmp_path / f"{name}.mar"
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in _files(handler, files, name, entry, model).items():
                archive.writestr(member, content)
        return path

    return make


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeMar:
    """Return a function that writes a model folder: `make_folder(handler_source, files=…, **model)`."""

    def make(
        handler: str,
        *,
        name: str = "probe",
        files: Mapping[str, str | bytes] = {},
        entry: str = "handler.py",
        **model: Any,
    ) -> Path:
        folder = tmp_path / f"{name}-folder"
        for member, content in _files(handler, files, name, entry, model).items():
            path = folder / member
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    return make


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keep what tests extract out of the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MARPACK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def uncovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the processes that a test starts unmeasured: tracing doubles the time that importing torch takes."""
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def png() -> bytes:
    """Return a small picture."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(buffer, "PNG")
    return buffer.getvalue()
