"""An author's handler: what its source asks for goes along, what it does not is named, and nothing is made up."""

import json
import re
import shutil
from pathlib import Path

import pytest
from project.conftest import write

from marpack.project.scaffold.folder_scan import scan_folder
from marpack.project.scaffold.proposal import Answers, Proposal, propose

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


def proposed(folder: Path, files: dict[str, str | bytes], **answers: object) -> Proposal:
    write(folder, files)
    return propose(folder, scan_folder(folder), Answers(**answers))


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
