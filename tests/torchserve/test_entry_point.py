from pathlib import Path
from types import ModuleType

import pytest

from marpack.torchserve import entry_point
from marpack.torchserve.entry_point import (
    PT2Backend,
    check_valid_pt2_backend,
    deprecated,
    import_class,
    list_classes_from_module,
)
from marpack.torchserve.response import PredictionException


def test_classes_of_a_module_are_its_own_by_name():
    module = ModuleType("made")
    exec("from pathlib import Path\nclass B(Path): ...\nclass A: ...\ndef function(): ...", vars(module))
    assert [each.__name__ for each in list_classes_from_module(module)] == ["A", "B"]
    assert [each.__name__ for each in list_classes_from_module(module, Path)] == ["B"]


@pytest.mark.parametrize(
    ("name", "prefix"), [("pathlib.Path", None), ("Path", "pathlib"), ("abc.Mapping", "collections")]
)
def test_a_class_is_imported_by_its_dotted_name(name: str, prefix: str | None):
    assert import_class(name, prefix).__name__ == name.rpartition(".")[2]


@pytest.mark.parametrize(
    ("name", "words"), [("", "no name"), ("Path", "names no module"), ("pathlib.Paths", "no class Paths")]
)
def test_a_class_that_cannot_be_imported_is_an_import_error(name: str, words: str):
    with pytest.raises(ImportError, match=words):
        import_class(name)


def test_backends_are_known_by_their_values():
    assert all(check_valid_pt2_backend(backend.value) for backend in PT2Backend)
    assert issubclass(PT2Backend, str)
    for unknown in ("INDUCTOR", "", None, ["inductor"]):
        assert not check_valid_pt2_backend(unknown)  # type: ignore[arg-type]  # configs hold anything


def test_a_prediction_that_fails_has_a_code_and_says_it():
    error = PredictionException("no cat")
    assert (error.message, error.error_code, str(error), error.args) == ("no cat", 500, "no cat : 500", ("no cat",))
    error = PredictionException("no cat", 404)
    assert (error.error_code, str(error), error.args) == (404, "no cat : 404", ("no cat",))


def test_what_is_deprecated_warns_at_every_call_and_answers():
    @deprecated("1.0", replacement="ts.new")
    def old(value: int) -> int:
        return value

    for _ in range(2):
        with pytest.warns(PendingDeprecationWarning, match=r"old is deprecated since 1\.0; use ts\.new") as warned:
            assert old(3) == 3
        assert warned[0].filename == __file__
    with pytest.warns(FutureWarning):
        deprecated("1.0", klass=FutureWarning)(old.__wrapped__)(1)


def test_a_stock_server_has_these_and_not_those():
    flags = {name for name, value in vars(entry_point).items() if value is True}
    assert flags == {"ONNX_AVAILABLE", "PROFILER_AVAILABLE", "PT230_AVAILABLE", "PT2_AVAILABLE"}
    assert not entry_point.IPEX_AVAILABLE
    assert not entry_point.XLA_AVAILABLE
