"""`metadata:` of marpack.yaml: the model's authors, licence, description and homepage, and how they are checked."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from marpack.archive.index import Metadata
from marpack.errors import did_you_mean, shortened

_MAX_LENGTHS = {"license": 256, "authors": 256, "description": 4096, "homepage": 2048}  # characters
_MAX_AUTHORS = 256
_BROKEN = frozenset({"Cc", "Cs"})  # controls, half surrogates
_ADDRESS = re.compile(r"[^\s\x00-\x20\x7f-\x9f<>\"{}|\\^`\[\]]+")  # what may stand in one, each by itself
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What is meant most often, to name near ones; `packaging` knows all of them.
_USUAL = (
    *("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause", "ISC", "MPL-2.0"),
    *("GPL-2.0-only", "GPL-3.0-only", "GPL-3.0-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "AGPL-3.0-only"),
    *("CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0"),
)

Mistake = tuple[str, str, str | None]  # the key, dotted, a sentence, and the way out


class ProjectMetadata(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the author says of the model; it is recorded in the archive."""

    license: Annotated[
        str | None, Meta(description="The model's licence as an SPDX expression: Apache-2.0, LicenseRef-Ours.")
    ] = None
    authors: Annotated[list[str], Meta(description="Who made the model, each as a name or as Name <name@host>.")] = []
    description: Annotated[str | None, Meta(description="What the model does, in a few sentences.")] = None
    homepage: Annotated[str | None, Meta(description="Where to read more of it: an http or https address.")] = None


class Contact(Struct, frozen=True):
    """An author, by the parts of what was written."""

    name: str  # "" where there is only an address
    email: str | None = None


def mistakes(given: ProjectMetadata) -> Iterator[Mistake]:
    """Yield the texts that cannot be recorded, by their keys below `metadata`."""
    texts: dict[str, str | None] = {f"authors[{index}]": author for index, author in enumerate(given.authors)}
    texts |= {"license": given.license, "description": given.description, "homepage": given.homepage}
    for key, text in texts.items():
        if text is not None and (problem := _problem(key, text.strip())):
            yield key, *problem
    if len(given.authors) > _MAX_AUTHORS:
        yield "authors", f"there are {len(given.authors)} authors, and {_MAX_AUTHORS} is the most", "name a team"


def recorded(given: ProjectMetadata) -> Metadata | UnsetType:
    """Return what the archive says of a model, UNSET where nothing is said; there must be no `mistakes`."""
    found = Metadata(
        license=canonical_license(given.license.strip()) if given.license else None,
        authors=tuple(author.strip() for author in given.authors),
        description=given.description and given.description.strip(),
        homepage=given.homepage and given.homepage.strip(),
    )
    return UNSET if found == Metadata() else found


def sound(found: Metadata) -> Metadata:
    """Return what an archive says of a model without what no project can say."""
    given = ProjectMetadata(found.license, list(found.authors), found.description, found.homepage)
    wrong = {key for key, _, _ in mistakes(given)}
    return Metadata(
        license=None if "license" in wrong else found.license,
        authors=() if any(key.startswith("authors") for key in wrong) else found.authors,
        description=None if "description" in wrong else found.description,
        homepage=None if "homepage" in wrong else found.homepage,
    )


def canonical_license(text: str) -> str | None:
    """Return an SPDX expression as SPDX spells it; None for what is none."""
    from packaging import licenses  # noqa: PLC0415 - its table is long, and most projects name no licence

    if len(text) > _MAX_LENGTHS["license"]:
        return None
    try:
        return licenses.canonicalize_license_expression(text)
    except licenses.InvalidLicenseExpression:
        return None


def contact(author: str) -> Contact | None:
    """Return the parts of "Name <name@host>" or "Name"; None for what is neither."""
    name, opened, rest = author.partition("<")
    email, closed, after = rest.partition(">")
    if not opened:
        return Contact(name.strip()) if name.strip() and ">" not in name else None
    user, at, host = email.partition("@")
    fits = closed and not after.strip() and user and at and host and not re.search(r"[\s<@]", user + host)
    return Contact(name.strip(), email) if fits and ">" not in name else None


def is_web_address(text: str) -> bool:
    """Say whether a text is the address of a page: http or https, a host, no password, nothing that must be escaped."""
    if not _ADDRESS.fullmatch(text) or _ESCAPE.search(text) or text.count("#") > 1 or _holds_user(text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _holds_user(address: str) -> bool:
    return "@" in re.split(r"[/?#]", address.partition("://")[2])[0]


def _problem(key: str, text: str) -> tuple[str, str] | None:
    """Return what is wrong with a text, and a hint."""
    maximum = _MAX_LENGTHS[key.partition("[")[0]]
    if not text:
        return f"metadata.{key} is empty", "give it a value, or remove it"
    if len(text) > maximum:
        return f"metadata.{key} has {len(text):,} characters, and {maximum:,} is the most", "shorten it"
    plain = text.translate({ord("\n"): " ", ord("\t"): " "}) if key == "description" else text
    if any(unicodedata.category(letter) in _BROKEN for letter in plain):
        return f"metadata.{key} has a line break or another control character", "write it as plain text"
    shown = f"'{shortened(text, 60)}'"
    if key == "license" and canonical_license(text) is None:
        return f"{shown} is not an SPDX licence expression", did_you_mean(text, _USUAL) or (
            "use an identifier of spdx.org/licenses, join several with AND or OR, or name your own LicenseRef-NAME"
        )
    if key.startswith("authors") and contact(text) is None:
        return f"{shown} is not an author", "write Name, or Name <name@host>"
    if key == "homepage" and _holds_user(text):
        return "the homepage contains a user or a password, which would be public", "remove it from the address"
    if key == "homepage" and not is_web_address(text):
        return f"{shown} is not the address of a page", "write it in full: https://example.com/model"
    return None
