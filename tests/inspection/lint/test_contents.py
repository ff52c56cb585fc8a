"""Imports, requirements, weights, labels and model configs."""

import pytest
from inspection.lint.case import told
from inspection.lint.content_cases import CASES, CLASSIFIER, FIVE, TOPK, configured, imports, labelled, required


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_finds_exactly(case):
    assert told(case.findings()) == sorted(case.expected)


SAID = [
    (labelled("one-gap", '{"0": "a", "2": "c"}'), "class 1 has no label"),
    (labelled("gaps", '{"0": "a", "4": "c"}'), "class 1 and 2 more classes have no label"),
    (labelled("no-index", '{"a": "x", "1": "y"}'), "'a' is not a class index"),
    (labelled("no-indices", '{"a": "x", "1": "y", "b": "z"}'), "'a' is not a class index, nor are 1 more"),
    (labelled("inverted", '{"cat": "0", "dog": 1}'), "it maps labels to indices; the server wants indices to labels"),
    (labelled("twins", '{"0": "a", "1": "a", "2": "b"}'), "2 classes are called 'a'"),
    (labelled("twins-twice", '{"0": "a", "1": "a", "2": "a", "3": "b", "4": "b"}'),
     "3 classes are called 'a', and 1 more such labels"),
    (labelled("wrong", '{"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}'), "2 more labels are no strings"),
    (labelled("no-name", '{"object_type_names": ["a", null]}'), "a label is null, not a string"),
    (labelled("nothing", "{}"), "it names no class at all"),
    (labelled("four", FIVE.replace(', "4": "e"', ""), handler=TOPK.replace("topk = 2", "pass")),
     "there are 4 labels, and the image classifier answers with the top 5"),
    (labelled("one", '{"0": "a"}', handler=CLASSIFIER),
     "there is 1 label, and the image classifier answers with the top 5"),
    (labelled("too-large", '{"0": "' + "a" * (16 << 20) + '"}'), "it is larger than 16 MiB"),
    (configured("empty", ""), "it is empty"),
    (configured("list", "- a\n"), "it is a list, not a mapping"),
    (imports("elsewhere", "import net", files={"src/net.py": ""}),
     "'net' is packed as src/net.py, where Python does not look"),
    (imports("two-dots", "from ..net import x"),
     "'..net' is a relative import, and handler.py belongs to no package there"),
    (required("folder", "-e ./lib\n"), "'./lib' is not in the archive"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "sentence"), [pytest.param(*row, id=row[0].name) for row in SAID])
def test_says_what_is_wrong(case, sentence):
    assert sentence in [finding.message for finding in case.findings()]


HINTS = [
    (configured("spelling", "batch_size: 1\n"), "did you mean batchSize?"),
    (configured("torchrun", "torchrun: {nproc_per_node: 2}\n"), "did you mean nproc-per-node?"),
    (imports("name", "from net import Nett", files={"net.py": "Net = 1"}), "did you mean Net?"),
    (imports("module", "import labeling", files={"labelling.py": ""}), "did you mean labelling?"),
    (imports("handler", "from base_handler import BaseHandler"), "write ts.torch_handler.base_handler"),
    (imports("home", "from ts.context import BaseHandler"), "it is in ts.torch_handler.base_handler"),
    (imports("server", "from ts.context import Contex"), "did you mean Context?"),
    (imports("listing", "import cv2"), "add opencv-python to requirements.txt, or pack it"),
]


@pytest.mark.parametrize(("case", "hint"), [pytest.param(*row, id=row[0].name) for row in HINTS])
def test_hints_at_what_was_meant(case, hint):
    assert hint in [finding.hint for finding in case.findings()]


def test_the_first_places_of_many_are_told_each():
    config = configured("twice", "".join(f"k{number}: 1\n" * 2 for number in range(25)))
    assert len([line for line in told(config.findings()) if "config-duplicate-key" in line]) == 20
    text = "{" + ", ".join(f'"{number}": "a{number}", "{number}": "a{number}"' for number in range(15)) + "}"
    assert len([line for line in told(labelled("twice", text).findings()) if "labels-duplicate-key" in line]) == 10
