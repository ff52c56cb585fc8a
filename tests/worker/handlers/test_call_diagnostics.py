import pytest
import torch

from marpack.worker.handlers.base import BaseHandler
from marpack.worker.handlers.text import TextClassifier
from marpack.worker.handlers.vision import ImageClassifier, ImageSegmenter, ObjectDetector

TENSOR = torch.zeros(1, 2)


@pytest.mark.parametrize(
    ("handler", "output", "exception", "returned", "wanted"),
    [
        (BaseHandler, {"out": TENSOR}, AttributeError, "a dict of out", "a tensor"),
        (
            BaseHandler,
            (TENSOR, TENSOR),
            AttributeError,
            "a tuple of 2, the first a tensor [1, 2] float32 on cpu",
            "a tensor",
        ),
        (ImageClassifier, (TENSOR,), AttributeError, "a tuple of 1", "logits [N, K]"),
        (ImageClassifier, TENSOR[0], IndexError, "a tensor [2] float32 on cpu", "logits [N, K]"),
        (ImageSegmenter, TENSOR, IndexError, "a tensor [1, 2]", '{"out": logits [N, K, H, W]}'),
        (ObjectDetector, TENSOR, IndexError, "a tensor [1, 2]", "a list of {boxes"),
        (TextClassifier, None, AttributeError, "a NoneType", "logits [N, K]"),
    ],
)
def test_an_output_that_the_handler_cannot_take(notes, handler, output, exception, returned, wanted):
    with pytest.raises(exception):
        handler().postprocess(output)
    trouble = notes()["model-output"]
    assert returned in trouble.message
    assert wanted in trouble.message
    assert trouble.stage == "postprocess"


@pytest.mark.parametrize("output", [TENSOR, TENSOR.int(), [1.0]])
def test_finite_answers_are_passed_over(notes, output):
    if isinstance(output, torch.Tensor):
        assert BaseHandler().postprocess(output) == output.tolist()
    assert not notes()


def test_what_is_no_model(notes):
    handler = BaseHandler()
    with pytest.raises(TypeError):
        handler.inference(TENSOR)
    trouble = notes()["no-model"]
    assert "builtins.NoneType" in trouble.message
    assert "super().initialize(context)" in str(trouble.hint)
    handler.model = 1
    with pytest.raises(TypeError):
        handler.inference(TENSOR)
    assert notes()["no-model"].hint is None


def test_torchscripts_own_trace_is_skipped_for_what_went_wrong(notes):
    handler = BaseHandler()
    handler.model, handler.device = torch.jit.script(torch.nn.Linear(3, 1)), "cpu"
    with pytest.raises(RuntimeError):
        handler.inference(TENSOR)
    message = notes()["model-call"].message
    assert "[1, 2] float32 on cpu: " in message
    assert "cannot be multiplied" in message


def test_a_compiler_that_fails_at_the_first_call(notes):
    def broken(graph, inputs):
        raise ValueError("no kernel for that")

    handler = BaseHandler()
    handler.model, handler.device = torch.compile(torch.nn.Linear(2, 1), backend=broken), "cpu"
    with pytest.raises(Exception, match="no kernel for that"):
        handler.inference(TENSOR)
    trouble = notes()["compile-failed"]
    assert "no kernel for that" in trouble.message
    assert "--no-compile" in trouble.hint
