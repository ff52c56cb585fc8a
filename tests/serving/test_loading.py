"""The model store, admission, the settings of a model, and loading threads."""

import hashlib
import os
import pickle
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from refusals import has_code
from serving.served import LOADER, Served, pack, served, wait_until

from marpack.archive.index import Index, Member, index_digest
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.archive.reader import open_archive
from marpack.archive.sagemaker import HANDLER as ADAPTER
from marpack.archive.sagemaker import SCRIPT, handler_source
from marpack.errors import ArchiveError, ExitCode, TorchrunError, UsageError
from marpack.findings import Finding
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.runner.client import Worker
from marpack.serving.loading import AdmissionRules, ModelLoader, ModelPlan, ModelStore
from marpack.serving.models import WorkerState
from marpack.serving.settings import ModelProperties, ModelSettings, ModelTuning
from marpack.torchserve.http import RequestError

HANDLER = "def handle(data, context):\n    return data\n"


class Runs:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("hello",)


def signed(path: Path, *, lies: str = "") -> str:
    """Add an index to an archive, which speaks of other bytes than `lies` has; return its digest."""
    with zipfile.ZipFile(path, "a") as archive:
        names = archive.namelist()
        sums = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}
        sums |= {lies: "0" * 64} if lies else {}
        sizes = {name: archive.getinfo(name).file_size for name in names}
        data = Index(members=tuple(Member(name, sizes[name], sums[name]) for name in names)).to_json()
        archive.writestr(INDEX_NAME, data)
    return index_digest(data)


def admit(rules: AdmissionRules, path: Path) -> tuple[str, ...]:
    with open_archive(path) as archive:
        return tuple(finding.code for finding in rules.check(archive))


def add(path: Path, name: str, data: str | bytes) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, data)


def refusal(rules: AdmissionRules, path: Path) -> ArchiveError:
    with pytest.raises(ArchiveError) as refused:
        admit(rules, path)
    error = refused.value
    assert error.where
    assert error.hint
    return error


def test_only_the_archive_of_an_allowed_digest_is_accepted(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    assert refusal(AdmissionRules(digests=frozenset({"sha256:x"})), path).code == "no-content-digest"
    digest = signed(path)
    rules = AdmissionRules(digests=frozenset({"sha256:other", digest}))
    assert admit(rules, path) == ()
    error = refusal(AdmissionRules(digests=frozenset({"sha256:" + "1" * 64})), path)
    assert (error.code, error.where) == ("digest-not-allowed", str(path))
    assert digest in error.what
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "folder")
    assert refusal(rules, tmp_path / "folder").code == "folder-without-digest"
    add(path, "torch.py", "print('mine')")  # the index does not list it
    error = refusal(rules, path)
    assert (error.code, error.where) == ("digest-mismatch", f"{path}!torch.py")
    path = pack(tmp_path, "m.mar", HANDLER)
    digest = signed(path, lies="handler.py")
    error = refusal(AdmissionRules(digests=frozenset({digest})), path)
    assert (error.code, error.where) == ("digest-mismatch", f"{path}!handler.py")


@pytest.mark.parametrize("payload", [pickle.dumps(Runs()), pickle.dumps(eval), b"\x80\x04\x95"])
def test_only_safe_archives_are_accepted_where_required(tmp_path: Path, payload: bytes) -> None:
    path = pack(tmp_path, "m.mar", HANDLER, files={"safe.pkl": pickle.dumps({"a": 1})})
    assert admit(AdmissionRules(require_safe=True), path) == ()
    add(path, "weights.pkl", payload)
    assert (refusal(AdmissionRules(require_safe=True), path).where or "").startswith(f"{path}!weights.pkl")
    assert admit(AdmissionRules(), path)  # a finding


def plan(
    path: Path, tuning: ModelTuning | None = None, name: str | None = None, handler: str | None = None, **loader: Any
) -> ModelPlan:
    made = ModelLoader(load=Load(model_dir=""), **loader).plan(
        ResolvedSource(path=path), name=name, handler=handler, tuning=tuning or ModelTuning()
    )
    made.prepared.archive.close()
    return made


@pytest.mark.parametrize("is_adapter", [False, True])
def test_settings_of_sagemaker_are_for_its_adapter_itself(make_mar: Callable[..., Path], is_adapter: bool) -> None:
    files = {ADAPTER: handler_source() if is_adapter else HANDLER.encode(), SCRIPT: b""}
    made = plan(make_mar("", files=files, entry=ADAPTER), sagemaker=lambda: ModelTuning(batch_size=7))
    assert (made.settings.batch_size == 7) is is_adapter


def test_a_plan_has_the_manifests_name_and_version_or_another_name(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER, modelVersion="2.1")
    made, other = plan(path), plan(path, name="other")
    assert (made.name, made.version, made.prepared.load.model_name) == ("m", "2.1", None)
    assert Path(made.prepared.load.model_dir, "handler.py").read_text() == HANDLER
    assert (other.name, other.version, other.prepared.load.model_name) == ("other", "2.1", "other")


def test_a_model_that_torchrun_starts_is_refused_before_a_worker_starts(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER, config="parallelType: tp\ntorchrun: {nproc-per-node: 2}\n")
    with pytest.raises(TorchrunError) as refused:
        plan(path)
    assert (refused.value.code, refused.value.exit_code) == ("torchrun-ranks", ExitCode.HANDLER)


def test_an_archive_is_closed_if_there_is_no_environment_for_its_workers(tmp_path: Path) -> None:
    opened: list[Archive] = []

    def fail(archive: Archive) -> Callable[[], Worker]:
        opened.append(archive)
        raise UsageError("no environment")

    with pytest.raises(UsageError):
        plan(pack(tmp_path, "m.mar", HANDLER), spawn=fail)
    with pytest.raises(ArchiveError):
        opened[0].open("handler.py").read()


def test_a_plan_has_the_findings_of_its_archive(tmp_path: Path) -> None:
    config = "sequenceBatching: true\nsequenceMaxIdleMSec: 1000\n"
    path = pack(tmp_path, "m.mar", HANDLER, config=config, files={"weights.pkl": pickle.dumps(Runs())})
    assert [finding.code for finding in plan(path).findings] == ["untrusted-pickle", "sequence-batching"]


def test_a_handler_may_be_a_built_in_or_a_member(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER, files={"sub/h.py": HANDLER})
    for handler in ("handler.py", "handler", "handler.py:handle", "image_classifier", "sub/h.py:f"):
        assert plan(path, handler=handler).prepared.load.handler == handler
    for handler in ("other.py", "../handler.py", "/tmp/handler.py", "os:system", "h.py", ""):
        with pytest.raises(UsageError, check=has_code("unknown-handler")):
            plan(path, handler=handler)


CONFIG = "minWorkers: 2\nmaxWorkers: 4\nbatchSize: 8\nmaxBatchDelay: 50\nresponseTimeout: 30\nstartupTimeout: 40\n"
PROPERTIES = ModelProperties(
    min_workers=3, max_workers=3, batch_size=16, max_batch_delay=60, response_timeout=31, startup_timeout=41
)
REQUESTED = ModelTuning(
    min_workers=5, max_workers=5, batch_size=32, max_batch_delay=0, response_timeout=32, startup_timeout=42
)
# config, properties, request → workers (least, most), batch size, delay, timeouts of an answer and of a start
PRECEDENCE = [
    (None, None, None, (1, 1, 1, 100, 120, 120)),
    (None, PROPERTIES, None, (3, 3, 16, 60, 31, 41)),
    (None, None, REQUESTED, (5, 5, 32, 0, 32, 42)),
    (None, PROPERTIES, REQUESTED, (5, 5, 32, 0, 31, 41)),
    (CONFIG, None, None, (2, 4, 8, 50, 30, 40)),
    (CONFIG, PROPERTIES, None, (2, 4, 8, 50, 30, 40)),
    (CONFIG, None, REQUESTED, (2, 4, 32, 0, 30, 40)),
    (CONFIG, PROPERTIES, ModelTuning(min_workers=0, max_workers=0), (2, 4, 8, 50, 30, 40)),
    ("batchSize: 0\nmaxBatchDelay: -1\n", None, ModelTuning(min_workers=0, max_workers=0), (0, 0, 1, 100, 120, 120)),
    # a model config that tells no time is taken to tell the default one, unless it tells an impossible one
    ("batchSize: 8\n", PROPERTIES, REQUESTED, (5, 5, 32, 0, 120, 120)),
    ("responseTimeout: true\nstartupTimeout: soon\n", PROPERTIES, None, (3, 3, 16, 60, 120, 120)),
    ("responseTimeout: 0\nstartupTimeout: -1\n", PROPERTIES, None, (3, 3, 16, 60, 31, 41)),
]


@pytest.mark.parametrize(("config", "properties", "requested", "expected"), PRECEDENCE)
def test_the_precedence_of_settings(
    tmp_path: Path,
    config: str | None,
    properties: ModelProperties | None,
    requested: ModelTuning | None,
    expected: tuple[int, ...],
) -> None:
    models = {"m": {"1.0": properties, "2.0": ModelProperties(batch_size=99)}} if properties else {}
    settings = plan(pack(tmp_path, "m.mar", HANDLER, config=config), requested, models=models).settings
    keys = ("min_workers", "max_workers", "batch_size", "max_batch_delay", "response_timeout", "startup_timeout")
    assert settings == ModelSettings(**dict(zip(keys, expected, strict=True)))


@pytest.mark.parametrize(
    ("config", "dealt"),
    [
        *((config, {"0", "1"}) for config in (None, "deviceIds: [7]\n", "deviceIds: x\n")),
        *(("deviceIds: [1]\n", {"1"}), ("deviceType: cpu\n", {"None"})),
    ],
)
def test_gpus_are_dealt_out_to_workers(tmp_path: Path, config: str | None, dealt: set[str]) -> None:
    handler = "def handle(data, context):\n    return [str(context.system_properties['gpu_id'])] if data else None\n"
    loader = ModelLoader(load=Load(model_dir=""), gpus=(0, 1), overrides=ModelTuning(min_workers=2, max_workers=2))
    with served(pack(tmp_path, "m.mar", handler, config=config), loader=loader) as server:
        model = server.server.registry.find("m")
        wait_until(lambda: sum(worker.state is WorkerState.READY for worker in model.workers) == 2)
        assert {str(model.load(worker).gpu_id) for worker in model.workers} == dealt
        assert server.request("POST", "/predictions/m", b"x")[2].decode() in dealt


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """Return a store with archives, folders, other files and symlinks; a secret is outside."""
    folder = tmp_path / "store"
    folder.mkdir()
    for name in ("a.mar", "b.tar.gz", "c.model", "notes.txt", ".hidden.mar"):
        (folder / name).write_bytes(b"")
    for name in ("unpacked", ".git", "sub"):
        (folder / name).mkdir()
    (folder / "sub" / "d.mar").write_bytes(b"")
    (tmp_path / "secret.mar").write_bytes(b"")
    (folder / "out.mar").symlink_to(tmp_path / "secret.mar")
    (folder / "up.mar").symlink_to(tmp_path)
    (folder / "in.mar").symlink_to("sub/d.mar")
    (folder / "broken.mar").symlink_to("gone.mar")
    (folder / "circle.mar").symlink_to("circle.mar")
    return ModelStore(folder)


NOT_FOUND = (
    *("nope.mar", "A.MAR", "sub/d.mar", "./a.mar", ".", "a.mar/", "sub\\d.mar", "/etc/passwd", "a.mar\0", "a.mar\n"),
    *("out.mar", "up.mar", "broken.mar", "circle.mar", "ftp://host/a.mar", "file:///etc/passwd"),
)
URLS = {
    "": "empty url",
    **{url: f"Model not found at: {url}" for url in NOT_FOUND},
    **{url: f"Relative path is not allowed in url: {url}" for url in ("../secret.mar", "..", "sub/../a.mar")},
    **{
        url: f"Given URL {url} is not in the model store, and only --allow-remote-register permits addresses"
        for url in ("http://host/a.mar", "HTTPS://host/a.mar")
    },
    "x" * 5000: f"Model not found at: {'x' * 1024}",
}


@pytest.mark.parametrize(("url", "message"), URLS.items(), ids=[ascii(url[:20]) for url in URLS])
def test_any_other_url_is_refused_with_the_originals_message(store: ModelStore, url: str, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        store.find(url)
    error = refused.value
    assert (error.status, error.kind, error.message) == (404, "ModelNotFoundException", message)


def test_all_models_are_the_archives_and_the_folders(store: ModelStore, tmp_path: Path) -> None:
    for name in ("a.mar", "b.tar.gz", "unpacked", "in.mar", "notes.txt"):
        assert store.find(name) == (store.folder / name).resolve()
    names = [path.name for path in store.all_models()]
    assert names == sorted(names)
    assert {"a.mar", "b.tar.gz", "c.model", "unpacked", "sub", "out.mar"} <= set(names)
    assert not {"notes.txt", ".hidden.mar", ".git"} & set(names)
    with pytest.raises(UsageError, check=has_code("unreadable-model-store")):
        ModelStore(tmp_path / "gone").all_models()


def test_a_folder_of_store_root_is_a_source_by_its_path_and_for_links(store: ModelStore, tmp_path: Path) -> None:
    root = tmp_path / "roots" / "models"
    (root / "id" / "model").mkdir(parents=True)
    (tmp_path / "roots" / "models-beside").mkdir()
    (root / "away").symlink_to(tmp_path / "secret.mar")
    (root / "beside").symlink_to(tmp_path / "roots" / "models-beside")
    (root / "here").symlink_to(root / "id")
    (store.folder / "linked").symlink_to(root / "id" / "model")
    (tmp_path / "link-to-root").symlink_to(root)
    rooted = ModelStore(store.folder, (tmp_path / "link-to-root",))
    for url in (str(root / "id" / "model"), "linked", str(tmp_path / "link-to-root" / "here" / "model")):
        assert rooted.find(url) == root / "id" / "model"
    assert rooted.find("a.mar") == store.folder / "a.mar"
    refused = ["out.mar", "up.mar", "id/model", "id", "/etc/passwd", "/", f"{root}\0", f"{root}\\id", "//etc/passwd"]
    refused += [str(root), str(root.parent), f"{root}-beside", f"{root}/away", f"{root}/beside", f"{root}/id/none"]
    refused += [f"{root}/../models-beside", f"{root}/id/../../../secret.mar", str(store.folder / "a.mar")]
    refused += [f"file://{root}/id/model", f"http://host{root}/id"]
    for url in refused:
        with pytest.raises(RequestError) as error:
            rooted.find(url)
        assert error.value.status == 404
    for url in ("linked", str(root / "id" / "model")):
        with pytest.raises(RequestError):
            store.find(url)
    (store.folder / "over").symlink_to(tmp_path / "link-to-root")
    assert rooted.follow(store.folder / "linked") == root / "id" / "model"
    for name in ("over", "out.mar", "up.mar"):  # a root itself is not a model
        with pytest.raises(ArchiveError, check=has_code("link-out-of-store")):
            rooted.follow(store.folder / name)


def test_a_start_follows_links_as_a_registration_does(store: ModelStore, tmp_path: Path) -> None:
    (store.folder / "chain.mar").symlink_to("out.mar")
    (store.folder / "dotted.mar").symlink_to("sub/../../secret.mar")
    (store.folder / "through").symlink_to(tmp_path)
    (tmp_path / "link-to-store").symlink_to(store.folder)
    for each in (store, ModelStore(tmp_path / "link-to-store")):
        for name in ("a.mar", "unpacked", "in.mar"):
            assert each.follow(each.folder / name) == each.find(name) == (store.folder / name).resolve()
        for name in ("out.mar", "up.mar", "chain.mar", "dotted.mar", "through"):
            with pytest.raises(ArchiveError, check=has_code("link-out-of-store")) as refused:
                each.follow(each.folder / name)
            assert f"--store-root {(each.folder / name).resolve().parent}" in str(refused.value.hint)
            with pytest.raises(RequestError):
                each.find(name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert store.follow(elsewhere) == elsewhere, "the command line names it"


START_WORDS = [
    (["a.mar"], [(None, "a.mar")]),
    (["x=a.mar", "y=b.tar.gz"], [("x", "a.mar"), ("y", "b.tar.gz")]),
    (["x=a.mar,c.model , y=b.tar.gz,"], [("x", "a.mar"), (None, "c.model"), ("y", "b.tar.gz")]),
    (["missing.mar"], [(None, "missing.mar")]),
    (["sub/a.mar", "z=/elsewhere/c.model"], [(None, "a.mar"), ("z", "c.model")]),
    (["a.mar", "a.mar"], [(None, "a.mar")]),
    ([], []),
]


def test_start_models(store: ModelStore, tmp_path: Path) -> None:
    for words, expected in START_WORDS:
        assert store.parse_models(words) == [(name, store.folder / file) for name, file in expected]
    assert store.parse_models(["ALL"]) == [(None, path) for path in store.all_models()]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert store.parse_models([f"m={folder}"]) == [("m", folder)]


@pytest.mark.parametrize("word", ["=a.mar", "x=", "x=/", "a\0.mar", "m=https://host/a.mar"])
def test_a_word_that_names_no_model(store: ModelStore, word: str) -> None:
    reason = "served from the model store, not from" if "://" in word else "does not name a model"
    with pytest.raises(UsageError, match=reason) as refused:
        store.parse_models([word])
    assert refused.value.hint


ECHO = "def handle(data, context):\n    return [row['body'] for row in data] if data else None\n"
SLOW = (os.cpu_count() or 1) + 8  # the event loop's own executor has cpu_count + 4 threads, at most 32
SHUTTING_DOWN = 503


RELEASED = threading.Event()


class SlowRules(AdmissionRules, frozen=True):
    """Takes very long to look into some archives."""

    def check(self, archive: Archive) -> tuple[Finding, ...]:
        if archive.source.endswith("slow.mar"):
            RELEASED.wait(60)
        return super().check(archive)


def loading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "marpack-loading"]


@contextmanager
def serving(store: Path, **changes: Any) -> Iterator[tuple[Served, Callable[..., "Future[tuple[int, Any]]"]]]:
    """Serve a store; give the server, and what registers a model there in a thread."""
    loader = ModelLoader(load=LOADER.load, settings=LOADER.settings, **changes)
    with ThreadPoolExecutor(SLOW + 1) as clients, served(model_store=store, loader=loader) as server:

        def register(name: str) -> "Future[tuple[int, Any]]":
            path = f"/models?url={name}.mar&model_name={name}&initial_workers=0"
            return clients.submit(server.manage, "POST", path)

        yield server, register


def test_slow_archives_block_neither_other_registrations_nor_the_end(tmp_path: Path):
    for name in ("good", "slow"):
        pack(tmp_path, f"{name}.mar", ECHO)
    with serving(tmp_path, rules=SlowRules()) as (server, register):
        slow = [register("slow") for _ in range(SLOW)]
        wait_until(lambda: len(loading_threads()) == SLOW)
        assert register("good").result(60)[0] == 200
        assert server.manage("PUT", "/models/good?min_worker=1&synchronous=true")[0] == 200
        assert server.request("POST", "/predictions/good", b"hi")[2] == b"hi"
        assert not any(each.done() for each in slow)
    assert [each.result(60)[0] for each in slow] == [SHUTTING_DOWN] * SLOW
    assert all(thread.daemon for thread in loading_threads())  # the end of the process does not wait for them
    RELEASED.set()


def test_a_synchronous_registration_whose_workers_do_not_load_does_not_hold_up_the_end(tmp_path: Path):
    pack(tmp_path, "hangs.mar", f"import time\ntime.sleep(3600)\n{ECHO}")
    with ThreadPoolExecutor(2) as clients, served(model_store=tmp_path) as server:
        waiting = clients.submit(server.manage, "POST", "/models?url=hangs.mar&initial_workers=1&synchronous=true")
        wait_until(lambda: any(model.workers and model.workers[0].pid for model in server.server.registry))
        scaling = clients.submit(server.manage, "PUT", "/models/hangs?min_worker=2&synchronous=true")
        wait_until(lambda: any(len(model.workers) == 2 for model in server.server.registry))
    assert [each.result(60)[0] for each in (waiting, scaling)] == [SHUTTING_DOWN] * 2
