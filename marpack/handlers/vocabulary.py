"""Vocabularies: token → number, from source_vocab.pt or, under target marpack, from JSON or text (contract §7)."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from marpack.errors import HandlerError
from marpack.loaders import pickles
from marpack.torchserve.diagnostics import note
from marpack.torchserve.targets import Difference, Target

PICKLED = "source_vocab.pt"
PLAIN = ("source_vocab.json", "source_vocab.txt")
_UNKNOWN = "<unk>"


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


def find(model_dir: str, target: Target) -> str:
    """Return the path of the archive's vocabulary; raises VocabularyMissingError."""
    plain = target.has(Difference.PLAIN_VOCABULARIES)
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


def load(path: str, target: Target, *, trust: bool = False) -> Any:  # Any: whatever the file held, a dict as a rule
    """Read a vocabulary; a pickled one, as the server takes every file for, may hold plain containers only.

    Args:
        path: The file.
        target: Whose behaviour counts: marpack's reads `.json` and `.txt`.
        trust: Run the code that a pickle asks for.

    Raises UnpicklingError for pickles that need code, VocabularyError for JSON that is no mapping.
    """
    plain = target.has(Difference.PLAIN_VOCABULARIES)
    if plain and path.endswith(".json"):
        return _from_json(Path(path))
    if plain and path.endswith(".txt"):
        return Vocabulary(_numbered(Path(path).read_text(encoding="utf-8").splitlines()))
    return pickles.read(path, None, trust=trust)


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _from_json(path: Path) -> Vocabulary:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise VocabularyError(f"not JSON: {error}", where=path.name, hint=_json_hint()) from error
    if isinstance(found, list) and all(isinstance(token, str) for token in found):
        return Vocabulary(_numbered(found))
    if isinstance(found, dict) and all(isinstance(number, int) for number in found.values()):
        return Vocabulary(found)
    raise VocabularyError(
        "neither an object of token to number nor a list of tokens", where=path.name, hint=_json_hint()
    )


def _json_hint() -> str:
    return 'write {"<unk>": 0, "word": 1} or ["<unk>", "word"]'


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
