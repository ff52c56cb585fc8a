"""The project that is proposed for the files of a folder, for an author's handler, and for the author's answers."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from project.conftest import write

from marpack.errors import ProjectError, UsageError
from marpack.findings import Severity
from marpack.project.scaffold.folder_scan import FolderScan, LabelsFile, Weights, scan_folder
from marpack.project.scaffold.proposal import (
    Answers,
    Proposal,
    assemble,
    choose_samples,
    choose_template,
    propose,
)
from marpack.project.scaffold.proposal import TemplateChoice as Choice
from marpack.project.scaffold.template import load_template, templates
from marpack.project.schema import Expectation
from marpack.protocol.targets import Target
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import Port, ScriptMethod, StoredTensor, Tensor, WeightsSummary

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


def proposed(folder: Path, files: dict[str, str | bytes] | None = None, **answers: object) -> Proposal:
    folder.mkdir(exist_ok=True)
    write(folder, files or {})
    return propose(folder, scan_folder(folder), Answers(**answers))


def put(folder: Path, saved: dict[str, Path], name: str, called: str = "model.pt") -> None:
    folder.mkdir(exist_ok=True)
    shutil.copy(saved[name], folder / called)


Shape = tuple[int | str, ...]
CONV, GRAY, LINEAR, BIAS = (2, 3, 5, 5), (2, 1, 5, 5), (7, 13), (7,)
BARE, WORDS = FolderScan(), FolderScan(vocabulary="source_vocab.pt")
SCRIPT, STATE, ONNX = WeightsFormat.TORCHSCRIPT, WeightsFormat.STATE_DICT, WeightsFormat.ONNX


def weights(
    kind: WeightsFormat = SCRIPT,
    *tensors: Sequence[int],
    inputs: Sequence[Shape | None] = (),
    outputs: Sequence[Shape | None] = (),
    **methods: str,
) -> Weights:
    contents = WeightsSummary(
        kind=kind,
        tensors=tuple(StoredTensor(tensor=Tensor(name="t", dtype="float32", shape=tuple(shape))) for shape in tensors),
        methods=tuple(ScriptMethod(name, signature) for name, signature in methods.items()),
        inputs=tuple(Port(name="x", shape=shape) for shape in inputs),
        outputs=tuple(Port(name="y", shape=shape) for shape in outputs),
    )
    return Weights(name="model.pt", size=1, contents=contents)


def classifier(classes: int, kind: WeightsFormat = SCRIPT) -> Weights:
    return weights(kind, CONV, (classes, 2))


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


@pytest.mark.parametrize(("template", "found"), [(None, ["demo-project"]), ("custom", [])])
def test_an_empty_folder_gets_a_demo_which_is_said_unless_a_template_was_named(tmp_path, template, found):
    proposal = propose(tmp_path, FolderScan(), Answers(template=template))
    assert [finding.code for finding in proposal.findings] == found


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
    parts = {"mine.py": "def predict(data, context): ...\n", "labels.txt": "cat\ndog\n", "a.jpg": ""}
    proposal = proposed(folder, {**parts, "config.yaml": "batchSize: 2\n", "requirements.txt": "pillow\n"})
    assert (proposal.handler, proposal.labels) == ("mine.py:predict", "labels.txt")
    assert (proposal.config_file, proposal.requirements) == ("config.yaml", "requirements.txt")
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
    texts = {name: "".join(f"{n}\n" for n in range(count)) for name, count in files.items()}
    assert proposed(folder, texts).labels == labels


@pytest.mark.parametrize(("called", "weights"), [("model.safetensors", "model.pt"), ("w/own.safetensors", "w/own.pt")])
def test_safetensors_are_converted_for_the_server_where_their_class_is(folder, saved, called, weights):
    (folder / "w").mkdir(parents=True)
    put(folder, saved, "safetensors", called)
    proposal = proposed(folder, {"net.py": NET})
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
    proposal = proposed(folder, {"net.py": NET}, target=Target.MARPACK)
    assert (proposal.weights, proposal.converts) == ("model.safetensors", None)
    proposal = proposed(folder, {"handler.py": OWN.format("pass")})
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
    proposal = proposed(folder, {"net.py": NET})
    assert (proposal.weights, proposal.model_file, proposal.target, proposal.findings) == ("w.pth", "net.py", None, ())


def test_of_several_model_files_the_one_whose_layers_the_weights_are_is_taken(folder, saved):
    put(folder, saved, "safetensors", "m.safetensors")
    assert proposed(folder, {"a.py": NET.replace("layer", "other"), "b.py": NET}).model_file == "b.py"
    finding = proposed(folder, {"c.py": NET}).findings[0]
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
    parts = {"mine.py": "def handle(data, context): ...\n", "l.txt": "a\nb\n"}
    answers = {"name": "n", "version": "2", "weights": "b.pt", "labels": "l.txt", "handler": "image_classifier"}
    proposal = proposed(folder, parts, target=Target.MARPACK, **answers)
    assert {key: getattr(proposal, key) for key in answers} == answers
    assert proposal.target is Target.MARPACK


def test_a_template_asked_for_brings_its_handler_and_uses_the_weights_it_can(folder, saved):
    put(folder, saved, "numbers")
    proposal = proposed(folder, {"mine.py": "def handle(data, context): ...\n"}, template="function")
    assert (proposal.handler, proposal.weights) == ("handler.py:predict", "model.pt")
    toy = proposed(folder, template="onnx")
    assert (toy.weights, toy.kind) == ("model.onnx", None)


def test_an_authors_labels_stay_where_there_are_no_weights_yet(folder):
    proposal = proposed(folder, {"labels.txt": "a\nb\n"})
    assert proposal.labels == "toy-labels.txt"
    assert "labels.txt" not in proposal.brought


@pytest.mark.parametrize(
    ("weights", "place", "name"),
    [("_v1!.pt", "x", "v1"), ("model.pt", "Pets & more", "Pets-more"), ("state_dict.pt", "日本", "model")],
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
    with pytest.raises(UsageError, match=word):
        proposed(folder, {"labels.txt": "a\n"}, **answers)


def test_labels_that_cannot_be_read_are_told_with_their_line(folder):
    with pytest.raises(ProjectError, match="label of 1"):
        proposed(folder, {"odd.txt": "a\n\nb\n"}, labels="odd.txt")


OWN = """
class Handler:
    def initialize(self, context):
        self.here = context.system_properties["model_dir"]
        {0}

    def handle(self, data, context):
        return [1 for _ in data]
"""
BASE = "from ts.torch_handler.base_handler import BaseHandler\nclass H(BaseHandler):\n    names = {0!r}\n"
XGBOOST = json.dumps({"learner": {"gradient_booster": {}}, "version": [2, 0, 0]})


def codes(proposal: Proposal) -> list[str]:
    return [finding.code for finding in proposal.findings]


@pytest.mark.parametrize(
    ("name", "content"),
    [("iris.pkl", b"x"), ("iris_model.json", XGBOOST), ("iris.txt", "tree\nversion=v4\n"), ("iris.bst", b"binf")],
)
def test_models_of_other_libraries_are_the_handlers(tmp_path, name, content):
    proposal = proposed(tmp_path, {"handler.py": OWN.format(f'open(f"{{self.here}}/{name}")'), name: content})
    assert (proposal.weights, proposal.kind, proposal.toy, proposal.labels) == (name, None, False, None)
    assert (proposal.brought, proposal.files, proposal.samples.listed) == ({}, (), ())


def test_a_model_that_no_source_names_is_taken_where_it_is_the_only_one(tmp_path):
    proposal = proposed(tmp_path, {"handler.py": OWN.format("pass"), "iris.pkl": b"x"})
    assert (proposal.weights, proposal.labels, proposal.brought, proposal.samples.listed) == ("iris.pkl", None, {}, ())


def test_base_handler_is_given_no_pickle_for_its_weights(tmp_path):
    proposal = proposed(tmp_path, {"handler.py": BASE.format("scaler.pkl"), "scaler.pkl": b"x"})
    assert (proposal.weights, proposal.files) == (None, ("scaler.pkl",))
    assert codes(proposal) == ["no-samples"]


@pytest.mark.parametrize("source", ["def broken(:\n", "class A:\n    def handle(self): ...\nclass B(A): ...\n"])
def test_what_is_called_a_handler_is_one_however_it_reads(tmp_path, source):
    proposal = proposed(tmp_path, {"my_handler.py": source})
    assert (proposal.handler, proposal.toy) == ("my_handler.py", False)


def test_of_several_weights_the_one_that_the_source_names_is_taken(tmp_path, saved):
    shutil.copy(saved["pictures"], tmp_path / "big.pt")
    shutil.copy(saved["few"], tmp_path / "small.pt")
    proposal = proposed(tmp_path, {"handler.py": BASE.format("small.pt")})
    assert proposal.weights == "small.pt"
    finding = proposal.findings[0]
    assert finding.code == "more-weights"
    assert re.findall(r"\w+\.\w+", finding.message) == ["small.pt", "handler.py", "big.pt"]  # taken, named in, left out


def test_weights_that_the_source_names_too_go_along(tmp_path, saved):
    for name in ("decoder.pt", "encoder.pt", "old.pt"):
        shutil.copy(saved["few"], tmp_path / name)
    proposal = proposed(tmp_path, {"handler.py": OWN.format('load("encoder.pt"), load("decoder.pt")')})
    assert (proposal.weights, proposal.files) == ("decoder.pt", ("encoder.pt",))
    assert proposal.findings[0].code == "more-weights"
    assert re.findall(r"\w+\.pt", proposal.findings[0].message) == ["decoder.pt", "old.pt"]  # taken, then left out


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ('open(self.here + "/vocab.txt")', ["vocab.txt"]),
        ('open(f"{self.here}/assets/words.txt")', ["assets/words.txt"]),
        ('os.path.join(self.here, "assets", "words.txt")', ["assets/words.txt"]),
        ('open("words.txt")', [{"from": "assets/words.txt", "to": "words.txt"}]),
        ('from_pretrained(os.path.join(self.here, "assets"))', ["assets/"]),
        ('from_pretrained(Path(self.here) / "assets")', ["assets/"]),
        ('self.row = {}.get("assets")', []),
        ('"""vocab.txt is not read any more"""', []),
        ('open("gone.txt")', []),
    ],
)
def test_files_that_the_source_names_go_along_under_its_names(tmp_path, line, files):
    there = {"handler.py": OWN.format(line), "vocab.txt": "a\nb\n", "assets/words.txt": "c\n"}
    assert list(proposed(tmp_path, there).files) == files


def test_what_an_imported_module_names_goes_along_too(tmp_path):
    helper = "import json\nwords = json.load(open('words.json'))\n"
    there = {"handler.py": f"import reading\n{OWN.format('pass')}", "reading.py": helper, "words.json": "{}"}
    assert proposed(tmp_path, there).files == ("words.json",)


def test_what_the_source_does_not_name_is_left_out_aloud(tmp_path):
    there = {"handler.py": OWN.format("pass"), "old.bst": b"x", "readme.txt": "x", "requirements-dev.txt": "x"}
    there |= {f"{number}.json": "{}" for number in range(5)}
    said = {each.code: each.message for each in proposed(tmp_path, there).findings}
    assert "old.bst" not in said["left-out"]  # the handler's model, as the only one
    assert re.findall(r"\d\.json", said["left-out"]) == [f"{number}.json" for number in range(5)]


@pytest.mark.parametrize(
    ("named", "labels"),
    [("index_to_name.json", "index_to_name.json"), ("classes.json", None), ("x", "classes.json")],
)
def test_labels_that_the_source_reads_by_another_name_stay_what_they_are(tmp_path, named, labels):
    there = {"handler.py": OWN.format(f"open({named!r})"), "classes.json": '["a", "b"]', "iris_model.json": XGBOOST}
    if named == "index_to_name.json":
        there[named] = '{"0": "a"}'
    proposal = proposed(tmp_path, there)
    assert proposal.labels == labels
    assert ("classes.json" in proposal.files) == (named == "classes.json")


INPUTS = ["samples/a.json", "test_data/a.png", "sample1.json"]
OTHERS = ["other/a.json", "a.json", "samples/a.csv", "test_labels.json"]


@pytest.mark.parametrize("name", [*INPUTS, *OTHERS])
def test_samples_are_inputs_in_the_folder(tmp_path, name):
    proposal = proposed(tmp_path, {"handler.py": OWN.format("pass"), name: "{}"})
    assert [sample.input for sample in proposal.samples.listed] == ([name] if name in INPUTS else [])
    assert ("no-samples" in codes(proposal)) == (name in OTHERS)


def test_weights_may_be_of_no_known_format_where_the_handler_loads_them(tmp_path):
    there = {"handler.py": OWN.format("pass"), "a.pkl": b"x", "b.weights": b"x"}
    assert proposed(tmp_path, there, weights="b.weights").weights == "b.weights"


def test_of_several_handlers_the_one_that_is_called_so_is_taken(tmp_path):
    there = {"a.py": OWN.format("pass"), "handler.py": OWN.format("pass"), "b.py": "def predict(data, context): ...\n"}
    proposal = proposed(tmp_path, there)
    assert proposal.handler == "handler.py"
    (finding,) = [each for each in proposal.findings if each.code == "more-handlers"]
    assert re.findall(r"\w+\.py\S*", finding.message) == ["handler.py", "a.py,", "b.py:predict"]  # taken, then left out


FITS: dict[str, tuple[FolderScan, Weights | None, int | None, Choice]] = {
    "no weights": (BARE, None, None, Choice(template="image_classifier")),
    "pictures, as many labels": (
        BARE, weights(SCRIPT, CONV, LINEAR, BIAS), 5, Choice(template="image_classifier", pictures=True, classes=5)
    ),
    "gray pictures": (BARE, weights(SCRIPT, GRAY, LINEAR), None, Choice(template="custom", gray=True, classes=7)),
    "numbers": (BARE, weights(STATE, (20, 4), (3, 20), (3,)), None, Choice(template="custom", classes=3)),
    "a vocabulary and its offsets": (
        WORDS, weights(SCRIPT, (5, 2), forward="(text: Tensor, offsets: Tensor) -> Tensor"), None,
        Choice(template="text_classifier", classes=5),
    ),
    "a vocabulary, but one argument": (
        WORDS, weights(SCRIPT, LINEAR, forward="(x: Tensor) -> Tensor"), None, Choice(template="custom", classes=7)
    ),
    "words and a state_dict": (WORDS, weights(STATE, LINEAR), None, Choice(template="text_classifier", classes=7)),
    "no vocabulary": (
        BARE, weights(SCRIPT, (5, 2), forward="(text: Tensor, offsets: Tensor) -> Tensor"), None,
        Choice(template="custom", classes=5),
    ),
    "boxes": (
        BARE, weights(SCRIPT, CONV, forward="(x: Tensor) -> Tuple[Tensor, List[Dict[str, Tensor]]]"), None,
        Choice(template="object_detector"),
    ),
    "another method's mask": (
        BARE,
        weights(SCRIPT, LINEAR, mask="(x: Tensor) -> Dict[str, Tensor]", forward="(x: Tensor) -> Tensor"), None,
        Choice(template="custom", classes=7),
    ),
    "ONNX with pictures": (
        BARE, weights(ONNX, inputs=[("n", 3, 224, 224)], outputs=[("n", 7), ("n", 9)]), None,
        Choice(template="onnx", pictures=True, classes=7),
    ),
    "ONNX with gray pictures beside numbers": (
        BARE, weights(ONNX, inputs=[None, ("n", 13), ("n", 1, 28, 28)]), None,
        Choice(template="onnx", gray=True),
    ),
    "ONNX with pictures of any channels": (
        BARE, weights(ONNX, LINEAR, CONV, inputs=[("n", "c", 224, 224)], outputs=[("n", "k")]), None,
        Choice(template="onnx", pictures=True, classes=2),
    ),
    "ONNX with numbers": (BARE, weights(ONNX, inputs=[("n", 13)]), 4, Choice(template="onnx", classes=4)),
}  # fmt: skip


@pytest.mark.parametrize(("found", "own", "labels", "expected"), FITS.values(), ids=FITS)
def test_the_template_that_fits(found: FolderScan, own: Weights | None, labels: int | None, expected: Choice) -> None:
    assert choose_template(found, own, labels) == expected


def samples(
    template: str, own: Weights | None = None, found: Sequence[str] = (), **fits: bool
) -> tuple[list[str], dict[str, bytes], bool]:
    there = FolderScan(pictures=tuple(found))
    choice = Choice(template=template, **fits)
    chosen = choose_samples(load_template(template), there, own or weights(), choice, None)
    assert {sample.expect for sample in chosen.listed} == {Expectation(status=200)}
    return [sample.input for sample in chosen.listed], chosen.brought, any(sample.generated for sample in chosen.listed)


def test_pictures_that_are_there_are_samples_five_at_most() -> None:
    names = [f"{number}.png" for number in range(6)]
    assert samples("image_classifier", found=names) == (names[:5], {}, False)
    assert samples("custom", found=names, gray=True) == (names[:5], {}, False)


@pytest.mark.parametrize(
    ("template", "fits", "picture"),
    [
        ("image_classifier", {}, "red.png"),
        ("object_detector", {}, "red.png"),
        ("custom", {"pictures": True}, "red.png"),
        ("custom", {"gray": True}, "gray.png"),
        ("onnx", {"gray": True}, "gray.png"),
    ],
)
def test_a_picture_stands_in_where_the_handler_takes_one(template: str, fits: dict[str, bool], picture: str) -> None:
    content = (templates() / "init" / picture).read_bytes()
    assert samples(template, **fits) == (["samples/stand-in.png"], {"samples/stand-in.png": content}, True)


def test_numbers_or_a_text_stand_in_elsewhere() -> None:
    row, own = [0.5] * 13, weights(SCRIPT, LINEAR)
    for template, pictures, value in (
        ("custom", False, row),
        ("function", True, row),
        ("streaming", False, [row, row]),
    ):
        listed, brought, stand_ins = samples(template, own, ["a.png"], pictures=pictures)
        assert (listed, stand_ins) == (["samples/stand-in.json"], True)
        assert json.loads(brought["samples/stand-in.json"]) == value
    text = load_template("text_classifier")
    assert samples("text_classifier")[1] == {"samples/stand-in.txt": text.read(text.samples[0].input)}


@pytest.mark.parametrize(
    ("own", "width"),
    [
        (weights(ONNX, (2, 9), inputs=[None, (), ("n", 4)]), 4),
        (weights(ONNX, (2, 9), inputs=[("n", "k")]), 9),
        (weights(SCRIPT, (5,), (2, 3, 3, 3), (2, 4097), (2, 0), (2, 4096), (2, 2)), 4096),
        (weights(), 3),
    ],
)
def test_a_row_is_as_wide_as_the_first_layer_that_tells(own: Weights, width: int) -> None:
    _, brought, _ = samples("custom", own)
    assert len(json.loads(brought["samples/stand-in.json"])) == width
