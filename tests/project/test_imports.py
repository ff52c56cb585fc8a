"""Which local files an import needs, without executing one of them."""

from pathlib import Path

import pytest

from marpack.project.members import local_modules

FILES = {
    "handler.py": "",
    "helpers.py": "import deeper\n",
    "deeper.py": "import handler, helpers\n",
    "pkg/__init__.py": "from . import a\nimport outer\n",
    "pkg/a.py": "",
    "pkg/vocab.json": "{}",
    "pkg/sub/b.py": "import helpers",
    "pkg/__pycache__/a.cpython-311.pyc": "",
    "pkg/.hidden": "",
    "pkg/a.pyc": "",
    "spaces/one.py": "",
    "spaces/two.py": "",
    "spaces/inner/__init__.py": "",
    "spaces/inner/x.py": "",
    "data/big.bin": "",
    "json.py": "",
    "broken.py": "def (",
    "raises.py": "raise SystemExit('executed')",
    "src/handler.py": "",
    "src/near.py": "import far, helpers\n",
    "src/helpers.py": "",
    "far.py": "",
    "fast.cpython-311-x86_64-linux-gnu.so": "",
    "fast.py": "",
}

PKG = ["pkg/__init__.py", "pkg/a.py", "pkg/sub/b.py", "pkg/vocab.json"]

CASES = {
    "nothing": ("x = 1", []),
    "a module and its own imports": ("import helpers", ["helpers.py", "deeper.py"]),
    "from a module": ("from deeper import thing", ["deeper.py", "helpers.py"]),
    "from a package": ("from pkg import vocab_loader", [*PKG, "helpers.py", "deeper.py"]),
    "inside a function": ("def f():\n    import raises", ["raises.py"]),
    "for type checkers": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import far", []),
    "a compiled module": ("import fast", ["fast.cpython-311-x86_64-linux-gnu.so"]),
    "several in one line": ("import raises as r, spaces.one", ["raises.py", "spaces/one.py"]),
    "from a plain folder": ("from spaces import one, nothing", ["spaces/one.py"]),
    "a package in a plain folder": ("from spaces.inner.x import y", ["spaces/inner/__init__.py", "spaces/inner/x.py"]),
    "a folder without modules": ("import data", []),
    "the standard library wins": ("import json, os.path", []),
    "what is installed, or nowhere": ("import torch, nowhere.at.all\nfrom ts.context import Context", []),
    "relative, which a handler cannot": ("from . import helpers", []),
    "one that does not parse": ("import broken", ["broken.py"]),
    "itself": ("import handler", []),
}


def lay_out(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES)
def test_finds_what_is_imported(tmp_path: Path, source: str, expected: list[str]) -> None:
    lay_out(tmp_path)
    (tmp_path / "handler.py").write_text(source)
    found = list(local_modules(tmp_path / "handler.py", [tmp_path]))
    assert found == [(name, tmp_path / name) for name in expected]


def test_looks_beside_the_file_first_and_in_the_project_then(tmp_path: Path) -> None:
    lay_out(tmp_path)
    handler = tmp_path / "src" / "handler.py"
    handler.write_text("import near")
    assert dict(local_modules(handler, [handler.parent, tmp_path])) == {
        "near.py": tmp_path / "src/near.py",
        "far.py": tmp_path / "far.py",
        "helpers.py": tmp_path / "src/helpers.py",
    }
