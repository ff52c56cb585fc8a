import sys

import pytest
import torch

from marpack.worker.loaders import formats
from marpack.worker.loaders.formats import ModelClassError, ModelFileMissingError


def shaped(**tensors):
    return {name.replace("_", "."): torch.zeros(*shape) for name, shape in tensors.items()}


MODEL = shaped(layer_weight=(2, 3), layer_bias=(2,))


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (shaped(layer_weight=(2, 3)), "1 missing (first: layer.bias)", "pack the model file"),
        ({}, "2 missing (first: layer.weight)", "pack the model file"),
        (
            shaped(layer_weight=(2, 4), layer_bias=(2,)),
            "1 of another shape (layer.weight: model [2, 3], file [2, 4])",
            "pack the model file",
        ),
        (MODEL | shaped(head_bias=(1,)), "1 unknown to the model (first: head.bias)", "pack the model file"),
        ({f"module.{name}": tensor for name, tensor in MODEL.items()}, "2 missing", 'strip "module."'),
        ({f"_orig_mod.{name}": tensor for name, tensor in MODEL.items()}, "2 unknown", 'strip "_orig_mod."'),
        ({"epoch": 3, "state_dict": MODEL}, "2 unknown to the model (first: epoch)", 'checkpoint["state_dict"]'),
        ({"model": MODEL, "optimizer": {}}, "2 missing", 'checkpoint["model"]'),
    ],
)
def test_a_misfit_names_the_first_tensor_and_the_fix(model_dir, notes, given, message, hint):
    with pytest.raises(RuntimeError):
        formats.load_eager(str(model_dir), "doubler.py", lambda: given)
    trouble = notes()["state-dict-misfit"]
    assert message in trouble.message
    assert hint in trouble.hint
    assert trouble.stage == "initialize"


def test_what_is_no_state_dict(model_dir, notes):
    with pytest.raises(TypeError):
        formats.load_eager(str(model_dir), "doubler.py", lambda: [1])
    assert "list" in notes()["not-a-state-dict"].message


def test_without_weights_the_model_stays_as_built(model_dir, notes):
    model = formats.load_eager(str(model_dir), "doubler.py", None)
    assert type(model).__name__ == "Doubler"
    assert "doubler.py" in notes()["no-weights"].message


def test_the_model_file_is_missing(model_dir):
    with pytest.raises(ModelFileMissingError, match=r"nothing\.py") as failure:
        formats.load_eager(str(model_dir), "nothing.py", None)
    assert isinstance(failure.value, RuntimeError)


@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("no_class.py", "from collections import OrderedDict\n", "none"),
        ("two_classes.py", "class B: pass\nclass A: pass\n", "A, B"),
    ],
)
def test_a_model_file_defines_one_class(model_dir, name, code, found):
    (model_dir / name).write_text(code)
    with pytest.raises(ModelClassError, match=rf"\b{found}$") as failure:
        formats.load_eager(str(model_dir), name, None)
    assert isinstance(failure.value, ValueError)
    sys.modules.pop(name.removesuffix(".py"))


def test_a_model_that_wants_arguments(model_dir, notes):
    (model_dir / "wanting.py").write_text("class Net:\n    def __init__(self, classes): pass\n")
    with pytest.raises(TypeError):
        formats.load_eager(str(model_dir), "wanting.py", None)
    assert "parameter" in notes()["model-construct"].hint
    sys.modules.pop("wanting")


def test_an_import_error_in_the_model_file_is_its_own(model_dir):
    (model_dir / "importing.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        formats.load_eager(str(model_dir), "importing.py", None)
