"""vendor.lock: the wheels that pip finds for a server, and the files that a build takes from them."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from wheelhouse import ELF, only, write_wheel

import marpack
from marpack.archive.cache import Cache
from marpack.archive.index import index_of
from marpack.archive.protocol import no_progress
from marpack.archive.reader import open_archive
from marpack.errors import MarpackError, ProjectError, UsageError
from marpack.project.load import load_project
from marpack.project.planning import plan_project
from marpack.project.schema import VendorSpec
from marpack.project.vendoring import LOCK_NAME, LockedWheel, VendorLock, lock_inputs, make_lock, read_lock, wheel_tree
from marpack.runner.environments import count_requirements, unmet
from marpack.trust.sbom import sbom

YAML = "name: shop\nversion: 1\nhandler: handler.py:handle\nrequirements: requirements.txt\n"
HANDLER = "import till\n\ndef handle(data, context):\n    return [till.roll() for _ in data or []]\n"
NATIVE = "till-2.5-cp39-cp39-manylinux_2_17_x86_64.whl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("MARPACK_CACHE_DIR", str(tmp_path / "cache"))
    return Cache(tmp_path / "cache")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    lines = (
        'Requires-Dist: bygone; python_version < "3.10"',
        'Requires-Dist: hereafter; python_version >= "3.10"',
        'Requires-Dist: winter; sys_platform == "win32"',
        "Requires-Dist: numpy>=1.20,<2",
        'Requires-Dist: torch; extra == "gpu"',
        'Requires-Dist: socks; extra == "far"',
    )
    body = {"till/__init__.py": b"def roll():\n    return 1\n", "till/_fast.cpython-39-x86_64-linux-gnu.so": ELF}
    write_wheel(folder, NATIVE, body, *lines, "Provides-Extra: gpu", "Provides-Extra: far")
    write_wheel(folder, "till-2.5-cp311-cp311-manylinux_2_17_x86_64.whl", body)
    write_wheel(folder, "till-2.5-cp39-cp39-manylinux_2_99_x86_64.whl", body)
    write_wheel(folder, "till-3.0-py3-none-any.whl", body, "Requires-Dist: numpy>=2")
    write_wheel(folder, "bygone-1.0-py3-none-any.whl", {"bygone.py": b""})
    write_wheel(folder, "socks-1.0-py3-none-any.whl", {"socks.py": b""})
    only(folder, monkeypatch)
    return folder


@pytest.fixture
def shop(make_project: Callable[..., Path]) -> Callable[..., Path]:
    def make(requirements: str = "till[far]\n", yaml: str = "") -> Path:
        return make_project(YAML + yaml, **{"handler.py": HANDLER, "requirements.txt": requirements})

    return make


def test_wheels_are_chosen_for_the_server_not_for_this_python(wheels: Path, shop: Callable[..., Path]) -> None:
    folder = shop()
    built = marpack.build(folder, vendor=True)
    lock = VendorLock.parse((folder / LOCK_NAME).read_text(), "")
    bygone, socks, till = (wheel.file for wheel in lock.wheels)
    assert (bygone, socks, till) == ("bygone-1.0-py3-none-any.whl", "socks-1.0-py3-none-any.whl", NATIVE)
    assert (lock.python, lock.platform, lock.server) == ("3.9", "linux_x86_64", ("numpy<2,>=1.20",))
    assert VendorLock.parse(lock.to_text(), "") == lock
    shutil.rmtree(wheels)  # once unpacked, they are in the cache
    assert marpack.build(folder).content_digest == built.content_digest
    with open_archive(Path(built.path)) as archive:
        assert {"till/__init__.py", "bygone.py", "till-2.5.dist-info/METADATA"} <= set(archive.entries)
        assert not {"till-2.5.dist-info/RECORD", "requirements.txt"} & set(archive.entries)
        assert archive.manifest.model.requirements_file is None
        index = index_of(archive)
        assert index
        assert index.vendored
        assert [package.modules for package in index.vendored.packages] == [("bygone",), ("socks",), ("till",)]
        assert count_requirements(archive) == 4
        (found,) = [finding for finding in unmet(archive) if "numpy" not in finding.message]
        assert found.code == "requirement-unmet"
        assert {"till", NATIVE} <= set(found.message.split())
        facts = marpack.inspect(built.path)
        components = json.loads(sbom(archive, facts))["components"]
    assert [each["purl"] for each in components] == ["pkg:pypi/bygone@1.0", "pkg:pypi/socks@1.0", "pkg:pypi/till@2.5"]


@pytest.mark.slow  # pip takes a second
def test_the_key_decides_and_a_lock_decides_where_there_is_none(wheels: Path, shop: Callable[..., Path]) -> None:
    folder = shop("bygone\n")
    assert marpack.inspect(marpack.build(folder).path).vendored is None
    facts = marpack.inspect(marpack.build(folder, vendor=True, vendor_python="3.10", vendor_platform="any").path)
    assert facts.vendored
    assert facts.vendored.summary == "vendored 1 package for cp310 any"
    assert marpack.inspect(marpack.build(folder).path).vendored == facts.vendored
    (folder / "requirements.txt").write_text("socks\n")
    with pytest.raises(ProjectError) as raised:
        marpack.build(folder)
    finding = raised.value.findings[0]
    assert (finding.code, finding.where) == ("vendor", str(folder / LOCK_NAME))


# What is wrong → the requirements, what marpack.yaml says besides, and what is said of it.
UNRESOLVED = {
    "another numpy": ("numpy>=2\n", "", "'numpy>=2' excludes the server's numpy, which is 1.24.3"),
    "another numpy, stated": ("numpy>=2\n", "vendor: {installed: [numpy==1.26.4]}\n", "which is 1.26.4"),
    "an editable": ("-e .\n", "", "'.' cannot be met by wheels"),
    "an address": ("till @ https://e.org/till.whl\n", "", "cannot be met by wheels"),
    "constraints": ("-c other.txt\n", "", "'other.txt' cannot be met by wheels"),
    "an option": ("--no-binary :all:\n", "", "'--no-binary :all:' cannot be met by wheels"),
    "no requirement": ("till==\n", "", "'till==' cannot be met by wheels"),
    "a file that does not exist": ("-r other.txt\n", "", "the file cannot be read: No such file"),
    "hashes": (f"till==2.5 --hash=sha256:{'0' * 64}\n", "", "Remove --hash"),
    "Python 2": ("till\n", 'vendor: {python: "2.7"}\n', "2.7 is not a version of Python"),
    "a range": ("till\n", "vendor: {installed: ['numpy>=1']}\n", "'numpy>=1' is not NAME==VERSION"),
    "no package": ("till\n", "vendor: {installed: ['?']}\n", "'?' is not NAME==VERSION"),
    "extras of the server's": ("torch[opt]\n", "", "no package certainly meets 'torch[opt]'"),
    "nothing of that name": ("absent\n", "", "pip says: No matching distribution found for absent"),
    "sources alone": ("till==4\n", "", "No matching distribution found for till==4"),
}


# These ask pip, which takes a second each.
SLOW = {"extras of the server's", "nothing of that name", "sources alone"}
CASES = [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else [], id=case) for case in UNRESOLVED]


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_resolved(case: str, wheels: Path, shop: Callable[..., Path], cache: Cache) -> None:
    requirements, yaml, said = UNRESOLVED[case]
    project = load_project(shop(requirements, yaml))
    with pytest.raises(ProjectError) as raised:
        make_lock(project, project.vendor or VendorSpec(), cache, no_progress)
    assert said in f"{raised.value} {raised.value.hint}"
    assert not (project.folder / LOCK_NAME).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "vendor.lock is missing"),
        ("<<<<<<< HEAD\n", "marpack did not write this lock"),
        (f"for 3.9 linux_x86_64 from sha256:{'0' * 64}\ntill==2.5\n", "marpack did not write this lock"),
        (f"for 3.9 linux_x86_64 from sha256:{'0' * 64}\n", "have changed since the lock was written"),
    ],
)
def test_a_lock_that_is_none_of_the_projects(text: str | None, said: str, shop: Callable[..., Path]) -> None:
    folder = shop(yaml="vendor: {}\n")
    if text is not None:
        (folder / LOCK_NAME).write_text(text)
    with pytest.raises(ProjectError, match=said) as raised:
        read_lock(load_project(folder))
    assert "marpack build --vendor" in (raised.value.hint or "")
    with pytest.raises(ProjectError):
        marpack.build(folder)
    assert not (folder / "shop.mar").exists()


@pytest.mark.parametrize(
    ("yaml", "options", "said"),
    [
        ("", {"vendor_python": "3.9"}, "--vendor-python requires --vendor"),
        ("vendor: {}\n", {"vendor": True, "vendor_platform": "any"}, "marpack.yaml names the server already"),
    ],
)
def test_options_and_keys_that_do_not_fit(yaml: str, options: dict, said: str, shop: Callable[..., Path]) -> None:  # type: ignore[type-arg]
    folder = shop(yaml=yaml)
    with pytest.raises(MarpackError, match=said):
        marpack.build(folder, **options)
    assert sorted(path.name for path in folder.iterdir()) == ["handler.py", "marpack.yaml", "requirements.txt"]


def test_the_archivers_flags_vendor_nothing() -> None:
    with pytest.raises(UsageError, match="--vendor "):
        marpack.build(vendor=True, model_name="m", version="1", handler="base_handler")


ANY = "till-1.0-py3-none-any.whl"
FILES = {"till/__init__.py": b"", "till-1.0.data/platlib/till/more.py": b"1", "till-1.0.data/scripts/till": b"#!"}


def locked(path: Path) -> LockedWheel:
    data = path.read_bytes()
    name, version = path.name.split("-")[:2]
    sha256 = hashlib.sha256(data).hexdigest()
    return LockedWheel(name=name, version=version, file=path.name, url=path.as_uri(), sha256=sha256, size=len(data))


def test_purelib_and_platlib_meet_at_the_root_and_scripts_do_not(tmp_path: Path, cache: Cache) -> None:
    wheel = locked(write_wheel(tmp_path, ANY, FILES | {"till/__pycache__/x.pyc": b"", "till-1.0.data/data/share": b""}))
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
def test_a_wheel_that_is_refused(case: str, tmp_path: Path, cache: Cache) -> None:
    file, files, odd, said = UNSOUND[case]
    wheel = locked(write_wheel(tmp_path, file, files, **odd))  # type: ignore[arg-type]
    with pytest.raises(ProjectError) as raised:
        wheel_tree(wheel, cache, no_progress)
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
def test_a_wheel_that_is_not_the_locked_one(
    spoil: Callable[[Path], object], said: str, tmp_path: Path, cache: Cache
) -> None:
    path = write_wheel(tmp_path, ANY, FILES)
    wheel = locked(path)
    spoil(path)
    with pytest.raises(ProjectError, match=said):
        wheel_tree(wheel, cache, no_progress)


def test_what_is_no_zip(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / ANY
    path.write_bytes(b"no zip")
    with pytest.raises(ProjectError) as caught:
        wheel_tree(locked(path), cache, no_progress)
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
def test_files_that_meet_in_an_archive(case: str, shop: Callable[..., Path], tmp_path: Path, cache: Cache) -> None:
    one, two, said = CLASHES[case]
    pair = (("one", one), ("two", two))
    wheels = tuple(locked(write_wheel(tmp_path, f"{name}-1.0-py3-none-any.whl", files)) for name, files in pair)
    project = load_project(shop("", "vendor: {}\n"))
    digest = lock_inputs(project, VendorSpec()).digest
    lock = VendorLock(python="3.9", platform="linux_x86_64", digest=digest, wheels=wheels)
    (project.folder / LOCK_NAME).write_text(lock.to_text())
    try:
        found = [f.message for f in plan_project(project, cache=cache, check=False).findings]
    except ProjectError as error:
        found = [finding.message for finding in error.findings]
    assert any(said in message for message in found) if said else found == []
