"""English contractions and what they stand for, as the server's text handlers expand them (contract §7)."""

import re

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
PATTERN = re.compile(f"({'|'.join(map(re.escape, CONTRACTION_MAP))})", re.IGNORECASE | re.DOTALL)


def expand(text: str) -> str:
    """Write out every contraction, keep its first letter as it was written, and drop the apostrophes that are left."""
    return PATTERN.sub(_expansion, text).replace("'", "")


def _expansion(match: re.Match[str]) -> str:
    found = match.group()
    meaning = CONTRACTION_MAP.get(found) or CONTRACTION_MAP[found.lower()]
    return found[0] + meaning[1:]
