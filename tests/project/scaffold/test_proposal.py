"""What is proposed for the files that are there, and for what the author says about them."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from marpack.errors import ProjectError, UsageError
from marpack.findings import Severity
from marpack.project.scaffold.folder_scan import FolderScan, LabelsFile, Weights, scan_folder
from marpack.project.scaffold.proposal import Answers, Proposal, assemble, propose
from marpack.protocol.targets import Target
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import StoredTensor, Tensor, WeightsSummary

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)
"""


def convert(source: Path, target: Path) -> None:
    raise AssertionError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shop"


def proposed(folder: Path, **answers: object) -> Proposal:
    folder.mkdir(exist_ok=True)
    return propose(folder, scan_folder(folder), Answers(**answers))


def put(folder: Path, saved: dict[str, Path], name: str, called: str = "model.pt") -> None:
    folder.mkdir(exist_ok=True)
    shutil.copy(saved[name], folder / called)


def classifier(classes: int, kind: WeightsFormat = WeightsFormat.TORCHSCRIPT) -> Weights:
    """Return weights that take pictures, as their headers would tell."""
    shapes = ((2, 3, 5, 5), (classes, 2))
    tensors = tuple(StoredTensor(tensor=Tensor(name="t", dtype="float32", shape=shape)) for shape in shapes)
    return Weights(name="model.bin", size=1, contents=WeightsSummary(kind=kind, tensors=tensors))


@pytest.mark.parametrize(("classes", "handler"), [(4, "handler.py"), (5, "image_classifier")])
def test_the_servers_own_classifier_needs_five_classes(tmp_path, classes, handler):
    assert propose(tmp_path, FolderScan(weights=(classifier(classes),)), Answers()).handler == handler


@pytest.mark.parametrize(("classes", "labels"), [(1, None), (2, "names.txt")])
def test_one_line_is_no_list_of_labels(tmp_path, classes, labels):
    found = FolderScan(
        weights=(classifier(classes),), labels=(LabelsFile(name="names.txt", count=classes, named=False),)
    )
    assert propose(tmp_path, found, Answers()).labels == labels


@pytest.mark.parametrize(("classes", "topk"), [(3, 3), (5, 5), (7, 5)])
def test_an_onnx_handler_names_five_labels_at_most(tmp_path, classes, topk):
    found = FolderScan(weights=(classifier(classes, WeightsFormat.ONNX),))
    assert f"topk = {topk}\n".encode() in assemble(propose(tmp_path, found, Answers()), convert)["handler.py"]


@pytest.mark.parametrize(
    ("template", "weights", "size"), [("custom", (), 4), ("text_classifier", (), 1), ("custom", (classifier(7),), 1)]
)
def test_only_toys_that_can_answer_several_requests_at_once(tmp_path, template, weights, size):
    proposal = propose(tmp_path, FolderScan(weights=weights), Answers(template=template))
    assert yaml.safe_load(assemble(proposal, convert)["marpack.yaml"])["config"]["batchSize"] == size


def test_a_toys_handler_does_not_ask_what_the_folders_weights_would_take(tmp_path):
    answers = Answers(template="onnx")
    toys = [propose(tmp_path, found, answers) for found in (FolderScan(), FolderScan(weights=(classifier(7),)))]
    assert [toy.kind for toy in toys] == [None, None]
    assert assemble(toys[0], convert)["handler.py"] == assemble(toys[1], convert)["handler.py"]


@pytest.mark.parametrize(
    ("weights", "template", "handler"),
    [
        ("pictures", "image_classifier", "image_classifier"),
        ("few", "image_classifier", "handler.py"),  # the server's own names five classes, and fails with fewer
        ("gray", "custom", "handler.py"),
        ("numbers", "custom", "handler.py"),
        ("segmenter", "image_segmenter", "image_segmenter"),
        ("detector", "object_detector", "object_detector"),
        ("state_dict", "image_classifier", "image_classifier"),
        ("onnx", "onnx", "handler.py"),
    ],
)
def test_the_weights_choose_the_template(folder, saved, weights, template, handler):
    put(folder, saved, weights)
    proposal = proposed(folder)
    assert (proposal.template.name, proposal.handler, proposal.weights) == (template, handler, "model.pt")
    assert proposal.brought == ({"requirements.txt": b"onnxruntime\n"} if template == "onnx" else {})


def test_parts_that_are_there_are_used(folder, saved):
    put(folder, saved, "few")
    (folder / "mine.py").write_text("def predict(data, context): ...\n")
    (folder / "labels.txt").write_text("cat\ndog\n")
    (folder / "config.yaml").write_text("batchSize: 2\n")
    (folder / "requirements.txt").write_text("pillow\n")
    (folder / "a.jpg").touch()
    proposal = proposed(folder)
    assert (proposal.handler, proposal.labels) == ("mine.py:predict", "labels.txt")
    assert (proposal.config, proposal.requirements) == ("config.yaml", "requirements.txt")
    assert [sample.input for sample in proposal.samples.listed] == ["a.jpg"]
    assert proposal.made == ("marpack.yaml", "test_model.py", "README.md")
    assert proposal.brought == {}


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        ({"labels.txt": 2, "seven.txt": 7}, "seven.txt"),  # as many as the model has classes
        ({"notes.txt": 2}, None),  # by chance
    ],
)
def test_labels_are_chosen_by_their_number_and_name(folder, saved, files, labels):
    put(folder, saved, "pictures")
    for name, count in files.items():
        (folder / name).write_text("".join(f"{n}\n" for n in range(count)))
    assert proposed(folder).labels == labels


@pytest.mark.parametrize(("called", "weights"), [("model.safetensors", "model.pt"), ("w/own.safetensors", "w/own.pt")])
def test_safetensors_are_converted_for_the_server_where_their_class_is(folder, saved, called, weights):
    (folder / "w").mkdir(parents=True)
    put(folder, saved, "safetensors", called)
    (folder / "net.py").write_text(NET)
    proposal = proposed(folder)
    assert (proposal.weights, proposal.model_file, proposal.target) == (weights, "net.py", None)
    assert proposal.converts == folder / called
    converting = assemble(proposal, convert)[weights]
    assert (converting.func, converting.args) == (convert, (folder / called,))
    assert weights not in assemble(proposal, convert, for_new=False)
    (finding,) = proposal.findings
    assert (finding.code, finding.severity) == ("converted", Severity.NOTE)
    assert weights in finding.message
    assert called in finding.message


def test_safetensors_stay_for_marpack_and_for_a_handler_that_loads_them(folder, saved):
    put(folder, saved, "safetensors", "model.safetensors")
    (folder / "net.py").write_text(NET)
    proposal = proposed(folder, target=Target.MARPACK)
    assert (proposal.weights, proposal.converts) == ("model.safetensors", None)
    (folder / "handler.py").write_text("class H:\n    def initialize(self, c): ...\n    def handle(self, d, c): ...\n")
    proposal = proposed(folder)
    assert (proposal.weights, proposal.converts, proposal.target) == ("model.safetensors", None, None)


@pytest.mark.parametrize(
    ("weights", "called", "remedy"),
    [("safetensors", "m.safetensors", "--model-file"), ("exported", "m.pt2", "jit.trace")],
)
def test_weights_that_the_server_does_not_load_change_the_target(folder, saved, weights, called, remedy):
    put(folder, saved, weights, called)
    proposal = proposed(folder)
    assert (proposal.weights, proposal.target) == (called, Target.MARPACK)
    (finding,) = proposal.findings
    assert finding.code == "not-for-torchserve"
    assert remedy in str(finding.hint)


def test_a_state_dict_is_served_from_any_suffix_where_its_class_is(folder, saved):
    put(folder, saved, "state_dict", "w.pth")
    (folder / "net.py").write_text(NET)
    proposal = proposed(folder)
    assert (proposal.weights, proposal.model_file, proposal.target, proposal.findings) == ("w.pth", "net.py", None, ())


def test_of_several_model_files_the_one_whose_layers_the_weights_are_is_taken(folder, saved):
    put(folder, saved, "safetensors", "m.safetensors")
    (folder / "a.py").write_text(NET.replace("layer", "other"))
    (folder / "b.py").write_text(NET)
    assert proposed(folder).model_file == "b.py"
    (folder / "c.py").write_text(NET)
    finding = proposed(folder).findings[0]
    assert finding.code == "more-model-files"
    assert re.findall(r"\w+\.py", finding.message) == ["b.py", "c.py"]  # taken, then left out


def test_weights_that_were_not_taken_are_named(folder, saved):
    put(folder, saved, "pictures")
    put(folder, saved, "few", "old.pt")
    (finding,) = proposed(folder).findings
    assert finding.code == "more-weights"
    assert re.findall(r"\w+\.pt", finding.message) == ["model.pt", "old.pt"]  # taken, then left out
    assert proposed(folder, weights="model.pt").findings == ()


def test_answers_come_before_what_is_found(folder, saved):
    put(folder, saved, "few", "a.pt")
    put(folder, saved, "pictures", "b.pt")
    (folder / "mine.py").write_text("def handle(data, context): ...\n")
    (folder / "l.txt").write_text("a\nb\n")
    answers = {"name": "n", "version": "2", "weights": "b.pt", "labels": "l.txt", "handler": "image_classifier"}
    proposal = proposed(folder, target=Target.MARPACK, **answers)
    assert {key: getattr(proposal, key) for key in answers} == answers
    assert proposal.target is Target.MARPACK


def test_a_template_asked_for_brings_its_handler_and_uses_the_weights_it_can(folder, saved):
    put(folder, saved, "numbers")
    (folder / "mine.py").write_text("def handle(data, context): ...\n")
    proposal = proposed(folder, template="function")
    assert (proposal.handler, proposal.weights) == ("handler.py:predict", "model.pt")
    toy = proposed(folder, template="onnx")
    assert (toy.weights, toy.kind) == ("model.onnx", None)


def test_an_authors_labels_stay_where_there_are_no_weights_yet(folder):
    folder.mkdir()
    (folder / "labels.txt").write_text("a\nb\n")
    proposal = proposed(folder)
    assert proposal.labels == "toy-labels.txt"
    assert "labels.txt" not in proposal.brought


@pytest.mark.parametrize(
    ("weights", "place", "name"),
    [
        ("resnet50.pt", "x", "resnet50"),
        ("model.pt", "Pets & more", "Pets-more"),
        ("best.pt", "été", "t"),
        ("state_dict.pt", "日本", "model"),
        ("_v1!.pt", "x", "v1"),
    ],
)
def test_names_are_made_of_what_is_there(tmp_path, saved, weights, place, name):
    put(tmp_path / place, saved, "few", weights)
    assert proposed(tmp_path / place).name == name


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ({"name": "a b"}, "'a b'"),
        ({"template": "resnet"}, "'resnet'"),
        ({"weights": "none.pt"}, "exist"),
        ({"weights": "labels.txt"}, "labels.txt"),
        ({"labels": "none.txt"}, "exist"),
        ({"handler": "image_clasifier"}, "image_clasifier"),
        ({"handler": "none.py"}, "none.py"),
        ({"template": "onnx", "weights": "model.pt"}, "ONNX"),
    ],
)
def test_impossible_answers_are_refused(folder, saved, answers, word):
    put(folder, saved, "pictures")
    (folder / "labels.txt").write_text("a\n")
    with pytest.raises(UsageError, match=word):
        proposed(folder, **answers)


def test_labels_that_cannot_be_read_are_told_with_their_line(folder):
    folder.mkdir()
    (folder / "odd.txt").write_text("a\n\nb\n")
    with pytest.raises(ProjectError, match="label of 1"):
        proposed(folder, labels="odd.txt")
