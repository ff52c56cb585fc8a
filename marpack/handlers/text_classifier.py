"""TextClassifier: text → the probability of every label (contract §7); one class, as the server wants of a handler."""

# ruff: noqa: SLF001 - the steps that authors override begin with an underscore on the server

from typing import Any

import torch

from marpack.handlers import explanations, text_pipeline, vocabulary
from marpack.handlers.observed import explained_output, note_nonfinite
from marpack.handlers.protocol import Rows
from marpack.handlers.softmax import softmax
from marpack.handlers.target import better
from marpack.handlers.text import TextHandler
from marpack.handlers.texts import explained, note_batch, note_no_words, offsets_of, text_of
from marpack.torchserve.labels import named
from marpack.torchserve.targets import Difference

# Tensor of n-gram numbers [T], and the tokens they come from: one text's, or a list per text
Prepared = tuple[torch.Tensor, Any]


class TextClassifier(TextHandler):
    """Answers with `{label: probability}` over all classes of one text; of a whole batch under target marpack."""

    _marpack_options = ("ngrams",)
    ngrams = 2

    def preprocess(self, data: Rows) -> Prepared:
        """Clean, split and look up the text: markup, case, contractions, accents, punctuation, tokens, n-grams."""
        batched = len(data) > 1 and better(self, Difference.TEXT_BATCHES)
        texts = [_prepared(self, row) for row in (data if batched else [data[0]])]
        numbers = torch.as_tensor([number for each, _ in texts for number in each], device=self.device)
        if len(data) > 1 and not batched:
            note_batch(len(data))
        return numbers, [tokens for _, tokens in texts] if batched else texts[0][1]

    def inference(self, data: Prepared, *_: Any, **__: Any) -> Any:  # Any: as BaseHandler
        """Call the model as `model(text, offsets)`."""
        numbers, tokens = data
        batched = better(self, Difference.TEXT_BATCHES)
        offsets = torch.as_tensor(offsets_of(tokens, self.ngrams) if batched else [0], device=self.device)
        return super().inference(numbers, offsets)

    def postprocess(self, data: torch.Tensor) -> list[dict[str, Any]]:  # Any: probabilities
        """Turn logits [N, K] into one `{label: probability}` per text, over all classes."""
        note_nonfinite(data)
        with explained_output("logits [N, K]", data):
            probabilities = softmax(data).tolist()
        return named(probabilities, self.mapping)

    def get_insights(self, text_preprocess: Prepared, _: Any, target: Any = 0) -> list[dict[str, Any]]:  # Any: Captum's
        """Return `importances` of the text's n-grams for the class `target`, and the `words` they are made of."""
        numbers, tokens = text_preprocess
        reference = explanations.captum_attr().TokenReferenceBase()
        attributions = self.lig.attribute(
            numbers,
            reference.generate_reference(numbers.shape[0], device=self.device).squeeze(0),
            additional_forward_args=torch.tensor([0]).to(self.device),
            return_convergence_delta=False,
            target=target,
        )
        return [
            {"importances": self.summarize_attributions(attributions).tolist(), "words": self.get_word_token(tokens)}
        ]


def _prepared(handler: TextClassifier, row: dict[str, Any]) -> tuple[list[int], Any]:  # Any: the tokenizer's output
    with explained(row):
        raw = text_of(row)
        text = handler._remove_html_tags(raw).lower()
    text = handler._remove_accented_characters(handler._expand_contractions(text))
    tokens = handler._tokenize(handler._remove_punctuation(text))
    if isinstance(tokens, list) and not tokens:
        note_no_words(raw)
    return vocabulary.numbers_of(handler.source_vocab, text_pipeline.ngrams_iterator(tokens, handler.ngrams)), tokens
