import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from marpack.torchserve import server_modules, ts_modules
from marpack.torchserve.ts_modules import ENGINES, TABLE, incidental
from marpack.worker import ts_names
from marpack.worker.trouble import find_hint


@pytest.fixture(autouse=True)
def _ts() -> Iterator[None]:
    ts_names.install()
    yield
    ts_modules.uninstall()


def test_importing_names_costs_nothing_until_they_are_used():
    code = (
        "import sys; from marpack.worker import ts_names; ts_names.install(); "
        "import ts, ts.torch_handler.base_handler, marpack.worker.stages, marpack.worker.loaders.device; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    exec("from ts.torch_handler.base_handler import BaseHandler", used := {})
    assert used["BaseHandler"].__name__ == "BaseHandler"


def names() -> list[tuple[str, str]]:
    tables = (TABLE, {module: incidental(module) for module in TABLE})
    return [(module, name) for table in tables for module, exports in table.items() for name in exports]


NEEDED = dict.fromkeys(("T", "transforms", "torchvision_version"), "torchvision")
NEEDED |= {"TextIteratorStreamerBatch": "transformers"}


@pytest.mark.parametrize("large", [(), pytest.param(("torchvision", "transformers"), marks=pytest.mark.slow)])
def test_every_name_of_the_tables_can_be_imported_and_is_one_of_torchserves(large: tuple[str, ...]):
    missing = {"torchvision", "transformers"} - {name for name in large if importlib.util.find_spec(name)}
    every = [(module, name) for module, name in names() if NEEDED.get(name) not in missing]
    assert len(every) > 220
    assert [(module, name) for module, name in every if getattr(importlib.import_module(module), name) is None] == []
    for module, name in names():
        assert server_modules.has_module(module)
        assert name in server_modules.names_of(module) or name.startswith("__"), f"{module}: {name}"


def test_modules_are_bound_where_the_servers_worker_has_them_loaded():
    ts = importlib.import_module("ts")
    assert ts.context.Context is importlib.import_module("marpack.torchserve.context").Context
    assert ts.utils.util.json is json
    assert importlib.import_module("ts.metrics.dimension").Dimension(1, 2).value == 2
    with pytest.raises(AttributeError):
        _ = ts.torch_handler
    package = importlib.import_module("ts.torch_handler.image_classifier")
    assert ts.torch_handler.image_classifier is package
    assert ts.torch_handler.base_handler.__name__ == "ts.torch_handler.base_handler"
    with pytest.raises(AttributeError):
        _ = ts.torch_handler.text_handler


@pytest.mark.parametrize("module", ENGINES)
def test_engines_that_marpack_does_not_replace_are_named(module: str):
    with pytest.raises(ModuleNotFoundError, match="needs"):
        importlib.import_module(f"{module}.x" if module.endswith("distributed") else module)


def test_what_torchserve_does_not_have_is_no_module_and_no_attribute():
    assert importlib.util.find_spec("ts.torch_handler.audio_classifier") is None
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("ts.torch_handler.audio_classifier")
    assert type(caught.value) is ModuleNotFoundError
    assert "TorchServe 0.12" in str(find_hint(caught.value, "/m").text)
    with pytest.raises(ts_modules.NotProvidedError, match=r"ts\.model_server\b.*TorchServe 0\.12") as caught:
        importlib.import_module("ts.model_server")
    assert find_hint(caught.value, "/m").text == caught.value.hint
    with pytest.raises(ImportError):
        exec("from ts.context import Kontext")


def test_uninstalling_leaves_no_trace():
    importlib.import_module("ts.context")
    ts_modules.uninstall()
    assert not [name for name in sys.modules if name == "ts" or name.startswith("ts.")]
    assert not [item for item in sys.meta_path if isinstance(item, ts_modules.TsFinder)]
