"""TextHandler and TextClassifier: raw text → tokens and n-grams → numbers of a vocabulary (contract §7)."""

import json
import os
import re
import string
import unicodedata
from abc import ABC
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from marpack.errors import HandlerError
from marpack.protocol.targets import Target, TargetDifference, settings_for
from marpack.torchserve.labels import map_class_to_label
from marpack.worker.handlers import base
from marpack.worker.handlers.base import BaseHandler, HandlerContext, Rows, Value, improves
from marpack.worker.loaders.formats import read_torch_save
from marpack.worker.notes import Explained, note, record_output

PICKLED = "source_vocab.pt"
PLAIN = ("source_vocab.json", "source_vocab.txt")
_UNKNOWN = "<unk>"
_JSON_HINT = 'Write {"<unk>": 0, "word": 1} or ["<unk>", "word"].'
_TEXT_HINT = "Send the text as the body with Content-Type: text/plain, or in a form field named data."

MARKUP = re.compile(r"<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")  # handlers import it as CLEANUP_REGEX
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Marks that are tokens of their own, and marks that only separate.
_SPACED = str.maketrans({"'": " '  "} | {mark: f" {mark} " for mark in ".,()!?"} | {";": " ", ":": " "})
_ENDINGS = {
    "n't": ("not", "are could did does do had has have is may might must need ought should was were would"),
    "'d": ("would", "he I i it she that there they we you"),
    "'ll": ("will", "he how I i it she they we what who you"),
    "'re": ("are", "they we what you"),
    "'s": ("is", "he how it she that there what when where who why"),
    "'ve": ("have", "could I i might must should so they to we what when where who why will would you"),
    "'m": ("am", "I i"),
}
_IRREGULAR = {
    "ain't": "is not",
    "can't": "cannot",
    "'cause": "because",
    "how'd": "how did",
    "how'd'y": "how do you",
    "let's": "let us",
    "ma'am": "madam",
    "o'clock": "of the clock",
    "shan't": "shall not",
    "sha'n't": "shall not",
    "so's": "so as",
    "where'd": "where did",
    "won't": "will not",
    "y'all": "you all",
    "y'all'd": "you all would",
    "y'all're": "you all are",
}
_WITH_HAVE = (
    "can't couldn't hadn't mightn't mustn't needn't oughtn't shan't shouldn't won't wouldn't "
    "he'd I'd i'd it'd she'd that'd there'd they'd we'd you'd y'all'd "
    "he'll I'll i'll it'll she'll they'll we'll what'll who'll you'll y'all"
)
_SHORT = {
    f"{word}{ending}": f"{word} {meaning}" for ending, (meaning, words) in _ENDINGS.items() for word in words.split()
} | _IRREGULAR
_LONG = {f"{word}'ve": f"{_SHORT[word]} have" for word in _WITH_HAVE.split()}
# The server's table stutters here, and models were trained with it.
CONTRACTION_MAP = _SHORT | _LONG | {"he'll've": "he he will have"}
# The first that fits wins, so that "couldn't've" becomes "could not've" as it does on the server.
CONTRACTIONS_PATTERN = re.compile(f"({'|'.join(map(re.escape, CONTRACTION_MAP))})", re.IGNORECASE | re.DOTALL)

# Tensor of n-gram numbers [T], and the tokens they come from: one text's, or a list per text
Prepared = tuple[torch.Tensor, Any]


class VocabularyMissingError(HandlerError):
    """The archive has no vocabulary under a name that the target reads."""

    code = "vocabulary-missing"


class VocabularyError(HandlerError):
    """A vocabulary is not a mapping of token to number."""

    code = "vocabulary"


class Vocabulary(dict[str, int]):
    """Token → number; unknown tokens get the number of `<unk>`, if it has one."""

    def __missing__(self, token: str) -> int:
        if _UNKNOWN in self:
            return self[_UNKNOWN]
        raise KeyError(token)


def load_vocabulary(path: str, target: Target, *, trust: bool = False) -> Any:  # Any: a dict as a rule
    """Read a vocabulary: `.json` and `.txt` under target marpack, otherwise a pickle; `trust` runs its code."""
    plain = target.has(TargetDifference.PLAIN_VOCABULARIES) and Path(path).suffix
    if plain == ".txt":
        tokens = Path(path).read_text(encoding="utf-8").splitlines()
        return Vocabulary({token: number for number, token in enumerate(tokens)})
    if plain != ".json":
        return read_torch_save(path, None, trust=trust)
    where = Path(path).name
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise VocabularyError(f"the vocabulary is not JSON: {error}", where=where, hint=_JSON_HINT) from error
    if isinstance(found, list) and all(isinstance(token, str) for token in found):
        return Vocabulary({token: number for number, token in enumerate(found)})
    if isinstance(found, dict) and all(isinstance(number, int) for number in found.values()):
        return Vocabulary(found)
    raise VocabularyError(
        "the vocabulary is neither an object of token to number nor a list of tokens", where=where, hint=_JSON_HINT
    )


def basic_english(text: str) -> list[str]:
    """Split lower-cased text into words and marks; double quotes are dropped."""
    return text.lower().replace('"', "").replace("<br />", " ").translate(_SPACED).split()


def get_tokenizer(tokenizer: str | None, language: str = "en") -> Callable[[str], list[str]] | None:
    """Return the tokenizer of a name: "basic_english", for English only, or None for splitting at spaces."""
    if tokenizer is None:
        return str.split
    if tokenizer != "basic_english":
        return None
    if language != "en":
        raise ValueError(f"basic_english is for English text (en), not {language}")
    return basic_english


def ngrams_iterator(token_list: list[str], ngrams: int) -> Iterator[str]:
    """Yield every token, then every run of 2, 3 … `ngrams` tokens, joined by spaces."""
    yield from token_list
    for length in range(2, ngrams + 1):
        yield from map(" ".join, zip(*(token_list[begin:] for begin in range(length)), strict=False))


def softmax(logits: torch.Tensor) -> torch.Tensor:
    """Return softmax over the last dimension of [N, K]; over the first of a vector or of three dimensions."""
    return torch.softmax(logits, dim=0 if logits.ndim in {0, 1, 3} else 1)


class TextHandler(BaseHandler, ABC):
    """The base of every text handler: the steps of its pipeline, each for authors to override."""

    _marpack_options: tuple[str, ...] = ()  # keys of the config's `handler` section that set attributes

    def __init__(self) -> None:
        super().__init__()
        self.source_vocab: Any = None  # Any: a mapping of token to number
        self.tokenizer: Any = get_tokenizer("basic_english")  # Any: authors put their own here
        self.input_text: Any = None  # Any: the author's to use
        self.lig: Any = None  # Any: captum has no types
        self.initialized = None  # type: ignore[assignment]  # as on the server, until it is False and then True

    def initialize(self, context: HandlerContext) -> None:
        """Load model and vocabulary; raises VocabularyMissingError, and AttributeError without `model.embedding`."""
        super().initialize(context)
        self.initialized = False
        path = self.manifest["model"].get("sourceVocab") or self.get_source_vocab_path(context)
        settings = settings_for(self)
        self.source_vocab = load_vocabulary(path, settings.target, trust=settings.trust_pickle)
        try:
            embedding = self.model.embedding
        except AttributeError:
            message = "the model has no attribute `embedding`, which the server's text handlers explain"
            hint = "Assign the model's embedding layer to self.embedding."
            note("no-embedding", message, stage="initialize", hint=hint)
            raise
        self.lig = base.Deferred("LayerIntegratedGradients", self.model, embedding)
        for key, value in base.read_options(self, self._marpack_options).items():
            setattr(self, key, value)
        self.initialized = True

    def get_source_vocab_path(self, ctx: HandlerContext) -> str:
        """Return the path of the archive's vocabulary; raises VocabularyMissingError without one."""
        folder = Path(os.fspath(ctx.system_properties["model_dir"]))
        # Those without pickled objects first: their authors packed them to avoid the pickle.
        candidates = (*PLAIN, PICKLED) if improves(self, TargetDifference.PLAIN_VOCABULARIES) else (PICKLED,)
        packed = [name for name in (*PLAIN, PICKLED) if (folder / name).is_file()]
        for name in packed:
            if name in candidates:
                return str(folder / name)
        hint = f'Create it with torch.save({{"word": 1}}, "{PICKLED}"), and add it to files: in marpack.yaml.'
        if packed:
            hint = f'Convert {packed[0]} with torch.save(dict, "{PICKLED}"), or set target: marpack.'
        what = f"the vocabulary is missing: {' or '.join(candidates)} is not in the archive"
        raise VocabularyMissingError(what, hint=hint)

    def _expand_contractions(self, text: str) -> str:
        """Write out every contraction, keep the case of its first letter, and drop the remaining apostrophes."""

        def expand(match: re.Match[str]) -> str:
            found = match.group()
            return found[0] + (CONTRACTION_MAP.get(found) or CONTRACTION_MAP[found.lower()])[1:]

        return CONTRACTIONS_PATTERN.sub(expand, text).replace("'", "")

    def _remove_accented_characters(self, text: str) -> str:
        """Drop accents, and every character that is not ASCII without one."""
        return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")

    def _remove_html_tags(self, text: str) -> str:
        """Drop tags and character references; a tag that spans lines stays."""
        return MARKUP.sub("", text)

    def _remove_puncutation(self, *args: Any, **kwargs: Any) -> Any:  # Any: the misspelt name's callers
        """Remove punctuation, under the name that older handlers know it by."""
        return self._remove_punctuation(*args, **kwargs)

    def _remove_punctuation(self, text: str) -> str:
        return text.translate(_NO_PUNCTUATION)

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


class TextClassifier(TextHandler):
    """Responds with `{label: probability}` over all classes of one text; of a whole batch under target marpack."""

    _marpack_options = ("ngrams",)
    ngrams = 2

    def preprocess(self, data: Rows) -> Prepared:
        """Clean, split and look up the text; raises KeyError for an n-gram that the vocabulary does not have."""
        batched = len(data) > 1 and improves(self, TargetDifference.TEXT_BATCHES)
        numbers: list[int] = []
        texts: list[Value] = []  # of each the tokens
        for row in data if batched else [data[0]]:
            raw: Value = row.get("data") or row.get("body")
            with Explained(partial(_note_no_text, raw)):
                raw = raw.decode("utf-8") if isinstance(raw, (bytes, bytearray)) else raw
                text = self._remove_html_tags(raw).lower()
            text = self._remove_accented_characters(self._expand_contractions(text))
            tokens = self._tokenize(self._remove_punctuation(text))
            if isinstance(tokens, list) and not tokens:  # which fails in the embedding
                message = f"no word is left of the text ({len(raw)} characters) without markup, punctuation and accents"
                note("no-words", message, stage="preprocess", hint="Send English words.")
            for ngram in ngrams_iterator(tokens, self.ngrams):
                try:
                    numbers.append(self.source_vocab[ngram])
                except KeyError:
                    hint = "Save the vocabulary as collections.Counter, which returns 0 for unknown words."
                    note("unknown-word", f"the vocabulary has no {ngram!r}", stage="preprocess", hint=hint)
                    raise
            texts.append(tokens)
        if len(data) > 1 and not batched:
            message = f"the server's text_classifier answers one request per batch, but this batch has {len(data)}"
            note("text-batch", message, stage="preprocess", hint="Set batchSize: 1 or target: marpack.")
        return torch.as_tensor(numbers, device=self.device), texts if batched else texts[0]

    def inference(self, data: Prepared, *_: Value, **__: Value) -> Value:
        """Call the model as `model(text, offsets)`; the offsets are the indices at which the texts' n-grams begin."""
        numbers, tokens = data
        offsets = [0]
        if improves(self, TargetDifference.TEXT_BATCHES) and tokens and isinstance(tokens[0], list):
            counts = [len(list(ngrams_iterator(each, self.ngrams))) for each in tokens]
            offsets = [0, *accumulate(counts[:-1])]
        return super().inference(numbers, torch.as_tensor(offsets, device=self.device))

    def postprocess(self, data: torch.Tensor) -> list[dict[str, Any]]:  # Any: probabilities
        """Turn logits [N, K] into one `{label: probability}` per text, over all classes."""
        base.note_nonfinite(data)
        record_output(data, classes=True)
        with base.explained_output("logits [N, K]", data):
            probabilities = softmax(data).tolist()
        return map_class_to_label(probabilities, self.mapping)

    def get_insights(self, text_preprocess: Prepared, _: Value, target: Value = 0) -> list[dict[str, Value]]:
        """Return `importances` of the text's n-grams for the class `target`, and the `words` they are made of."""
        numbers, tokens = text_preprocess
        reference = base.Deferred("TokenReferenceBase")
        attributions = self.lig.attribute(
            numbers,
            reference.generate_reference(numbers.shape[0], device=self.device).squeeze(0),
            additional_forward_args=torch.tensor([0]).to(self.device),
            return_convergence_delta=False,
            target=target,
        )
        importances = self.summarize_attributions(attributions).tolist()
        return [{"importances": importances, "words": self.get_word_token(tokens)}]


def _note_no_text(value: Value, _: Exception) -> None:
    if isinstance(value, (bytes, bytearray)):
        note("not-utf-8", f"the text ({len(value)} bytes) is not UTF-8", stage="preprocess", hint=_TEXT_HINT)
    elif not isinstance(value, str):
        what = f"a JSON {type(value).__name__}" if value else "empty"
        note("not-text", f"the body is {what}, not text", stage="preprocess", hint=_TEXT_HINT)
