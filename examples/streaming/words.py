"""Whole numbers in English words, and the numbers of these words in the model."""

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = [
    "ten",
    "eleven",
    "twelve",
    *(f"{stem}teen" for stem in ("thir", "four", "fif", "six", "seven", "eigh", "nine")),
]
ONES = DIGITS + TEENS
TENS = [f"{stem}ty" for stem in ("twen", "thir", "for", "fif", "six", "seven", "eigh", "nine")]
NEXT, END = "next", "end"  # requests the next number; ends a number
WORDS = [END, NEXT, *ONES, *TENS, "hundred", "thousand"]


def spell(number: int) -> list[str]:
    """Return a number from 0 to 9999 in words: 342 is three hundred forty two."""
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = number % size
            return [ONES[number // size], name, *(spell(rest) if rest else [])]
    if number < len(ONES):
        return [ONES[number]]
    return [TENS[number // 10 - 2], *([ONES[number % 10]] if number % 10 else [])]


def encode(words: list[str]) -> list[int]:
    """Return the model's numbers of words; raise ValueError for an unknown word."""
    return [WORDS.index(word) for word in words]
