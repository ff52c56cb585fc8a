"""Without pyarrow or Ray, an error names the extra to install; an error within these packages is passed on."""

import importlib
import sys

import pytest

from marpack.errors import MissingExtraError
from marpack.version import install_hint

ROOMS = [("pyarrow", "marpack.scoring", "score"), ("ray", "marpack.scoring.on_ray", "ray")]


@pytest.mark.parametrize(("package", "room", "extra"), ROOMS)
def test_a_missing_package_is_named_with_its_extra(package, room, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, room, raising=False)
    with pytest.raises(MissingExtraError, match=f" {package}") as caught:
        importlib.import_module(room)
    assert install_hint(extra) in str(caught.value.hint)


@pytest.mark.parametrize(("package", "room", "extra"), ROOMS)
def test_a_package_that_cannot_import_something_itself_raises_that(package, room, extra, tmp_path, monkeypatch):
    (tmp_path / f"{package}.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (package, room):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        importlib.import_module(room)
