"""`marpack.doctor`: what is here, what is broken, and a cache that is cleared of what nobody uses."""

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest

import marpack
from marpack.api import doctor as module
from marpack.archive.cache import Cache
from marpack.archive.reader import open_archive
from marpack.render.doctor import DoctorReport, Health, HealthLine
from marpack.version import install_hint


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")  # Java takes its time
    monkeypatch.setattr(module, "_PROBE", "print('noise'); print('2.6.0 for CPU')")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Cache(tmp_path / "cache").prepare()
    return tmp_path / "cache"


def line(name: str, report: DoctorReport | None = None) -> HealthLine:
    (found,) = [each for each in (report or marpack.doctor()).lines if each.name == name]
    return found


def test_what_is_here_is_told_without_importing_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    report = marpack.doctor()
    assert line("torch", report) == HealthLine("torch", "2.6.0 for CPU")
    assert line("marpack", report).text.startswith(marpack.__version__)
    assert report.healthy
    assert report.freed is None
    assert list(report.sizes) == ["extracted", "fetched", "copies", "environments"]


def test_what_handlers_import_on_a_server_and_cannot_here(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "IMPORTED", ("torchvision", "no_such_package_here", "json"))
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "no_such_package_here" else object())
    found = line("server has")
    assert (found.text.split(",")[0], found.health) == ("no_such_package_here", Health.NOTE)


BROKEN = {
    "raises": ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12"),
    "crashes": ("import os; os.kill(os.getpid(), 11)", "it ends with exit code -11"),
    "hangs": ("import time; time.sleep(60)", "it takes longer than 0.5 seconds"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_torch_that_cannot_be_imported_is_told(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text, said = BROKEN[how]
    (tmp_path / "torch.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "_PROBE", "import torch; print(torch.__version__)")
    if how == "hangs":
        monkeypatch.setattr(module, "_MAX_SECONDS", 0.5)
    report = marpack.doctor()
    assert said in line("torch", report).text
    assert (line("torch", report).health, report.healthy) == (Health.BROKEN, False)
    assert line("torch", report).hint


def test_a_torch_beside_oneself_is_not_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torch.py").write_text("raise ImportError('mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_PROBE", "import sys; print('' in sys.path)")
    assert line("torch").text == "False"


@pytest.mark.parametrize(
    ("needed", "health", "text"),
    [
        (["click>=1"], Health.OK, "all required packages"),
        (["click<999,>=1,!=2", "click (>=1)", "click[x]>=1 ; sys_platform != 'nowhere'"], Health.OK, "all required"),
        (["ruamel-yaml>=0.18", "ruamel.yaml>=0.18", "Ruamel_YAML>=0.18"], Health.OK, "all required"),
        (["click!=8.*,<8"], Health.BROKEN, "<8 is needed"),
        (["click>=999; sys_platform == 'nowhere' and python_version > '3'"], Health.OK, "all required"),
        (["click>=999", "no-such-package-here"], Health.BROKEN, "is installed, and >=999 is needed; no-such-package"),
        (["click>=999; extra == 'x'", "click>=999; python_version < '3'"], Health.OK, "all required"),
        (None, Health.OK, "all required"),
    ],
)
def test_a_package_outside_its_range(needed, health, text, monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda _: needed)
    report = marpack.doctor()
    assert text in line("packages", report).text
    assert (line("packages", report).health, report.healthy) == (health, health is Health.OK)


def test_a_package_whose_module_is_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "yaml" else object())
    report = marpack.doctor()
    assert {"pyyaml", "yaml"} <= set(line("packages", report).text.split())
    assert not report.healthy


def test_marpack_may_run_from_its_sources(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "requires", Mock(side_effect=metadata.PackageNotFoundError("marpack")))
    assert line("packages").health is Health.NOTE


def test_an_extra_is_there_or_named(monkeypatch: pytest.MonkeyPatch):
    packages = ["click>=1; extra == 'a'", "click>=1; extra == 'b'", 'no-such-package-here>=2; extra == "b"']
    packages += ["absent; python_version < '3' and extra == 'a'", "absent; extra == 'dev'"]
    monkeypatch.setattr(metadata, "requires", lambda _: packages)
    report = marpack.doctor()
    assert line("extra a", report) == HealthLine("extra a", "click, absent")
    assert line("extra b", report).text.split()[0] == "no-such-package-here"
    assert line("extra b", report).hint == install_hint("b")
    assert "extra dev" not in {each.name for each in report.lines}
    assert report.healthy


def test_a_server_on_the_path_is_told_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bin").mkdir()
    for name in ("torchserve", "java"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho openjdk 17\necho more\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "lib/python3.9/site-packages/torchserve-0.12.0.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    report = marpack.doctor()
    assert line("torchserve", report).text == f"0.12.0, {tmp_path}/bin/torchserve"
    assert line("torch-model-archiver", report).health is Health.NOTE
    assert line("java", report).text == "openjdk 17"
    (tmp_path / "bin" / "java").unlink()
    assert line("java").health is Health.NOTE


@pytest.mark.parametrize("how", ["open to others", "a file", "read-only"])
def test_a_cache_that_cannot_be_used(how: str, root: Path, monkeypatch: pytest.MonkeyPatch):
    if how == "open to others":
        (root / "copies").mkdir()
        (root / "copies" / "x.mar").write_bytes(bytes(10))
        age(root / "copies" / "x.mar", 700)
        root.chmod(0o777)
    elif how == "a file":
        root.rmdir()
        root.write_text("")
    else:
        refused = Mock(side_effect=PermissionError(13, "Permission denied"))  # root may write anywhere
        monkeypatch.setattr(module.tempfile, "TemporaryFile", refused)
    report = marpack.doctor(clear_cache=True)
    assert (line("cache", report).health, report.healthy, report.freed) == (Health.BROKEN, False, None)
    assert "MARPACK_CACHE_DIR" in line("cache", report).hint
    assert how != "open to others" or report.sizes["copies"] == 10  # nothing is removed


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_an_extracted_archive_goes_once_nobody_uses_it(root: Path, make_mar):
    archive = open_archive(make_mar("x = 1\n", files={"w.bin": bytes(5000)}), cache=Cache(root))
    folder = archive.materialize()
    assert marpack.doctor().sizes["extracted"] > 5000
    assert (marpack.doctor(clear_cache=True).freed, folder.is_dir()) == (0, True)
    archive.close()
    report = marpack.doctor(clear_cache=True)
    assert report.freed is not None
    assert report.freed > 5000
    assert not folder.exists()
    assert report.sizes["extracted"] == 0
    assert "freed" in line("cache", report).text


@pytest.mark.parametrize("kind", ["fetched", "copies"])
def test_what_was_fetched_goes_unless_it_was_asked_for_just_now(kind: str, root: Path):
    folder = root / ("blobs/key" if kind == "fetched" else "copies")
    folder.mkdir(parents=True)
    used = folder / ("x.mar.json" if kind == "fetched" else "x.mar")
    used.write_bytes(b"{}")
    (folder / "x.mar").write_bytes(bytes(1000))
    before = marpack.doctor(clear_cache=True)
    assert (before.freed, before.sizes[kind]) == (0, sum(each.stat().st_size for each in folder.iterdir()))
    age(used, 700)
    after = marpack.doctor(clear_cache=True)
    assert (after.freed, after.sizes[kind]) == (before.sizes[kind], 0)


def test_an_environment_goes_once_nothing_runs_in_it(root: Path):
    folder = root / "environments" / "key"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "made.json").write_bytes(bytes(100))
    size = 100 + (folder / "bin" / "python").lstat().st_size
    assert marpack.doctor().sizes == {"extracted": 0, "fetched": 0, "copies": 0, "environments": size}
    assert marpack.doctor(clear_cache=True).freed == 0  # it was asked for just now
    age(folder / "made.json", 700)
    with subprocess.Popen([folder / "bin" / "python", "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert marpack.doctor(clear_cache=True).freed == 0
        process.kill()
    assert marpack.doctor(clear_cache=True).freed == size
    assert not folder.exists()
