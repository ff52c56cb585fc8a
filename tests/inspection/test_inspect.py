"""Facts and findings about whole archives."""

import io
import itertools
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inspection.conftest import members_of, packed
from lazy import torch

from marpack.archive.reader import open_archive
from marpack.errors import ManifestError
from marpack.findings import Severity
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.inspection.pickles import PickleVerdict
from marpack.project.plan import Format
from marpack.weights.kind import WeightsFormat

HANDLER = """
from ts.torch_handler.base_handler import BaseHandler
import this_is_nowhere

assert not "the handler was run"


class Own(BaseHandler):
    def postprocess(self, data):
        return data

    def preprocess(self, data):
        return data
"""
CONFIG = "# comment\nbatchSize: 4\npt2:\n  compile: {enable: true}\n"

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return a function that packs an archive of ours, of every usual part."""

    def build(output: str = "net.mar", form: Format = Format.DEFAULT, **files: bytes | str) -> Path:
        torch.manual_seed(1)
        weights = tmp_path / "net.pt"
        torch.save({"a.weight": torch.randn(3, 4), "a.bias": torch.zeros(3)}, weights)
        texts = {
            "handler__py": HANDLER,
            "index_to_name__json": json.dumps({str(number): f"label {number}" for number in range(12)}),
            "model-config__yaml": CONFIG,
            "requirements__txt": "# needs\nnumpy>=1.26  # fast\n\nscipy\n",
        }
        named = {"config_file": "model-config.yaml", "requirements_file": "requirements.txt"}
        return packed(tmp_path / output, weights, *members_of({**texts, **files}), form=form, **named)

    return build


def look(path: Path, **options: Any) -> Inspection:
    with open_archive(path) as archive:
        return inspect(archive, **options)


@pytest.mark.parametrize(
    ("output", "form"), [("net.mar", Format.DEFAULT), ("net.tar.gz", Format.TGZ), ("net", Format.NO_ARCHIVE)]
)
def test_every_form_shows_the_same_facts(output: str, form: Format, build: Build) -> None:
    read: list[int] = []
    facts = look(build(output, form), verify=True, progress=read.append)

    assert sum(read) == sum(member.size for member in facts.members)
    assert facts.manifest["model"]["modelName"] == "net"
    assert facts.content_digest is not None
    assert facts.provenance["builder"].startswith("marpack")
    assert facts.target == "torchserve"
    assert {member.name for member in facts.members} >= {"net.pt", "handler.py", "MAR-INF/MANIFEST.json"}
    assert all(member.sha256 for member in facts.members)
    assert (facts.handler.class_name, facts.handler.bases) == ("Own", ("BaseHandler",))
    assert facts.handler.stages == ("preprocess", "postprocess")
    assert facts.labels.count == 12
    assert facts.labels.first == ("label 0", "label 1", "label 2", "label 3", "label 4")
    assert facts.config.value == {"batchSize": 4, "pt2": {"compile": {"enable": True}}}
    assert facts.requirements == ("numpy>=1.26", "scipy")
    (weights,) = facts.weights
    assert (weights.kind, weights.tensors, weights.parameters, weights.bytes) == (WeightsFormat.STATE_DICT, 2, 15, 60)
    assert [tensor.name for tensor in weights.largest] == ["a.weight", "a.bias"]
    assert facts.pickles.verdict is PickleVerdict.SAFE
    assert facts.verified.intact
    assert facts.verified.signed_off
    assert facts.findings == ()


def test_an_archive_of_the_original_archiver_has_no_digest(make_mar: Callable[..., Path]) -> None:
    facts = look(make_mar("def handle(data, context): return data\n"), verify=True)
    assert facts.content_digest is None
    assert facts.target is None
    assert facts.handler.function == "handle"
    assert facts.verified.intact
    assert not facts.verified.signed_off
    assert all(member.sha256 for member in facts.members)


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Zip the members again after a change, with CRCs that fit."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


CHANGES = {
    "digest-mismatch": lambda members: members.update({"handler.py": members["handler.py"].replace(b"data", b"date")}),
    "unlisted-member": lambda members: members.update({"extra.py": b"x = 1\n"}),
    "missing-member": lambda members: members.pop("index_to_name.json"),
}


@pytest.mark.parametrize("code", CHANGES)
def test_what_was_changed_after_building_is_found(code: str, build: Build) -> None:
    facts = look(rewritten(build(), CHANGES[code]), verify=True)
    assert [finding.code for finding in facts.findings] == [code]
    assert not facts.verified.intact


def test_another_size_is_found_without_reading_everything(build: Build) -> None:
    path = rewritten(build(), lambda members: members.update({"handler.py": b"x"}))
    assert [finding.code for finding in look(path).findings] == ["digest-mismatch"]


def test_an_unreadable_index_is_a_finding(build: Build) -> None:
    path = rewritten(build(), lambda members: members.update({"MAR-INF/marpack.json": b"{}"}))
    assert [finding.code for finding in look(path).findings] == ["unlisted-member"]


def test_a_damaged_member_is_named_and_the_rest_is_shown(build: Build) -> None:
    path = build()
    content = bytearray(path.read_bytes())
    at = content.index(b"class Own")
    content[at] ^= 1
    path.write_bytes(content)
    facts = look(path)
    assert [finding.code for finding in facts.findings if finding.severity is Severity.ERROR] == ["damaged-member"]
    assert "handler.py" in facts.findings[0].where
    assert facts.weights[0].tensors == 2


@pytest.mark.slow
def test_any_byte_flipped_is_found_or_changes_nothing(build: Build) -> None:
    """Every fifth byte behind the padding to the first page: `--verify` tells, or refuses to open it."""
    from marpack.errors import ArchiveError

    path = build()
    content = path.read_bytes()
    plain = msgspec.json.encode(look(path, verify=True).members)
    unseen = 0
    for at in range(4096, len(content), 5):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :])
        try:
            facts = look(path, verify=True)
        except ArchiveError:
            continue
        if facts.verified.intact and not facts.findings:
            unseen += 1
            assert msgspec.json.encode(facts.members) == plain
    assert unseen < (len(content) - 4096) / 5 / 20  # times, versions and modes, which nothing depends on


def test_whole_models_and_evil_ones_are_findings(build: Build) -> None:
    evil = pickle.dumps({"x": print, "y": torch.load})  # imports are enough
    buffer = io.BytesIO()
    torch.save(torch.nn.Linear(2, 2), buffer)
    facts = look(build(evil__bin=evil, whole__pt=buffer.getvalue()))
    assert facts.pickles.verdict is PickleVerdict.DANGEROUS
    codes = {finding.code: finding for finding in facts.findings}
    assert codes["dangerous-pickle"].severity is Severity.ERROR
    assert codes["untrusted-pickle"].severity is Severity.WARNING
    assert "evil.bin" in codes["dangerous-pickle"].where


def test_the_server_s_refusals_are_findings(build: Build, tmp_path: Path) -> None:
    path = build().rename(tmp_path / "net.zip")
    assert "archive-suffix" in {finding.code for finding in look(path).findings}


def test_a_manifest_that_is_missing_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "x.mar"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("handler.py", "")
    with pytest.raises(ManifestError):
        look(path)


@pytest.mark.parametrize("key", ["serializedFile", "modelFile", "configFile", "requirementsFile"])
def test_a_file_that_is_named_and_not_there_ends_it(key: str, make_mar: Callable[..., Path]) -> None:
    with pytest.raises(ManifestError, match=key):
        look(make_mar("def handle(data, context): return data\n", **{key: "gone.txt"}))


HANDLERS = {
    "syntax error": ("def handle(:\n", "line 1"),
    "nothing": ("x = 1\n", "neither a function 'handle' nor a class"),
    "two classes": ("class A:\n    def handle(s): ...\nclass B:\n    def handle(s): ...\n", "2 classes of its own"),
    "no method": ("class A:\n    def initialize(s, c): ...\n", "the class A has no method 'handle'"),
    "null byte": ("x = '\0'\n", "null"),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_a_handler_without_an_entry_says_why(name: str, build: Build) -> None:
    source, problem = HANDLERS[name]
    assert problem in look(build(handler__py=source)).handler.problem


def test_a_handler_inherits_stages_within_its_file(build: Build) -> None:
    source = "import a.b\nclass Mine(a.b.BaseHandler):\n    def inference(s): ...\n"
    duplicates = look(build(handler__py=source + "class Last(Mine):\n    def initialize(s): ...\n"))
    assert "(Last, Mine)" in duplicates.handler.problem  # the server takes exactly one, too
    facts = look(build("b.mar", handler__py=source))
    assert (facts.handler.bases, facts.handler.stages) == (("a.b.BaseHandler",), ("inference",))


def test_a_handler_is_what_the_server_would_call(build: Build) -> None:
    beside = look(build(handler__py="from other import handle\n", other__py="def handle(data, context): return data\n"))
    assert (beside.handler.function, beside.handler.problem) == ("handle", None)
    inner = "class Base:\n    def handle(self, data, context): ...\n    def inference(self, data): ...\n"
    heir = look(build("b.mar", handler__py="from other import Base\nclass Own(Base): ...\n", other__py=inner))
    assert (heir.handler.class_name, heir.handler.stages) == ("Own", ("inference", "handle"))
    source = "class Helper: ...\nclass Own:\n    def handle(self, data, context): ...\n"
    assert "has 2 classes" in look(build("c.mar", handler__py=source)).handler.problem


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghij")
)
BAD_TEXTS = {
    "labels that are no JSON": ({"index_to_name__json": "{"}, "labels"),
    "labels in a list": ({"index_to_name__json": "[1]"}, "labels"),
    "labels that are numbers": ({"index_to_name__json": '{"0": 1}'}, "labels"),
    "labels nested without end": ({"index_to_name__json": "[" * 100_000}, "labels"),
    "config that is no YAML": ({"model-config__yaml": "a: [1\n"}, "config"),
    "config with Python objects": ({"model-config__yaml": "a: !!python/object/apply:os.system [id]\n"}, "config"),
    "config nested without end": ({"model-config__yaml": "[" * 5000}, "config"),
    "config of nine billion values": ({"model-config__yaml": BOMB}, "config"),
    "config that is itself": ({"model-config__yaml": "a: &a [*a]\n"}, "config"),
    "config of binary": ({"model-config__yaml": b"\xff\x80\0"}, "config"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_texts_that_cannot_be_read_are_problems_and_no_errors(name: str, build: Build) -> None:
    files, part = BAD_TEXTS[name]
    facts = look(build(**files))
    assert getattr(facts, part).problem


def test_labels_come_by_index_and_those_without_one_last(build: Build) -> None:
    labels = {"name": "no index", "10": "fox", "9" * 5000: "too far", "2": "dog", "": "nothing"}
    facts = look(build(index_to_name__json=json.dumps(labels)))
    assert facts.labels.first == ("dog", "fox", "nothing", "too far", "no index")


def test_config_values_of_every_yaml_type_become_json(build: Build) -> None:
    text = "when: 2024-01-01\ndata: !!binary aGk=\nset: !!set {a, b}\n1: one\ntrue: yes\nnothing: ~\nodd: .nan\n"
    facts = look(build(**{"model-config__yaml": text}))
    assert facts.config.problem is None
    json.loads(msgspec.json.encode(facts))


def test_the_result_is_what_its_type_says(build: Build) -> None:
    facts = look(build(), verify=True)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=Inspection, strict=True) == facts
