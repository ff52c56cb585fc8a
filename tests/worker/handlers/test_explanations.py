import builtins
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from marpack.errors import MissingExtraError
from marpack.torchserve.context import RequestProcessor
from marpack.worker.handlers.vision import ImageClassifier

if find_spec("captum") is None:
    pytest.skip("explanations need marpack[explain]", allow_module_level=True)


@pytest.fixture
def ready(make_context, save_averages):
    save_averages(5)
    handler, context = ImageClassifier(), make_context(headers={"explain": "True"})
    handler.initialize(context)
    return handler, context


def picture(target=None):
    row = {"body": torch.ones(3, 2, 2).tolist()}
    return [row if target is None else row | {"target": target}]


def test_captum_is_imported_by_the_first_explanation_only(ready, monkeypatch):
    handler, context = ready
    loaded = [name for name in sys.modules if name.partition(".")[0] == "captum"]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    context.request_processor = [RequestProcessor({})]
    handler.handle(picture(), context)
    assert not any(name.startswith("captum") for name in sys.modules)


@pytest.mark.parametrize(("target", "slope"), [(None, 0), (0, 0), (3, 3)])
def test_integrated_gradients(ready, target, slope):
    """The model is linear, so what each of the 12 numbers adds is its share of the slope."""
    handler, context = ready
    answer = torch.tensor(handler.handle(picture(target), context))
    assert answer.shape == (1, 3, 2, 2)
    torch.testing.assert_close(answer, torch.full((1, 3, 2, 2), slope / 12))


def test_a_target_as_forms_send_it_fails_as_on_the_server_and_authors_set_their_own_attributor(ready):
    handler, context = ready
    with pytest.raises(AssertionError):
        handler.handle(picture(bytearray(b"1")), context)
    handler.ig = SimpleNamespace(attribute=lambda tensor, target, n_steps: tensor * target)
    assert handler.handle(picture(2), context) == [torch.full((3, 2, 2), 2.0).tolist()]


def test_without_captum_the_package_and_the_extra_are_named(ready, monkeypatch):
    handler, context = ready
    original = builtins.__import__

    def without(name, *rest):
        if name.startswith("captum"):
            raise ModuleNotFoundError("No module named 'captum'", name="captum")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match="captum") as failure:
        handler.handle(picture(), context)
    assert ".[explain]" in failure.value.hint
