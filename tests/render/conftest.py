import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from render.browser import CHROMIUM, Browser


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the browser's path; without one the pages are not opened, or, where it is demanded, the test fails."""
    if CHROMIUM is None:
        demanded = os.environ.get("MARPACK_REQUIRE_BROWSER") == "1"
        (pytest.fail if demanded else pytest.skip)("no Chromium here: the page is not opened")
    return CHROMIUM


@pytest.fixture(scope="session")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(Path(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser
