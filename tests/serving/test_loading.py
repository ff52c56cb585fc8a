"""What is looked at before an archive is served, and whose word counts for how."""

import hashlib
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from serving.served import pack, served, wait_until

from marpack.archive.index import Index, Member, index_digest
from marpack.archive.protocol import INDEX_NAME
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, ExitCode, TorchrunError, UsageError
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.serving.loading import AdmissionRules, ModelLoader, ModelPlan
from marpack.serving.settings import ModelProperties, ModelSettings, ModelTuning
from marpack.serving.workers import WorkerState

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


def refusal(rules: AdmissionRules, path: Path) -> ArchiveError:
    with pytest.raises(ArchiveError) as refused:
        admit(rules, path)
    error = refused.value
    assert error.where
    assert error.hint
    return error


def test_the_archive_of_a_digest_is_let_in(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    digest = signed(path)
    assert admit(AdmissionRules(digests=frozenset({"sha256:other", digest})), path) == ()


def test_another_digest_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    digest = signed(path)
    error = refusal(AdmissionRules(digests=frozenset({"sha256:" + "1" * 64})), path)
    assert (error.code, error.where) == ("digest-not-allowed", str(path))
    assert digest in error.what


def test_a_digest_that_is_only_claimed_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    digest = signed(path, lies="handler.py")
    error = refusal(AdmissionRules(digests=frozenset({digest})), path)
    assert (error.code, error.where) == ("digest-mismatch", f"{path}!handler.py")


def test_a_member_beside_those_of_the_digest_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    digest = signed(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("torch.py", "print('mine')")
    error = refusal(AdmissionRules(digests=frozenset({digest})), path)
    assert (error.code, error.where) == ("digest-mismatch", f"{path}!torch.py")


def test_an_archive_without_an_index_has_no_digest(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    assert refusal(AdmissionRules(digests=frozenset({"sha256:x"})), path).code == "no-content-digest"


def test_a_folder_has_no_digest_that_lasts(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    digest = signed(path)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "folder")
    assert refusal(AdmissionRules(digests=frozenset({digest})), tmp_path / "folder").code == "folder-without-digest"


@pytest.mark.parametrize("payload", [pickle.dumps(Runs()), pickle.dumps(eval), b"\x80\x04\x95"])
def test_what_is_not_safe_is_refused_where_that_is_asked_for(tmp_path: Path, payload: bytes) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights.pkl", payload)
    assert (refusal(AdmissionRules(require_safe=True), path).where or "").startswith(f"{path}!weights.pkl")
    assert admit(AdmissionRules(), path)  # and told of, where it is not


def test_a_safe_archive_is_let_in(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights.pkl", pickle.dumps({"a": 1}))
    assert admit(AdmissionRules(require_safe=True), path) == ()


def plan(
    path: Path, tuning: ModelTuning | None = None, name: str | None = None, handler: str | None = None, **loader: Any
) -> ModelPlan:
    made = ModelLoader(load=Load(model_dir=""), **loader).plan(
        ResolvedSource(path=path), name=name, handler=handler, tuning=tuning or ModelTuning()
    )
    made.prepared.archive.close()
    return made


def test_a_plan_has_the_manifests_name_and_version(tmp_path: Path) -> None:
    made = plan(pack(tmp_path, "m.mar", HANDLER, modelVersion="2.1"))
    assert (made.name, made.version, made.prepared.load.model_name) == ("m", "2.1", None)
    assert Path(made.prepared.load.model_dir, "handler.py").read_text() == HANDLER


def test_a_plan_takes_another_name(tmp_path: Path) -> None:
    made = plan(pack(tmp_path, "m.mar", HANDLER), name="other")
    assert (made.name, made.version, made.prepared.load.model_name) == ("other", "1.0", "other")


def test_what_the_door_refuses_is_not_laid_out(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    with pytest.raises(ArchiveError) as caught:
        plan(path, rules=AdmissionRules(digests=frozenset({"sha256:x"})))
    assert caught.value.code == "no-content-digest"


def test_a_model_that_torchrun_starts_is_refused_before_a_worker_starts(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER, config="parallelType: tp\ntorchrun: {nproc-per-node: 2}\n")
    with pytest.raises(TorchrunError) as refused:
        plan(path)
    assert (refused.value.code, refused.value.exit_code) == ("torchrun-ranks", ExitCode.HANDLER)


def test_a_model_with_sequences_is_warned_of_once(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER, config="sequenceBatching: true\nsequenceMaxIdleMSec: 1000\n")
    assert [finding.code for finding in plan(path).findings] == ["sequence-batching"]


def test_a_plan_tells_what_was_found(tmp_path: Path) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights.pkl", pickle.dumps(Runs()))
    assert [finding.code for finding in plan(path).findings] == ["untrusted-pickle"]


@pytest.mark.parametrize("handler", ["handler.py", "handler", "handler.py:handle", "image_classifier", "sub/h.py:f"])
def test_a_handler_may_be_a_built_in_or_a_member(tmp_path: Path, handler: str) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("sub/h.py", HANDLER)
    assert plan(path, handler=handler).prepared.load.handler == handler


@pytest.mark.parametrize("handler", ["other.py", "../handler.py", "/tmp/handler.py", "os:system", "h.py", ""])
def test_no_other_handler_is_taken(tmp_path: Path, handler: str) -> None:
    path = pack(tmp_path, "m.mar", HANDLER)
    with pytest.raises(UsageError) as caught:
        plan(path, handler=handler)
    assert caught.value.code == "unknown-handler"


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
def test_whose_word_counts(
    tmp_path: Path,
    config: str | None,
    properties: ModelProperties | None,
    requested: ModelTuning | None,
    expected: tuple[int, ...],
) -> None:
    models = {"m": {"1.0": properties, "2.0": ModelProperties(batch_size=99)}} if properties else {}
    settings = plan(pack(tmp_path, "m.mar", HANDLER, config=config), requested, models=models).settings
    least, most, size, delay, response, startup = expected
    assert settings == ModelSettings(
        min_workers=least,
        max_workers=most,
        batch_size=size,
        max_batch_delay=delay,
        response_timeout=response,
        startup_timeout=startup,
    )


@pytest.mark.parametrize(
    ("config", "dealt"),
    [
        (None, {"0", "1"}),
        ("deviceIds: [1]\n", {"1"}),
        ("deviceIds: [7]\n", {"0", "1"}),
        ("deviceIds: x\n", {"0", "1"}),
        ("deviceType: cpu\n", {"None"}),
    ],
)
def test_gpus_are_dealt_out_to_workers(tmp_path: Path, config: str | None, dealt: set[str]) -> None:
    handler = """
def handle(data, context):
    return [str(context.system_properties["gpu_id"])] * len(data) if data else None
"""
    loader = ModelLoader(load=Load(model_dir=""), gpus=(0, 1), overrides=ModelTuning(min_workers=2, max_workers=2))
    with served(pack(tmp_path, "m.mar", handler, config=config), loader=loader) as server:
        model = server.server.registry.find("m")
        wait_until(lambda: sum(worker.state is WorkerState.READY for worker in model.workers) == 2)
        loads = {str(model.load(worker).gpu_id) for worker in model.workers}
        assert loads == dealt
        assert server.request("POST", "/predictions/m", b"x")[2].decode() in dealt
