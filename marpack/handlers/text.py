"""TextHandler: text cleaned, split and looked up, with Layer Integrated Gradients for explanations (contract §7)."""

import os
from abc import ABC
from typing import Any

import torch

from marpack.handlers import contractions, explanations, options, text_pipeline, vocabulary
from marpack.handlers.base import BaseHandler
from marpack.handlers.protocol import HandlerContext
from marpack.handlers.softmax import softmax
from marpack.handlers.target import settings_for
from marpack.torchserve.diagnostics import note


class TextHandler(BaseHandler, ABC):
    """The base of every text handler: the steps of its pipeline, each for authors to override."""

    _marpack_options: tuple[str, ...] = ()  # keys of the config's `handler` section that set attributes

    def __init__(self) -> None:
        super().__init__()
        self.source_vocab: Any = None  # Any: whatever maps a token to its number
        self.tokenizer: Any = text_pipeline.get_tokenizer("basic_english")  # Any: authors put their own here
        self.input_text: Any = None  # Any: the author's to use
        self.lig: Any = None  # Any: captum has no types
        self.initialized = None  # type: ignore[assignment]  # as on the server, until it is False and then True

    def initialize(self, context: HandlerContext) -> None:
        """Load model and vocabulary.

        Raises:
            VocabularyMissingError: There is no source_vocab.pt, nor another vocabulary under target marpack.
            AttributeError: The model has no `embedding`, which explanations are made on.

        """
        super().initialize(context)
        self.initialized = False
        named = self.manifest["model"].get("sourceVocab")
        path = named or self.get_source_vocab_path(context)
        settings = settings_for(self)
        self.source_vocab = vocabulary.load(path, settings.target, trust=settings.trust_pickle)
        self.lig = explanations.Deferred("LayerIntegratedGradients", self.model, _embedding_of(self.model))
        options.apply(self, *self._marpack_options)
        self.initialized = True

    def get_source_vocab_path(self, ctx: HandlerContext) -> str:
        """Return where the archive's vocabulary lies; raises VocabularyMissingError if there is none."""
        model_dir = ctx.system_properties["model_dir"]
        return vocabulary.find(os.fspath(model_dir), settings_for(self).target)

    def _expand_contractions(self, text: str) -> str:
        return contractions.expand(text)

    def _remove_accented_characters(self, text: str) -> str:
        return text_pipeline.remove_accented_characters(text)

    def _remove_html_tags(self, text: str) -> str:
        return text_pipeline.remove_html_tags(text)

    def _remove_puncutation(self, *args: Any, **kwargs: Any) -> Any:  # Any: the misspelt name's callers
        """Remove punctuation, under the name that older handlers know it by."""
        return self._remove_punctuation(*args, **kwargs)

    def _remove_punctuation(self, text: str) -> str:
        return text_pipeline.remove_punctuation(text)

    def _tokenize(self, text: str) -> Any:  # Any: what the author's tokenizer returns, tokens as a rule
        return self.tokenizer(text)

    def get_word_token(self, input_tokens: list[str]) -> list[str]:
        """Return the tokens without the marks that byte-pair tokenizers put before words."""
        return [token.replace("\u0120", "") for token in input_tokens]

    def summarize_attributions(self, attributions: torch.Tensor) -> torch.Tensor:
        """Scale attributions [tokens, embedding]: softmax, over the norm of the tokens' sums."""
        attributions = softmax(attributions)
        norm: torch.Tensor = torch.norm(attributions.sum(dim=-1))
        return attributions / norm


def _embedding_of(model: Any) -> Any:  # Any: an nn.Module, an nn.Embedding
    try:
        return model.embedding
    except AttributeError:
        message = "the model has no attribute `embedding`, on which the server's text handlers explain"
        note("no-embedding", message, stage="initialize", hint="name the model's embedding layer self.embedding")
        raise
