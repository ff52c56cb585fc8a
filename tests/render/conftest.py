from collections.abc import Iterator
from pathlib import Path

import pytest
from render.browser import CHROMIUM, Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: the report is not opened")
    with Browser(Path(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser
