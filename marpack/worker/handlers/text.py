"""TextHandler and TextClassifier, and the vocabularies they look words up in (contract §7)."""

import json
import os
from abc import ABC
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marpack.errors import HandlerError
from marpack.protocol.diagnostics import Explained, note, tell_output
from marpack.protocol.targets import Target, TargetDifference, settings_for
from marpack.worker.handlers import text_pipeline
from marpack.worker.handlers.base import BaseHandler, Deferred, captum_attr
from marpack.worker.handlers.call_diagnostics import explained_output, note_nonfinite
from marpack.worker.handlers.interfaces import HandlerContext, Model, Rows, Value
from marpack.worker.handlers.loading import label_rows
from marpack.worker.handlers.settings import apply, better
from marpack.worker.handlers.text_pipeline import expand, note_batch, note_no_text, note_no_words, offsets_of, text_of
from marpack.worker.loaders.formats import read_torch_save

PICKLED = "source_vocab.pt"
PLAIN = ("source_vocab.json", "source_vocab.txt")
_UNKNOWN = "<unk>"
_JSON_HINT = 'write {"<unk>": 0, "word": 1} or ["<unk>", "word"]'
# ruff: noqa: SLF001 - the steps that authors override begin with an underscore on the server


# Tensor of n-gram numbers [T], and the tokens they come from: one text's, or a list per text
Prepared = tuple[torch.Tensor, Any]


def softmax(logits: torch.Tensor) -> torch.Tensor:
    """Return softmax over the last dimension of [N, K]; over the first of a vector or of three dimensions."""
    return torch.softmax(logits, dim=0 if logits.ndim in {0, 1, 3} else 1)


class VocabularyMissingError(HandlerError):
    """The archive has no vocabulary under a name that the target looks for."""

    code = "vocabulary-missing"


class VocabularyError(HandlerError):
    """A vocabulary is no mapping of token to number."""

    code = "vocabulary"


class Vocabulary(dict[str, int]):
    """Token → number; tokens it has not met get the number of `<unk>`, if it has one."""

    def __missing__(self, token: str) -> int:
        if _UNKNOWN in self:
            return self[_UNKNOWN]
        raise KeyError(token)


def find_vocabulary(model_dir: str, target: Target) -> str:
    """Return the path of the archive's vocabulary; raises VocabularyMissingError."""
    plain = target.has(TargetDifference.PLAIN_VOCABULARIES)
    # Without pickled objects first: they are there because someone wanted to do without.
    candidates = (*PLAIN, PICKLED) if plain else (PICKLED,)
    for name in candidates:
        if (Path(model_dir) / name).is_file():
            return str(Path(model_dir) / name)
    raise VocabularyMissingError(
        f"there is no vocabulary: {' or '.join(candidates)} is not in the archive",
        hint=_missing_hint(model_dir, plain=plain),
    )


def _missing_hint(model_dir: str, *, plain: bool) -> str:
    found = [name for name in PLAIN if (Path(model_dir) / name).is_file()]
    if found and not plain:
        return f'the server reads no {found[0]}: torch.save(dict, "{PICKLED}"), or set target: marpack'
    return f'add it to files: in marpack.yaml; torch.save({{"word": 1}}, "{PICKLED}") makes one'


def load_vocabulary(path: str, target: Target, *, trust: bool = False) -> Any:  # Any: a dict as a rule
    """Read a vocabulary; a pickled one, as the server takes every file for, may hold plain containers only.

    Args:
        path: The file.
        target: Whose behaviour counts: marpack's reads `.json` and `.txt`.
        trust: Run the code that a pickle asks for.

    Raises UnpicklingError for pickles that need code, VocabularyError for JSON that is no mapping.
    """
    plain = target.has(TargetDifference.PLAIN_VOCABULARIES)
    if plain and path.endswith(".json"):
        return _from_json(Path(path))
    if plain and path.endswith(".txt"):
        return Vocabulary(_numbered(Path(path).read_text(encoding="utf-8").splitlines()))
    return read_torch_save(path, None, trust=trust)


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _from_json(path: Path) -> Vocabulary:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise VocabularyError(f"not JSON: {error}", where=path.name, hint=_JSON_HINT) from error
    if isinstance(found, list) and all(isinstance(token, str) for token in found):
        return Vocabulary(_numbered(found))
    if isinstance(found, dict) and all(isinstance(number, int) for number in found.values()):
        return Vocabulary(found)
    raise VocabularyError("neither an object of token to number nor a list of tokens", where=path.name, hint=_JSON_HINT)


def numbers_of(vocabulary: Any, tokens: Iterable[str]) -> list[int]:  # Any: as load
    """Look tokens up; raises KeyError for one the vocabulary does not know, after noting it."""
    numbers = []
    for token in tokens:
        try:
            numbers.append(vocabulary[token])
        except KeyError:
            hint = "save the vocabulary as collections.Counter: it gives 0 for unknown words"
            note("unknown-word", f"the vocabulary has no {token!r}", stage="preprocess", hint=hint)
            raise
    return numbers


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
        self.source_vocab = load_vocabulary(path, settings.target, trust=settings.trust_pickle)
        self.lig = Deferred("LayerIntegratedGradients", self.model, _embedding_of(self.model))
        apply(self, *self._marpack_options)
        self.initialized = True

    def get_source_vocab_path(self, ctx: HandlerContext) -> str:
        """Return where the archive's vocabulary lies; raises VocabularyMissingError if there is none."""
        model_dir = ctx.system_properties["model_dir"]
        return find_vocabulary(os.fspath(model_dir), settings_for(self).target)

    def _expand_contractions(self, text: str) -> str:
        return expand(text)

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


def _embedding_of(model: Model) -> torch.nn.Module:
    try:
        embedding: torch.nn.Module = model.embedding
    except AttributeError:
        message = "the model has no attribute `embedding`, on which the server's text handlers explain"
        note("no-embedding", message, stage="initialize", hint="name the model's embedding layer self.embedding")
        raise
    return embedding


class TextClassifier(TextHandler):
    """Answers with `{label: probability}` over all classes of one text; of a whole batch under target marpack."""

    _marpack_options = ("ngrams",)
    ngrams = 2

    def preprocess(self, data: Rows) -> Prepared:
        """Clean, split and look up the text: markup, case, contractions, accents, punctuation, tokens, n-grams."""
        batched = len(data) > 1 and better(self, TargetDifference.TEXT_BATCHES)
        texts = [_prepared(self, row) for row in (data if batched else [data[0]])]
        numbers = torch.as_tensor([number for each, _ in texts for number in each], device=self.device)
        if len(data) > 1 and not batched:
            note_batch(len(data))
        return numbers, [tokens for _, tokens in texts] if batched else texts[0][1]

    def inference(self, data: Prepared, *_: Value, **__: Value) -> Value:
        """Call the model as `model(text, offsets)`."""
        numbers, tokens = data
        batched = better(self, TargetDifference.TEXT_BATCHES)
        offsets = torch.as_tensor(offsets_of(tokens, self.ngrams) if batched else [0], device=self.device)
        return super().inference(numbers, offsets)

    def postprocess(self, data: torch.Tensor) -> list[dict[str, Any]]:  # Any: probabilities
        """Turn logits [N, K] into one `{label: probability}` per text, over all classes."""
        note_nonfinite(data)
        tell_output(data, classes=True)
        with explained_output("logits [N, K]", data):
            probabilities = softmax(data).tolist()
        return label_rows(probabilities, self.mapping)

    def get_insights(self, text_preprocess: Prepared, _: Value, target: Value = 0) -> list[dict[str, Value]]:
        """Return `importances` of the text's n-grams for the class `target`, and the `words` they are made of."""
        numbers, tokens = text_preprocess
        reference = captum_attr().TokenReferenceBase()
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


def _prepared(handler: TextClassifier, row: dict[str, Any]) -> tuple[list[int], Value]:
    with Explained(partial(note_no_text, row)):
        raw = text_of(row)
        text = handler._remove_html_tags(raw).lower()
    text = handler._remove_accented_characters(handler._expand_contractions(text))
    tokens = handler._tokenize(handler._remove_punctuation(text))
    if isinstance(tokens, list) and not tokens:
        note_no_words(raw)
    return numbers_of(handler.source_vocab, text_pipeline.ngrams_iterator(tokens, handler.ngrams)), tokens
