import os
import threading
import time
from pathlib import Path

from marpack.runner.watching import Watch


def changes(watch: Watch, *expected: Path) -> list[str]:
    """Return what changes, until the expected paths have, and half a second later."""
    found: set[str] = set()
    end = time.monotonic() + 60
    while not found >= {str(path) for path in expected} and time.monotonic() < end:
        found.update(watch.changed())
        time.sleep(0.05)
    time.sleep(0.5)
    return sorted({*found, *watch.changed()})


def test_what_changes_is_named_once(tmp_path: Path):
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "sub").mkdir()
    watch = Watch([tmp_path])
    assert watch.changed() == []
    (tmp_path / "a.py").write_text("22")
    (tmp_path / "sub" / "new.txt").write_text("x")
    both = tmp_path / "a.py", tmp_path / "sub" / "new.txt"
    assert changes(watch, *both) == [str(path) for path in both]
    assert watch.changed() == []
    (tmp_path / "a.py").unlink()
    assert changes(watch, tmp_path / "a.py") == [str(tmp_path / "a.py")]


def test_a_file_replaced_by_one_of_its_size_and_time_has_changed(tmp_path: Path):
    path, other = tmp_path / "a.py", tmp_path / "b"
    path.write_text("1")
    watch = Watch([path])
    other.write_text("2")
    os.utime(other, ns=(0, path.stat().st_mtime_ns))
    other.replace(path)
    assert changes(watch, path) == [str(path)]


def test_what_tools_and_the_run_itself_write_does_not_count(tmp_path: Path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / ".git").mkdir()
    named = tmp_path / "named.mar"
    watch = Watch([tmp_path, named], without=[tmp_path / "report.html"])
    for name in ("__pycache__/a.pyc", ".git/x", ".hidden", "digits.mar", "x.tar.gz", "handler.py~", "report.html"):
        (tmp_path / name).write_text("x")
    named.write_text("x")
    assert changes(watch, named) == [str(named)]


def test_waiting_ends_once_a_change_has_settled(tmp_path: Path):
    path = tmp_path / "a.py"
    watch = Watch([tmp_path])

    def write() -> None:
        for number in range(5):
            time.sleep(0.01)
            path.write_text("x" * number)

    writer = threading.Thread(target=write)
    writer.start()
    assert watch.wait() == [str(path)]
    writer.join()


def test_a_file_that_keeps_changing_holds_up_nobody(tmp_path: Path):
    log, other, is_over = tmp_path / "log", tmp_path / "a.py", threading.Event()
    watch = Watch([tmp_path])

    def write() -> None:
        while not is_over.is_set():
            log.write_text(str(time.monotonic()))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        other.write_text("x")
        assert str(other) in changes(watch, other)
    finally:
        is_over.set()
        writer.join()
