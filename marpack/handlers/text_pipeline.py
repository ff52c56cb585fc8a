"""Raw text → tokens and n-grams, step by step as the server's text handlers do it (contract §7)."""

import re
import string
import unicodedata
from collections.abc import Callable, Iterator

MARKUP = re.compile(r"<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")  # handlers import it as CLEANUP_REGEX
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Marks that are tokens of their own, and marks that only separate.
_SPACED = str.maketrans({"'": " '  "} | {mark: f" {mark} " for mark in ".,()!?"} | {";": " ", ":": " "})

Tokenizer = Callable[[str], list[str]]


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


def ngram_count(tokens: int, ngrams: int) -> int:
    """Return how many n-grams `ngrams_iterator` yields for so many tokens."""
    return tokens + sum(max(tokens - length + 1, 0) for length in range(2, ngrams + 1))
