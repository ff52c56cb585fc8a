import errno
import fcntl
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from refusals import has_code

from marpack.archive.cache import Cache
from marpack.archive.reader import open_archive
from marpack.errors import DamagedArchiveError, ExtractionError

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}})
EXTRACT = """
import sys
from pathlib import Path
from marpack.archive.cache import Cache
from marpack.archive.reader import open_archive
from marpack.errors import MarpackError
try:
    with open_archive(sys.argv[1], cache=Cache(Path(sys.argv[2]))) as archive:
        print(archive.materialize())
except MarpackError as error:
    sys.exit(f"{error.code}: {error.what}")
"""
LITTLE_ROOM = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
"""


def made(path, size=1000):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.bin", os.urandom(size))
        archive.writestr("h.py", "x = 1\n")
        archive.mkdir("logs")
        archive.writestr("MAR-INF/MANIFEST.json", MANIFEST)
    return path


def extract(path, root, limit=1 << 30):
    with open_archive(path, cache=Cache(root, limit=limit)) as archive:
        return archive.materialize()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"


def test_another_file_under_the_same_name_is_extracted_anew(tmp_path, root):
    path = made(tmp_path / "a.mar")
    first = extract(path, root)
    made(path)
    second = extract(path, root)
    assert second != first
    assert (second / "w.bin").read_bytes() != (first / "w.bin").read_bytes()


def edit_in_secret(file):
    """Change a file, and neither its size nor its time."""
    before = file.stat()
    file.write_bytes(b"x = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def contents(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


WRITES = {
    "removed": lambda file: file.unlink(),
    "changed": lambda file: file.write_bytes(b"x = 2\n"),
    "changed-in-secret": edit_in_secret,
    "emptied": lambda file: file.write_bytes(b""),
    "linked": lambda file: (file.rename(file.with_name("i.py")), file.symlink_to("i.py")),
    "a-folder": lambda file: (file.unlink(), file.mkdir(), (file / "x").touch()),
    "added": lambda file: file.with_name("PIL.py").touch(),
    "added-folder": lambda file: (file.with_name("PIL") / "inner").mkdir(parents=True),
    "added-link": lambda file: file.with_name("PIL").symlink_to(file.parent),
    "compiled": lambda file: py_compile.compile(str(file)),
    "emptied-folder": lambda file: shutil.rmtree(file.parent / "MAR-INF"),
    "folder-removed": lambda file: (file.parent / "logs").rmdir(),
    "a-file": lambda file: (shutil.rmtree(file.parent / "MAR-INF"), (file.parent / "MAR-INF").touch()),
}


ADDED = {"added", "added-folder", "added-link", "compiled"}


@pytest.mark.parametrize("write", WRITES)
def test_a_changed_folder_is_not_used_again(tmp_path, root, write):
    path = made(tmp_path / "a.mar")
    first = extract(path, root)
    before, weights = contents(first), (first / "w.bin").stat()
    time.sleep(0.02)  # a tick of the file system's clock
    WRITES[write](first / "h.py")
    second = extract(path, root)
    assert contents(second) == before
    assert first.exists() == (second == first) == (write in ADDED)  # added files are only removed
    if write in ADDED:
        assert (first / "w.bin").stat().st_ino == weights.st_ino
    assert extract(path, root) == second


@pytest.mark.parametrize("write", WRITES)
def test_what_somebody_did_to_a_folder_that_is_in_use_stays(tmp_path, root, write):
    path = made(tmp_path / "a.mar")
    with open_archive(path, cache=Cache(root)) as archive:
        first = archive.materialize()
        before = contents(first)
        time.sleep(0.02)  # as above
        WRITES[write](first / "h.py")
        changed = contents(first)
        second = extract(path, root)
        assert second != first
        assert contents(second) == before
        assert contents(first) == changed
    assert extract(path, root) == second


def test_a_process_that_removed_added_files_has_the_folder_alone(tmp_path, root):
    path = made(tmp_path / "a.mar")
    first = extract(path, root)
    with open_archive(path, cache=Cache(root)) as archive:
        assert archive.materialize() == extract(path, root) == first  # shared, as nobody writes into it
    (first / "counter").touch()
    with open_archive(path, cache=Cache(root)) as archive:
        assert archive.materialize() == first
        assert extract(path, root) != first


def test_a_replaced_folder_is_removed_once_nobody_uses_it(tmp_path, root):
    path = made(tmp_path / "a.mar")
    with open_archive(path, cache=Cache(root)) as archive:
        first = archive.materialize()
        (first / "counter").touch()
        second = extract(path, root)
        assert second != first
        os.utime(first.parent, (time.time() - 3600,) * 2)
        Cache(root).evict()
        assert first.exists()
    Cache(root).evict()
    assert not first.parent.exists()
    assert second.exists()


def test_a_folder_that_cannot_be_mended_is_left(tmp_path, root):
    path = made(tmp_path / "a.mar")
    first = extract(path, root)
    first.rename(tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "elsewhere")
    (first / "h.py").unlink()
    second = extract(path, root)
    assert second != first
    assert (second / "h.py").read_bytes() == b"x = 1\n"
    assert not (tmp_path / "elsewhere" / "h.py").exists()


@pytest.mark.parametrize("again", [False, True])
def test_what_whoever_runs_there_removes_is_extracted_again_and_what_it_changes_stays(tmp_path, root, again):
    path = made(tmp_path / "a.mar")
    if again:
        extract(path, root)
    with open_archive(path, cache=Cache(root)) as archive:
        first = archive.materialize()
        (first / "h.py").write_bytes(b"x = 2\n")
        assert archive.materialize() == first
        assert (first / "h.py").read_bytes() == b"x = 2\n"
        (first / "w.bin").unlink()
        second = archive.materialize()
        assert (second / "h.py").read_bytes() == b"x = 1\n"
        assert len((second / "w.bin").read_bytes()) == 1000


STAMPS = [b"", b"{", b"[]", b'{"folder": "../.."}', b"\xff", {"format": 3}, {"folder": "gone"}]


@pytest.mark.parametrize("change", STAMPS)
def test_a_broken_stamp_or_one_of_another_format_is_not_used(tmp_path, root, change):
    path = made(tmp_path / "a.mar")
    first = extract(path, root)
    (stamp,) = root.glob("*.json")
    told = change if isinstance(change, bytes) else json.dumps(json.loads(stamp.read_text()) | change).encode()
    stamp.write_bytes(told)
    second = extract(path, root)
    assert second != first
    assert (second / "h.py").exists()
    assert extract(path, root) == second


def test_the_least_recently_used_goes_first(tmp_path, root):
    paths = [made(tmp_path / f"{n}.mar", 10_000) for n in range(3)]
    folders = [extract(path, root) for path in paths[:2]]
    for age, stamp in enumerate(sorted(root.glob("*.json"), key=lambda p: p.stat().st_mtime, reverse=True)):
        os.utime(stamp, (time.time() - 100 * age - 100,) * 2)
    assert extract(paths[0], root) == folders[0]  # used: now the second is the oldest
    last = extract(paths[2], root, limit=25_000)
    assert folders[0].exists()
    assert last.exists()
    assert not folders[1].parent.exists()
    assert len(list(root.glob("*.json"))) == 2


def old_layout(root, age):
    """Write what marpack 0.2 leaves in its cache, last used so many seconds ago."""
    folder, fetched = root / f"{'0' * 32}-{'1' * 8}", root / "blobs" / ("a" * 64)
    (folder / "model").mkdir(parents=True)
    fetched.mkdir(parents=True)
    stamp = root / f"{'0' * 32}.json"
    stamp.write_text(json.dumps({"folder": folder.name, "boot": "b", "tree": {}, "findings": [], "format": 3}))
    for path in (folder / "lock", fetched / "x.mar", fetched / "x.mar.json"):
        path.write_bytes(b"{}")
    for path in (*fetched.iterdir(), *folder.iterdir(), fetched, folder):
        os.utime(path, (time.time() - age,) * 2)
    return folder, fetched, stamp


def test_the_first_use_removes_the_old_layout_once_an_older_marpack_does_not_use_it(tmp_path, root):
    root.mkdir(mode=0o700)
    (root / "package.json").write_text("{}")
    (root / "blobs/mine").mkdir(parents=True)
    folder, fetched, stamp = old_layout(root, 23 * 3600)
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        extract(made(tmp_path / "a.mar"), root)
        assert not stamp.exists()
        assert folder.exists()
        assert fetched.exists()  # it may be in use for a day, without a lock
    os.utime(fetched / "x.mar.json", (time.time() - 25 * 3600,) * 2)
    os.utime(fetched / "x.mar", (time.time() - 25 * 3600,) * 2)
    os.utime(fetched, (time.time() - 25 * 3600,) * 2)
    extract(made(tmp_path / "b.mar"), root)
    assert not folder.exists()
    assert not fetched.exists()
    assert (root / "package.json").exists()
    assert (root / "blobs/mine").exists()


def fetch(root, key, *, limit=1 << 30, data=b"x" * 10_000):
    def write(folder, progress):
        (folder / "x.mar").write_bytes(data)
        return ()

    with closing(Cache(root, limit=limit)) as cache:
        return cache.fill(key * 32, write, size=len(data), fetched=True).folder


def test_fetched_files_share_the_bound_and_stay_for_a_day(root):
    first, second = fetch(root, "1"), fetch(root, "2", limit=1)
    assert first.exists()
    os.utime(root / f"{'1' * 32}.json", (time.time() - 25 * 3600,) * 2)
    third = fetch(root, "3", limit=25_000)
    assert [path.exists() for path in (first, second, third)] == [False, True, True]


def test_all_files_are_on_the_disk_before_the_stamp(tmp_path, root, monkeypatch):
    synced, sync = [], os.fsync

    def logged(descriptor):
        sync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        assert not list(root.glob("*.json"))

    monkeypatch.setattr("os.fsync", logged)
    folder = extract(made(tmp_path / "a.mar"), root)
    assert {folder.parent, folder, *folder.rglob("*"), folder.parent / "stamp"} <= {*synced}


def test_what_is_in_use_is_never_evicted(tmp_path, root):
    one, two = made(tmp_path / "1.mar", 10_000), made(tmp_path / "2.mar", 10_000)
    with open_archive(one, cache=Cache(root)) as archive:
        folder = archive.materialize()
        extract(two, root, limit=1)
        assert (folder / "h.py").exists()
    extract(made(tmp_path / "3.mar"), root, limit=1)
    assert not folder.exists()


def test_an_archive_larger_than_the_bound_is_kept_until_the_next_one(tmp_path, root):
    assert (extract(made(tmp_path / "1.mar", 10_000), root, limit=1) / "w.bin").exists()


def test_leftovers_of_the_killed_are_swept_up(tmp_path, root):
    extract(made(tmp_path / "1.mar"), root)
    key = "0" * 32
    for name, age in ((f"{key}-00000old", 3600), (f"{key}-00000new", 1), ("my-project", 3600), (f"{key}.lock", 3600)):
        (root / name).touch() if name.endswith("lock") else (root / name).mkdir()
        os.utime(root / name, (time.time() - age,) * 2)
    extract(made(tmp_path / "2.mar"), root)
    assert not (root / f"{key}.lock").exists()
    assert not (root / f"{key}-00000old").exists()
    assert (root / f"{key}-00000new").exists()
    assert (root / "my-project").exists()  # of a user whose cache lies among other things


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
@pytest.mark.parametrize("filled", [False, True])
def test_a_cache_that_others_may_write_is_refused(tmp_path, root, mode, filled):
    path = made(tmp_path / "1.mar")
    if filled:
        extract(path, root)
    root.mkdir(exist_ok=True)
    root.chmod(mode)
    with pytest.raises(
        ExtractionError, check=has_code("unsafe-cache", f"chmod go-w {root}", "MARPACK_CACHE_DIR")
    ) as caught:
        extract(path, root)
    assert caught.value.where == str(root)


@pytest.mark.parametrize("above", ["near", "near/nearer"])
def test_a_cache_that_others_may_move_is_refused(tmp_path, above):
    root = tmp_path / "near" / "nearer" / "cache"
    path = made(tmp_path / "1.mar")
    folder = extract(path, root)
    (tmp_path / above).chmod(0o777)
    with pytest.raises(ExtractionError, check=has_code("unsafe-cache")) as caught:
        extract(path, root)
    assert caught.value.where == str(tmp_path / above)
    (tmp_path / above).chmod(0o1777)  # as /tmp is
    assert extract(path, root) == folder


def test_whatever_is_made_for_the_cache_is_its_users_alone(tmp_path):
    old = os.umask(0)
    try:
        extract(made(tmp_path / "1.mar"), tmp_path / "new" / "cache")
    finally:
        os.umask(old)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "new/cache")} == {0o700}


def test_a_cache_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExtractionError, check=has_code("extraction", os.strerror(errno.ENOTDIR))):
        extract(made(tmp_path / "1.mar"), tmp_path / "file" / "cache")


def another_process(path, root, before=""):
    command = [sys.executable, "-c", before + EXTRACT, path, root]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_full_disk_leaves_nothing_behind(tmp_path, root):
    with another_process(made(tmp_path / "a.mar", 2_000_000), root, LITTLE_ROOM) as process:
        code, _, what = process.stderr.read().partition(": ")
    assert code == "extraction"
    assert "'w.bin'" in what
    assert os.strerror(errno.EFBIG) in what
    assert list(root.iterdir()) == []


def test_wrong_bytes_leave_nothing_behind(tmp_path, root):
    path = made(tmp_path / "a.mar", 1_000_000)
    data = bytearray(path.read_bytes())
    data[500_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedArchiveError):
        extract(path, root)
    assert list(root.iterdir()) == []


def test_two_processes_at_once_extract_once(tmp_path, root):
    path = made(tmp_path / "a.mar", 10_000_000)
    with another_process(path, root) as one, another_process(path, root) as two:
        assert one.stdout.read() == two.stdout.read()
    assert len(list(root.glob("*-*"))) == 1
    assert list(root.glob("*.lock")) == []


def killed_at(step, root, call):
    """Call in a process that is killed before its n-th access to the cache; return whether it was."""
    child = os.fork()
    if child == 0:
        with ExitStack() as ends:
            ends.callback(os._exit, 1)
            left = iter(range(step))

            def count(event, arguments):
                if arguments and str(root) in str(arguments[0]) and next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            call()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


@pytest.mark.parametrize(("kind", "stride"), [("fetched", 3), pytest.param("extracted", 1, marks=pytest.mark.slow)])
def test_a_process_killed_at_any_step_spoils_nothing(tmp_path, root, kind, stride):
    path = made(tmp_path / "a.mar")
    fill = partial(extract, path, root) if kind == "extracted" else partial(fetch, root, "1")
    expected = contents(fill())
    shutil.rmtree(root)
    step = 0
    while killed_at(step, root, fill):
        assert contents(fill()) == expected
        for left in root.iterdir():
            os.utime(left, (time.time() - 3600,) * 2)
        Cache(root).evict()
        assert len(list(root.iterdir())) == 2, step  # the entry
        shutil.rmtree(root)
        step += stride
    assert step > 10


@pytest.mark.parametrize("place", ["../evil", "evil"])
def test_a_stamp_leads_to_no_folder_but_its_own(tmp_path, root, place):
    path = made(tmp_path / "a.mar")
    folder = extract(path, root)
    shutil.copytree(folder.parent, root / place)
    (stamp,) = root.glob("*.json")
    told = json.loads(stamp.read_text()) | {"folder": place}
    for name in contents(folder):
        status = (root / place / "model" / name).stat()
        if told["tree"][name] is not None:
            told["tree"][name] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    stamp.write_text(json.dumps(told))
    found = extract(path, root)
    assert found.parent.parent == root
    assert found.parent.name.startswith(f"{stamp.stem}-")


def test_what_fits_the_bound_to_the_byte_stays(tmp_path, root):
    one, two = (made(tmp_path / f"{n}.mar", 10_000) for n in range(2))
    folder = extract(one, root)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    extract(two, root, limit=2 * size - 1)
    assert not folder.exists()
    folder = extract(two, root)
    extract(one, root, limit=2 * size)
    assert folder.exists()
