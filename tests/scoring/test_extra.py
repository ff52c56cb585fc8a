"""Without pyarrow, or Ray, a room says which extra brings it; what is wrong inside of them is not taken for that."""

import importlib
import sys
from pathlib import Path

import pytest

import marpack.scoring
from marpack.errors import MissingExtraError


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=" pyarrow") as caught:
        importlib.reload(marpack.scoring)
    assert caught.value.hint == "pip install 'marpack[score]'"


def test_a_pyarrow_that_lacks_something_itself_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyarrow.py").write_text("import numpy_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyarrow")
    with pytest.raises(ModuleNotFoundError, match="numpy_that_is_not_there"):
        importlib.reload(marpack.scoring)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "marpack.scoring.on_ray", raising=False)
    with pytest.raises(MissingExtraError, match=" ray,") as caught:
        importlib.import_module("marpack.scoring.on_ray")
    assert caught.value.hint == "pip install 'marpack[ray]'"


def test_a_ray_that_lacks_something_itself_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray.py").write_text("import pandas_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ray", "marpack.scoring.on_ray"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ModuleNotFoundError, match="pandas_that_is_not_there"):
        importlib.import_module("marpack.scoring.on_ray")
