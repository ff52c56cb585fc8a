import json
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from refusals import has_code

from marpack.api.session_options import ModelOptions
from marpack.api.sessions import load_of
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, DamagedArchiveError, DeviceUnavailableError, TorchrunError, UsageError
from marpack.findings import Severity
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load, Loaded
from marpack.protocol.targets import Target
from marpack.runner.client import load_error
from marpack.runner.session import (
    Device,
    LoadProgress,
    Session,
    device_mismatch,
    prepare,
    refuse_as_server,
    sequence_warning,
    target_of,
)
from marpack.worker.model_loader import HandlerLoader

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "TS_IPEX_GPU_ENABLE": "false"}


@pytest.mark.parametrize(
    ("name", "number", "variables"),
    [
        ("auto", None, {}),
        ("cpu", None, HIDDEN | {"PJRT_DEVICE": "CPU"}),
        ("cuda", 0, {"TS_IPEX_GPU_ENABLE": "false"}),
        ("cuda:2", 2, {"TS_IPEX_GPU_ENABLE": "false"}),
        ("xpu", 0, {"CUDA_VISIBLE_DEVICES": "", "TS_IPEX_GPU_ENABLE": "true"}),
        ("xpu:1", 1, {"CUDA_VISIBLE_DEVICES": "", "TS_IPEX_GPU_ENABLE": "true"}),
        ("mps", 0, HIDDEN),
        ("xla", None, HIDDEN),
    ],
)
def test_devices(name: str, number: int | None, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    device = Device.parse(name)
    assert device == Device(name, number, variables)
    assert name == "auto" or device.gpu_id() == number
    wanted = {"CUDA_VISIBLE_DEVICES": "0,1", **variables}
    environment = device.environment()
    assert environment is None if name == "auto" else environment is not None and wanted.items() <= environment.items()


@pytest.mark.parametrize(
    "name", ["", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA", "mps:0", "xla:1"]
)
def test_unknown_devices_are_refused(name: str):
    with pytest.raises(UsageError, check=has_code("unknown-device", where="--device")):
        Device.parse(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "xpu", "xpu:1", "mps", "cuda:7"])
def test_a_device_that_the_system_does_not_show_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.platform", "linux")
    has_others = name == "cuda:7"  # a number beyond the devices there are
    monkeypatch.setattr(
        "marpack.runner.session._has_node", lambda *patterns: has_others and "nvidia7" not in patterns[:1]
    )
    with pytest.raises(DeviceUnavailableError) as caught:
        Device.available(name)
    assert caught.value.where == f"--device {name}"
    usable = ["auto", "cpu", "xla", *(["cuda:1"] if has_others else [])]
    assert [Device.available(other).name for other in usable] == usable


def test_a_device_that_the_worker_does_not_have_is_refused():
    load = load_of(ModelOptions(), Device.parse("cuda:1"))
    failure = HandlerLoader(load).failure(DeviceUnavailableError("no", where="worker"))
    error = load_error(failure, "", load)
    assert isinstance(error, DeviceUnavailableError)
    assert (error.what, error.where, error.exit_code) == ("no", "--device cuda:1", 2)


@pytest.mark.parametrize(
    ("requested", "found", "is_told"),
    [
        *(("auto", "cpu", False), ("cuda", "cuda:0", False), ("cuda:0", "cuda:0", False), ("cpu", None, False)),
        *(("xla", "xla:0", False), ("cuda:1", "cpu", True), ("cuda:1", "cuda:0", True)),
    ],
)
def test_a_model_on_another_device_is_reported(requested: str, found: str | None, *, is_told: bool):
    finding = device_mismatch(requested, found)
    assert is_told is (finding is not None)
    assert finding is None or (finding.severity, finding.code) == (Severity.WARNING, "other-device")


class Listener(LoadProgress):
    """Notes what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        self.told.append(f"opened {resolved.path.name}")

    @contextmanager
    def loading(self):
        self.told.append("loading")
        yield
        self.told.append("loaded")


class FakePool:
    """Stands for workers: notes what becomes of it, and may refuse to start."""

    def __init__(self, told: list[str], *, starts: bool = True) -> None:
        self.told = told
        self.starts = starts

    def __call__(self, archive: Archive, load: Load, config: Any) -> "FakePool":
        self.told.append(f"{load.target} {load.model_name} {config}")
        assert (Path(load.model_dir) / "handler.py").is_file()
        return self

    def start(self) -> Loaded:
        self.told.append("start")
        if not self.starts:
            raise UsageError("no")
        return Loaded(handler="h", stages={})

    def close(self) -> None:
        self.told.append("close")

    def kill(self) -> None:
        self.told.append("kill")


def test_an_archive_is_opened_then_loaded_then_let_go_of(make_mar):
    files = {"c.yaml": "batchSize: 2", "r.txt": "Lru_Dict\nlru-dict\ntimm>1\n--no-index\n"}
    source = str(make_mar("x = 1", files=files, configFile="c.yaml", requirementsFile="r.txt"))
    for failure, end in ((None, "close"), (KeyError("a"), "kill")):
        listener = Listener()
        session = Session.open(
            source, options=Load(model_dir="", model_name="m"), settings=FakePool(listener.told), listener=listener
        )
        assert listener.told == ["opened probe.mar", "torchserve m {'batchSize': 2}", "loading", "start", "loaded"]
        assert session.load.required == ("lru-dict", "timm")
        assert (session.loaded.handler, session.content_digest, session.load.target) == ("h", None, Target.TORCHSERVE)
        with suppress(KeyError), session:
            if failure is not None:
                raise failure
        assert listener.told[5:] == [end]


def test_what_does_not_start_leaves_nothing_behind(make_mar):
    pool = FakePool([], starts=False)
    with pytest.raises(UsageError):
        Session.open(str(make_mar("x = 1")), options=Load(model_dir=""), target=Target.MARPACK, settings=pool)
    assert pool.told == ["marpack None {}", "start", "kill"]


def test_an_archive_may_say_whose_behavior_counts(make_mar):
    def found(**index: str) -> Target:
        files = {INDEX_NAME: json.dumps({"members": [], "format": 1, **index})}
        with open_archive(make_mar("x = 1", files=files)) as archive:
            return target_of(ResolvedSource(path=Path()), archive)

    assert (found(), found(target="marpack")) == (Target.TORCHSERVE, Target.MARPACK)
    with pytest.raises(DamagedArchiveError, match="'triton'", check=has_code("unknown-target")) as caught:
        found(target="triton")
    assert str(caught.value.where).endswith(f"!{INDEX_NAME}")


def test_what_no_server_starts_is_refused_unless_marpack_is_the_target(tmp_path: Path):
    manifest = {"runtime": "LSP", "model": {"modelName": "m", "modelVersion": "1", "handler": "libm"}}
    with zipfile.ZipFile(tmp_path / "m.mar", "w") as file:
        file.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
    with open_archive(tmp_path / "m.mar") as archive, pytest.raises(ArchiveError, match="LSP") as caught:
        refuse_as_server(archive)
    assert caught.value.code == "unsupported-runtime"
    source, options = ResolvedSource(path=tmp_path / "m.mar"), Load(model_dir="")
    with prepare(source, options=options, target=Target.MARPACK).archive as archive:
        assert archive.manifest.runtime == "LSP"


def test_a_model_that_torchrun_starts_is_refused_before_it_is_laid_out(make_mar):
    config = "parallelType: tp\ntorchrun: {nproc-per-node: 2}\n"
    mar = make_mar("def handle(data, context): ...\n", files={"c.yaml": config}, configFile="c.yaml")
    listener = Listener()
    with pytest.raises(TorchrunError):
        Session.open(str(mar), options=Load(model_dir=""), settings=FakePool(listener.told), listener=listener)
    assert listener.told == [f"opened {mar.name}"]


def test_sequences_are_warned_of():
    assert sequence_warning({"sequenceBatching": True}) is not None
    assert sequence_warning({"sequenceBatching": 1}) is None
