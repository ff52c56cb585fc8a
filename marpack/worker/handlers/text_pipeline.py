"""Raw text → tokens and n-grams as the server's text handlers make them; no torch (contract §7)."""

import re
import string
import unicodedata
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from marpack.protocol.diagnostics import note

MARKUP = re.compile(r"<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")  # handlers import it as CLEANUP_REGEX
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Marks that are tokens of their own, and marks that only separate.
_SPACED = str.maketrans({"'": " '  "} | {mark: f" {mark} " for mark in ".,()!?"} | {";": " ", ":": " "})

Tokenizer = Callable[[str], list[str]]
_HINT = "send the text itself as the body, with Content-Type: text/plain, or in a form field named data"
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


def remove_html_tags(text: str) -> str:
    """Drop tags and character references; a tag that spans lines stays."""
    return MARKUP.sub("", text)


def remove_accented_characters(text: str) -> str:
    """Drop accents, and every character that is not ASCII without one."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def remove_punctuation(text: str) -> str:
    """Drop ASCII punctuation."""
    return text.translate(_NO_PUNCTUATION)


def basic_english(text: str) -> list[str]:
    """Split lower-cased text into words and marks; double quotes are dropped."""
    return text.lower().replace('"', "").replace("<br />", " ").translate(_SPACED).split()


def get_tokenizer(tokenizer: str | None, language: str = "en") -> Tokenizer | None:
    """Return the tokenizer of a name: "basic_english", or None for splitting at spaces; None for any other name.

    Raises ValueError for basic_english in another language.
    """
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


def text_of(row: dict[str, Any]) -> Any:  # Any: text, unless the request held something else
    """Return a row's text, decoded as UTF-8 if it came as bytes."""
    text = row.get("data") or row.get("body")
    return text.decode("utf-8") if isinstance(text, (bytes, bytearray)) else text


def note_no_text(row: dict[str, Any], _: Exception) -> None:
    """Note why a request's text is refused."""
    value = row.get("data") or row.get("body")
    if isinstance(value, (bytes, bytearray)):
        note("not-utf-8", f"the text ({len(value)} bytes) is not UTF-8", stage="preprocess", hint=_HINT)
    elif not isinstance(value, str):
        what = f"a JSON {type(value).__name__}" if value else "empty"
        note("not-text", f"the body is {what}, not text", stage="preprocess", hint=_HINT)


def note_no_words(text: str) -> None:
    """Note that nothing of a text is left without markup and punctuation, which fails in the embedding."""
    message = f"no word is left of the text ({len(text)} characters) without markup, punctuation and foreign letters"
    note("no-words", message, stage="preprocess", hint="send English words")


def note_batch(rows: int) -> None:
    """Note that the server's text classifier answers the first request of a batch only."""
    message = f"the server's text_classifier answers one request a batch, and this batch has {rows}"
    note("text-batch", message, stage="preprocess", hint="set batchSize: 1, or target: marpack")


def offsets_of(tokens: Any, ngrams: int) -> list[int]:  # Any: one text's tokens, or a list of them per text
    """Return where each text's n-grams begin in the batch's one tensor."""
    if not (tokens and isinstance(tokens[0], list)):
        return [0]
    counts = [len(list(ngrams_iterator(each, ngrams))) for each in tokens]
    return [0, *accumulate(counts[:-1])]


def _contractions() -> dict[str, str]:
    short = {
        f"{word}{ending}": f"{word} {meaning}"
        for ending, (meaning, words) in _ENDINGS.items()
        for word in words.split()
    } | _IRREGULAR
    long = {f"{word}'ve": f"{short[word]} have" for word in _WITH_HAVE.split()}
    # The server's table stutters here, and models were trained on what it says.
    return short | long | {"he'll've": "he he will have"}


CONTRACTION_MAP = _contractions()

# The first that fits wins, so that "couldn't've" becomes "could not've" as it does on the server.
CONTRACTIONS_PATTERN = re.compile(f"({'|'.join(map(re.escape, CONTRACTION_MAP))})", re.IGNORECASE | re.DOTALL)


def expand(text: str) -> str:
    """Write out every contraction, keep its first letter as it was written, and drop the apostrophes that are left."""
    return CONTRACTIONS_PATTERN.sub(_expansion, text).replace("'", "")


def _expansion(match: re.Match[str]) -> str:
    found = match.group()
    meaning = CONTRACTION_MAP.get(found) or CONTRACTION_MAP[found.lower()]
    return found[0] + meaning[1:]
