"""Names that a module uses and never defines: found at their first line, and nothing else is."""

import ast
import time
from pathlib import Path

import pytest
from inspection.lint.case import CLASS, FUNCTION, Case, told

from marpack.inspection.lint.imports import check_names
from marpack.inspection.lint.source import Broken, Module, parse, read_scope, walk

ROOT = Path(__file__).parents[3]
FUTURE = "from __future__ import annotations\n"


def found(handler: str, **others: str) -> list[str]:
    files = {"handler.py": handler + FUNCTION} | {f"{name}.py": source for name, source in others.items()}
    return [each for each in told(Case("names", files).findings()) if "undefined-name" in each]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("def text(body):\n    return json.loads(body)\n", "W undefined-name handler.py:2"),
        ("def text(body):\n    return jsn\n\ndef more():\n    return jsn\n", "W undefined-name handler.py:2"),
        ("count = 0\ndef text(body):\n    print(count)\n    count = 1\n", "W undefined-name handler.py:3"),
        ("class Text:\n    size = 1\n    def text(self):\n        return size\n", "W undefined-name handler.py:4"),
        ("def text(body: Missing): ...\n", "W undefined-name handler.py:1"),
        ("def text(body):\n    return f'{body} {absent}'\n", "W undefined-name handler.py:2"),
        ("try:\n    1 / 0\nexcept Exception as error:\n    pass\nprint(error)\n", "W undefined-name handler.py:5"),
        ("def text(body):\n    globals()['late'] = 1\n    return late\n", "N undefined-name handler.py:3"),
        (f"{FUTURE}def text(body: Missing):\n    return json\n", "W undefined-name handler.py:3"),
    ],
)
def test_an_undefined_name_is_found_at_its_first_line(source: str, place: str):
    assert found(source) == [place]


@pytest.mark.parametrize(
    "source",
    [
        "from os.path import *\ndef text(body):\n    return joined(json)\n",
        "try:\n    from fast import *\nexcept ImportError:\n    pass\ndef text(body):\n    return json\n",
        "try:\n    text = unicode\nexcept NameError:\n    text = str\n",
        "def text(body: 'torch.Tensor') -> 'np.ndarray': ...\n",
        f"{FUTURE}def text(body: torch.Tensor, *more: np.ndarray) -> list[np.ndarray]: ...\nsize: torch.Size = 1\n",
        "def text(body):\n    size: torch.Size = len(body)\n    return size\n",
        "def text(body):\n    def inner(rows):\n        return inner(rows[1:])\n    inner(body)\n    del inner\n",
        "def load():\n    global net\n    net = 1\ndef text(body):\n    return net\n",
        "print(__file__, __name__, __spec__, __cached__, __builtins__)\n",
        "class Text:\n    def text(self):\n        return __class__\n",
    ],
)
def test_what_is_defined_is_no_alarm(source: str):
    assert found(source) == []


def test_the_modules_that_the_handler_imports_are_looked_through():
    assert found("import words\n", words="def text(body):\n    return json\n", unread="json\n") == [
        "W undefined-name words.py:2"
    ]


def test_a_hint_says_what_to_import_or_what_was_meant():
    source = CLASS.replace("return [1 for _ in data]", "return [json, toch, handel, contxt_of(data)]")
    findings = Case("hints", {"handler.py": f"import torch\ndef context_of(data): ...\n{source}"}).findings()
    hints = {
        finding.message.split("'")[1]: str(finding.hint) for finding in findings if finding.code == "undefined-name"
    }
    assert "import json" in hints["json"]
    assert "torch" in hints["toch"]
    assert "context_of" in hints["contxt_of"]


def test_published_handlers_raise_no_alarm():
    sources = [path for folder in ("tests/data", "examples") for path in (ROOT / folder).rglob("*.py")]
    trees = [tree for path in sources if not isinstance(tree := parse(path.read_bytes()), Broken)]
    assert len(trees) > 40
    alarms = [finding for tree in trees for finding in check_names([module(tree)])]
    assert alarms == []


def module(tree: ast.Module) -> Module:
    return Module("handler", "handler.py", tree, read_scope(ast.parse("")))


def test_other_rules_find_the_tree_as_it_was():
    tree = parse(FUNCTION.encode())
    before = ast.dump(tree)
    assert list(check_names([module(tree)])) == []
    assert ast.dump(tree) == before
    assert not [node for node in walk(tree) if set(vars(node)) & {"_pyflakes_parent", "_pyflakes_depth"}]


@pytest.mark.parametrize(
    "source",
    [
        "".join(f"a{number}\n" for number in range(9000))
        + f"def f():\n global {', '.join(f'a{n}' for n in range(9000))}\n",
        "".join(f"from a{number} import *\n" for number in range(4000)) + "x\n" * 4000,
        "if a: b\n" + "elif a: b\n" * 1200,
    ],
)
def test_a_hostile_module_costs_little(source: str):
    tree = parse(source.encode())
    start = time.process_time()
    assert isinstance(list(check_names([module(tree)])), list)
    assert time.process_time() - start < 3
