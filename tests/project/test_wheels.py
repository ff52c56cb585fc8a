"""A wheel unpacked at an archive's root: what is taken of it, and what is refused, with nothing built."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from wheelhouse import ELF, write_wheel

from marpack.archive.cache import Cache
from marpack.archive.protocol import no_progress
from marpack.errors import ProjectError
from marpack.project.load import load_project
from marpack.project.planning import plan_project
from marpack.project.schema import VendorSpec
from marpack.project.vendoring import LOCK_NAME, LockedWheel, VendorLock, lock_inputs, wheel_tree

YAML = "name: shop\nversion: 1\nhandler: handler.py\nrequirements: requirements.txt\nvendor: {}\n"
ANY = "till-1.0-py3-none-any.whl"
FILES = {"till/__init__.py": b"", "till-1.0.data/platlib/till/more.py": b"1", "till-1.0.data/scripts/till": b"#!"}


def locked(path: Path) -> LockedWheel:
    data = path.read_bytes()
    name, version = path.name.split("-")[:2]
    sha256 = hashlib.sha256(data).hexdigest()
    return LockedWheel(name=name, version=version, file=path.name, url=path.as_uri(), sha256=sha256, size=len(data))


def test_purelib_and_platlib_meet_at_the_root_and_scripts_do_not(tmp_path: Path) -> None:
    wheel = locked(write_wheel(tmp_path, ANY, FILES | {"till/__pycache__/x.pyc": b"", "till-1.0.data/data/share": b""}))
    cache = Cache(tmp_path / "cache")
    tree = wheel_tree(wheel, cache, no_progress)
    info = {"till-1.0.dist-info/METADATA", "till-1.0.dist-info/WHEEL"}
    assert set(tree.names) == {"till/__init__.py", "till/more.py", *info}
    cache.close()
    (tree.folder / "till/more.py").write_text("changed")
    again = wheel_tree(wheel, cache, no_progress)
    assert (again.folder / "till/more.py").read_bytes() == b"1"
    cache.close()


# What is wrong → the wheel's name, its files, what is odd about it, and what is said.
UNSOUND: dict[str, tuple[str, Mapping[str, bytes], dict[str, object], str]] = {
    "a library that runs anywhere": (ANY, {"till/_fast.so": b"x"}, {}, "till/_fast.so is native code"),
    "a versioned library": (ANY, {"till.libs/libz.so.1.2": b"x"}, {}, "till.libs/libz.so.1.2 is native code"),
    "a program that runs anywhere": (ANY, {"till/bin": ELF}, {}, "till/bin is native code"),
    "no RECORD": (ANY, {}, {"left_out": ("till-1.0.dist-info/RECORD",)}, "it has no RECORD"),
    "a file that RECORD lacks": (ANY, FILES, {"record": ""}, "differs from its RECORD"),
    "other bytes": (ANY, {"till.py": b"x"}, {"record": "till.py,sha256=AAAA,1"}, "differs from its RECORD"),
    "a name that climbs out": (ANY, {"../till.py": b"x"}, {}, "cannot be fetched or unpacked"),
    "an absolute name": (ANY, {"/till.py": b"x"}, {}, "cannot be fetched or unpacked"),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_a_wheel_that_is_refused(case: str, tmp_path: Path) -> None:
    file, files, odd, said = UNSOUND[case]
    wheel = locked(write_wheel(tmp_path, file, files, **odd))  # type: ignore[arg-type]
    with pytest.raises(ProjectError) as raised:
        wheel_tree(wheel, Cache(tmp_path / "cache"), no_progress)
    assert said in raised.value.what
    assert raised.value.where == file
    assert not list((tmp_path / "cache").glob("*/model"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (Path.unlink, "the wheel cannot be read: No such file"),
        (lambda path: path.write_bytes(b"other"), "the wheel's SHA-256 is not the one in vendor.lock"),
    ],
    ids=["gone", "replaced"],
)
def test_a_wheel_that_is_not_the_locked_one(spoil: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    path = write_wheel(tmp_path, ANY, FILES)
    wheel = locked(path)
    spoil(path)
    with pytest.raises(ProjectError, match=said):
        wheel_tree(wheel, Cache(tmp_path / "cache"), no_progress)


def test_what_is_no_zip(tmp_path: Path) -> None:
    path = tmp_path / ANY
    path.write_bytes(b"no zip")
    with pytest.raises(ProjectError) as caught:
        wheel_tree(locked(path), Cache(tmp_path / "cache"), no_progress)
    assert (caught.value.code, caught.value.where) == ("unreadable-wheel", ANY)


# What clashes → the files of two wheels, and what is said; "" where nothing is.
CLASHES = {
    "the same file of two": ({"shared/__init__.py": b""}, {"shared/__init__.py": b""}, ""),
    "two files of one name": ({"shared.py": b"1"}, {"shared.py": b"2"}, "comes from one-1.0-py3-none-any.whl!"),
    "the project's own": ({"handler.py": b"1"}, {}, "handler.py comes from"),
    "a name that differs in case": ({"Shared.py": b"1"}, {"shared.py": b"2"}, "comes from"),
    "the worker's module": ({"json/__init__.py": b""}, {}, "json/__init__.py would replace"),
    "what is never found": ({"time.py": b""}, {}, "time.py would replace"),
    "what is compiled in": ({"math.cpython-39-x86_64-linux-gnu.py": b""}, {}, ""),
    "the archive's own folder": ({"MAR-INF/x": b""}, {}, "is in MAR-INF/"),
    "a file and a folder": ({"shared": b""}, {"shared/x.py": b""}, "shared would be both a file and the folder"),
}


@pytest.mark.parametrize("case", CLASHES)
def test_files_that_meet_in_an_archive(case: str, tmp_path: Path) -> None:
    one, two, said = CLASHES[case]
    (tmp_path / "marpack.yaml").write_text(YAML)
    (tmp_path / "requirements.txt").touch()
    (tmp_path / "handler.py").touch()
    pair = (("one", one), ("two", two))
    wheels = tuple(locked(write_wheel(tmp_path, f"{name}-1.0-py3-none-any.whl", files)) for name, files in pair)
    project = load_project(tmp_path)
    digest = lock_inputs(project, VendorSpec()).digest
    lock = VendorLock(python="3.9", platform="linux_x86_64", digest=digest, wheels=wheels)
    (tmp_path / LOCK_NAME).write_text(lock.to_text())
    try:
        found = [f.message for f in plan_project(project, cache=Cache(tmp_path / "cache"), check=False).findings]
    except ProjectError as error:
        found = [finding.message for finding in error.findings]
    assert any(said in message for message in found) if said else found == []
