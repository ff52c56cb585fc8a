import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from marpack.compat import finder
from marpack.compat.table import ENGINES, TABLE


@pytest.fixture(autouse=True)
def _ts() -> Iterator[None]:
    finder.install()
    yield
    finder.uninstall()


def test_classes_are_our_own_objects():
    from marpack.runtime.context import Context

    assert importlib.import_module("ts.context").Context is Context
    assert importlib.import_module("ts.metrics.dimension").Dimension(1, 2).value == 2


def test_importing_names_costs_nothing_until_they_are_used():
    code = (
        "import sys; from marpack.compat import finder; finder.install(); import ts, ts.torch_handler.base_handler; "
        "assert 'torch' not in sys.modules; from ts.torch_handler.base_handler import BaseHandler; "
        "assert 'torch' in sys.modules and BaseHandler.__name__ == 'BaseHandler'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def names() -> list[tuple[str, str]]:
    return [(module, name) for module, exports in TABLE.items() for name in exports]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), names())
def test_every_name_of_the_table_is_there(module: str, name: str):
    if name == "TextIteratorStreamerBatch":
        pytest.importorskip("transformers")
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", ENGINES)
def test_engines_that_marpack_does_not_replace_are_named(module: str):
    with pytest.raises(ModuleNotFoundError, match="needs"):
        importlib.import_module(f"{module}.x" if module.endswith("distributed") else module)


def test_what_torchserve_does_not_have_is_no_module_and_no_attribute():
    with pytest.raises(ModuleNotFoundError, match="has none of that name"):
        importlib.import_module("ts.torch_handler.audio_classifier")
    with pytest.raises(ImportError):
        exec("from ts.context import Kontext")


def test_uninstalling_leaves_no_trace():
    importlib.import_module("ts.context")
    finder.uninstall()
    assert not [name for name in sys.modules if name == "ts" or name.startswith("ts.")]
    assert not [item for item in sys.meta_path if isinstance(item, finder.TsFinder)]
