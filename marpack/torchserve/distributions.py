"""Which distribution provides which import: by tables of usual packages, and by the installed packages."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct


class _Tables(Struct, frozen=True):
    """What distributions.json holds."""

    providers: dict[str, str]  # import name → distributions, where neither the same nor a spelling of it
    brings: dict[str, str]  # distribution → imports that it always brings along through its own requirements
    namesakes: str  # distributions that are imported by their own names, those that handlers import most often
    homely: str  # what people call their own files, and no distribution they would install is imported by


@cache
def _tables() -> _Tables:
    return msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_Tables)


def canonical(name: str) -> str:
    """Return a distribution's name in the index's own spelling (PEP 503)."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - looking at most archives asks for no name

    return canonicalize_name(name)


def providers(top: str) -> frozenset[str]:
    """Return the distributions that may provide a top-level import, in canonical spelling."""
    return frozenset({canonical(top), *_tables().providers.get(top, "").split()})


def provided(top: str, required: Iterable[str]) -> bool:
    """Say whether one of the required distributions (canonical names) provides, or always brings, an import."""
    names = set(required)
    if names & providers(top) or any(top in _tables().brings.get(name, "").split() for name in names):
        return True
    return any(top in _imports_of(name) for name in names)


@cache
def _imports_of(name: str) -> frozenset[str]:
    """Return the top-level imports of a distribution, where it is installed here."""
    from importlib import metadata  # noqa: PLC0415 - most archives need no more than the tables

    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return frozenset()
    declared = (found.read_text("top_level.txt") or "").split()
    files = (file for file in found.files or () if file.suffix == ".py")
    return frozenset(declared or (file.parts[0].removesuffix(".py") for file in files))


def is_known(top: str) -> bool:
    """Say whether an import is, for all we know, not one of the author's own files."""
    return top in _tables().providers or top in _tables().namesakes.split()


def is_homely(top: str) -> bool:
    """Say whether an import must be one of the author's own files."""
    return top in _tables().homely.split()


def usual_provider(top: str) -> str | None:
    """Return the usual distribution of an import, from the tables alone; None for an import that they do not have.

    Never guess a name: anyone could publish a package under it, and a hint would make users install it.
    """
    return _tables().providers.get(top, canonical(top)).split()[0] if is_known(top) else None


def namesake(top: str, required: Iterable[str]) -> str | None:
    """Return the required distribution that an import may come from, by its name alone: `lru` from `lru-dict`."""
    name = canonical(top)
    return next((each for each in sorted(required) if each.startswith(f"{name}-") or each.endswith(f"-{name}")), None)
