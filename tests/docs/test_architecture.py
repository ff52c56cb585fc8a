"""The page on the architecture names modules that are there, and one can read a whole run in few of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TO_COME = {"serving/", "scoring/", "exporting/", "trust/"}
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_module_that_the_page_names_is_there():
    named = set(re.findall(r"`(\w+/[\w/.]*)`", PAGE)) - TO_COME
    assert named
    assert {name for name in named if not (ROOT / name).exists() and not (ROOT / "marpack" / name).exists()} == set()


def test_a_run_is_read_in_fewer_than_fifteen_files():
    way = re.findall(r"^\d+\. `(marpack/[\w/]+\.py)`", PAGE, re.MULTILINE)
    assert 10 <= len(way) < 15
    assert len(set(way)) == len(way)
    assert all((ROOT / name).is_file() for name in way)


def test_every_room_has_its_line():
    rooms = {path.parent.name for path in (ROOT / "marpack").glob("*/__init__.py")}
    table = PAGE[: PAGE.index("## One way through it")]
    assert {room for room in rooms if f"`{room}/`" not in table} == set()
