"""marpack.yaml as types: its keys, the checks that it names, and the mistakes in expectations and metadata."""

import math
import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field
from msgspec.structs import asdict

from marpack.archive.index import Metadata
from marpack.errors import ExitCode, did_you_mean, shortened
from marpack.findings import Severity
from marpack.json_text import is_number
from marpack.protocol.targets import Target

FILE_NAME = "marpack.yaml"
LOCK_NAME = "vendor.lock"

GENERATED_MARK = "^sha256:[0-9a-f]{64}$"
_GeneratedMark = Annotated[str, Meta(pattern=GENERATED_MARK)]
_FilePath = Annotated[str, Meta(description="A path, relative to the folder of marpack.yaml.")]
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
RANGE = frozenset({"min", "max", "approx", "tolerance"})  # keys of a mapping in place of a number
Mistake = tuple[str, str]  # the key, dotted, and a sentence


class Check(Struct, frozen=True):
    """One check; `RUNS` in `marpack/gate/check.py` names its function."""

    name: str
    title: str
    needs: tuple[str, ...] = ()  # checks that must not have failed
    exit_code: ExitCode = ExitCode.SHORT  # of the command, if this is the first to fail
    optional: bool = False  # runs only if an option requires it

    @property
    def loads(self) -> bool:
        """Whether it needs the loaded model."""
        return "loads" in (self.name, *self.needs)


_ARCHIVE = ExitCode.ARCHIVE
_SOUND = ("safe-to-open", "digests", "manifest")
_TRUSTED = (*_SOUND, "preflight", "pickles", "requirements")
_LOADED = (*_TRUSTED, "loads")

PROOF = "proved"  # no archive is ready to deploy without it
SAFETY = "pickles"  # the check that --require-safe makes stricter
HERMETIC = "hermetic"  # the check that `--hermetic` adds
ALIKE = "alike"  # the check that `--against` adds
_PROVED = (*_LOADED, PROOF)
CHECKS = (
    Check("safe-to-open", "the server can read it, and reading it is safe", exit_code=_ARCHIVE),
    Check("digests", "every byte matches its recorded digest", _SOUND[:1], exit_code=_ARCHIVE),
    Check("manifest", "all files that the manifest names exist", _SOUND[:2], exit_code=_ARCHIVE),
    Check("preflight", "handler, model file, config, labels and weights fit together", _SOUND),
    Check(SAFETY, "nothing in the weights can run code", _SOUND),
    Check("requirements", "its requirements are met here", _SOUND),
    Check("loads", "the handler loads and initializes", _TRUSTED, exit_code=ExitCode.HANDLER),
    Check("samples", "every sample gets the expected response", _LOADED),
    Check("batch-contract", "a batch gets the responses of its single requests", _LOADED),
    Check("body-forms", "the same content in several forms gets the same response", _LOADED),
    Check("repeatable", "responses depend on neither order nor history", _LOADED),
    Check("labels", "the labels in responses are the archive's", _LOADED),
    Check("compiled", "the compiled model agrees with the eager one", _LOADED),
    Check("memory", "memory does not grow with the requests", _LOADED),
    Check("model-folder", "nothing is written into the model folder", _LOADED),
    Check(PROOF, "requests get the expected status, at least one a 2xx, also in a batch", _LOADED),
    Check(HERMETIC, "it needs nothing but its archive and its packages", _PROVED, optional=True),
    Check(ALIKE, "responses equal those of the other archive", _PROVED, optional=True),
)


if TYPE_CHECKING:
    Severities = Struct
else:
    Severities = defstruct(
        "Severities",
        (
            *(
                (
                    check.name.replace("-", "_"),
                    Annotated[Severity, Meta(description=f"{check.title[0].upper()}{check.title[1:]}.")],
                    Severity.ERROR,
                )
                for check in CHECKS
            ),
            ("no_slower", Annotated[Severity | None, Meta(description="Ignored: this check was removed.")], None),
        ),
        namespace={
            "__doc__": "One key per check: `error` prevents the deployment, `warning` and `note` are only reported."
        },
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        rename="kebab",
    )


_MAX_LENGTHS = {"license": 256, "authors": 256, "description": 4096, "homepage": 2048}  # characters
_MAX_AUTHORS = 256
_BROKEN = frozenset({"Cc", "Cs"})  # controls, half surrogates
_ADDRESS = re.compile(r"[^\s\x00-\x20\x7f-\x9f<>\"{}|\\^`\[\]]+")  # the characters of one
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[^/?#]*://[^/?#]*@")
_CONTACT = re.compile(r"(?P<name>[^<>]*)(<(?P<email>[^\s<>@]+@[^\s<>@]+)>\s*)?")
# Frequent licenses, for hints; `packaging` knows all of them.
_USUAL = (
    *("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause", "ISC", "MPL-2.0"),
    *("GPL-2.0-only", "GPL-3.0-only", "GPL-3.0-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "AGPL-3.0-only"),
    *("CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0"),
)

MetadataMistake = tuple[str, str, str | None]  # the key, dotted, a sentence, and the way out


class ProjectMetadata(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Facts about the model, recorded in the archive."""

    license: Annotated[str | None, Meta(description="The model's license, an SPDX expression such as Apache-2.0.")] = (
        None
    )
    authors: Annotated[list[str], Meta(description="Authors, each as Name or Name <name@host>.")] = []
    description: Annotated[str | None, Meta(description="What the model does, in a few sentences.")] = None
    homepage: Annotated[str | None, Meta(description="A page about the model: an http or https address.")] = None


class FileMapping(Struct, frozen=True, forbid_unknown_fields=True):
    """One file or folder to pack under another name."""

    source: Annotated[str, Meta(description="A file, folder or glob, relative to the project.")] = field(name="from")
    to: Annotated[str, Meta(description="Its name in the archive; ends with / for a folder.")]


class TextExpectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions on the body of a response, read as UTF-8 text."""

    contains: Annotated[str | list[str] | None, Meta(description="Text that must be in the body.")] = None
    regex: Annotated[str | None, Meta(description="A Python regular expression that must match somewhere.")] = None


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The expected response to a sample; `marpack check` compares with it."""

    status: Annotated[int | None, Meta(description="The HTTP status, from 100 to 599.")] = None
    body: Annotated[str | None, Meta(description="The exact body, as text.")] = None
    json: Annotated[
        Any, Meta(description="A part of the JSON body; a number may be {min, max} or {approx, tolerance}.")
    ] = UNSET
    text: Annotated[str | TextExpectation | None, Meta(description="Text that the body contains.")] = None
    shape: Annotated[list[int] | None, Meta(description="The shape of the nested lists in a JSON body.")] = None


class SampleSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One recorded input, packed under MAR-INF/samples/, and the expected response."""

    input: Annotated[str, Meta(description="The file whose bytes are the request's body.")]
    expect: Annotated[Expectation | None, Meta(description="The expected response.")] = None
    generated: Annotated[
        _GeneratedMark | None,
        Meta(
            description="SHA-256 of a file that `marpack init` generated. Such a sample proves nothing. The mark ends"
            " when the file changes. Delete the key to confirm that the sample is a real input."
        ),
    ] = None


class VendorPlatform(StrEnum):
    """The platform of vendored native code."""

    LINUX_X86_64 = "linux_x86_64"
    LINUX_AARCH64 = "linux_aarch64"
    ANY = "any"


class VendorSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The server for which the requirements are packed."""

    python: Annotated[str, Meta(description="The server's Python version; stock images have 3.9.")] = "3.9"
    platform: Annotated[
        VendorPlatform, Meta(description="Platform of native code; with any, only wheels without native code.")
    ] = VendorPlatform.LINUX_X86_64
    installed: Annotated[
        list[str], Meta(description="NAME==VERSION of packages that differ from a stock image's.")
    ] = []


class Allowance(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Resources that `marpack check --hermetic` allows in addition to the archive; `*` matches any text."""

    read: Annotated[list[str], Meta(description="Files and folders that it may read, as absolute paths or ~/….")] = []
    write: Annotated[list[str], Meta(description="Files and folders that it may write.")] = []
    connect: Annotated[list[str], Meta(description="Hosts to connect to, as HOST or HOST:PORT, or socket paths.")] = []
    run: Annotated[list[str], Meta(description="Names of programs; `fork` is a copy of the worker.")] = []
    load: Annotated[list[str], Meta(description="Names of libraries that ctypes loads.")] = []
    listen: Annotated[
        list[str], Meta(description="Addresses to listen on, as HOST or HOST:PORT, or socket paths.")
    ] = []


class ProjectFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of marpack.yaml."""

    name: Annotated[
        str,
        Meta(description="The model's name; the archive is <name>.mar.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-.]*$"),
    ]
    version: Annotated[
        str,
        Meta(description="The model's version, as text.", extra_json_schema={"type": ["string", "number"]}),
    ]
    handler: Annotated[str, Meta(description="A built-in such as image_classifier, file.py or file.py:function.")]
    weights: Annotated[
        str | None, Meta(description="The weights file: .pt, .pth, .safetensors, .onnx, .pt2 or .so.")
    ] = None
    model_file: Annotated[str | None, Meta(description="For a state_dict: the Python file with the model's class.")] = (
        None
    )
    labels: Annotated[
        str | None, Meta(description="Labels (.json, .yaml, .txt or .csv), packed as index_to_name.json.")
    ] = None
    requirements: Annotated[str | None, Meta(description="The requirements file to pack.")] = None
    vendor: Annotated[VendorSpec | None, Meta(description="Pack the requirements (marpack build --vendor).")] = None
    target: Annotated[Target, Meta(description="The server whose behavior run and check have.")] = Target.TORCHSERVE
    metrics_config: Annotated[
        str | None, Meta(description="The server's metrics_config, a YAML file for run and check; not packed.")
    ] = None
    files: Annotated[
        list[_FilePath | FileMapping], Meta(description="More files, folders and globs; folders keep their structure.")
    ] = []
    config: Annotated[
        dict[str, Any] | str | None, Meta(description="The model config, or the path of its YAML file.")
    ] = None
    metadata: Annotated[
        ProjectMetadata, Meta(description="License, authors, description and homepage, recorded in the archive.")
    ] = ProjectMetadata()
    samples: Annotated[list[SampleSpec], Meta(description="Inputs with the expected responses.")] = []
    stand_ins: Annotated[
        bool | Literal["auto"],
        Meta(description="Whether `marpack check` generates requests if the project has no samples, to show failures."),
    ] = "auto"
    checks: Annotated[Severities, Meta(description="The severity of each check of `marpack check`.")] = Severities()
    hermetic: Annotated[
        Allowance, Meta(description="Resources that `marpack check --hermetic` allows in addition to the archive.")
    ] = Allowance()


class Project(ProjectFile, frozen=True, kw_only=True):
    """A project: the content of its marpack.yaml, and its folder."""

    folder: Path
    file: str = FILE_NAME  # the path of marpack.yaml, as messages name it
    lines: dict[str, int] = {}  # key → line in the file, for messages

    @property
    def is_vendored(self) -> bool:
        """Whether builds bring the requirements along: the project says so, or has a lock."""
        return self.vendor is not None or (self.folder / LOCK_NAME).exists()

    def place(self, key: str) -> str:
        """Return the place of a key, as `path:line: key`; without a line of its own, a list's item has the list's."""
        line = self.lines.get(key) or self.lines.get(key.partition("[")[0])
        return f"{self.file}:{line}: {key}" if line else f"{self.file}: {key}"


def mistakes(expected: Expectation) -> Iterator[Mistake]:
    """Yield the mistakes in an expectation that no response can meet."""
    if expected.status is not None and not 100 <= expected.status <= 599:
        yield "status", f"{expected.status} is not an HTTP status"
    if isinstance(expected.text, TextExpectation) and expected.text.regex is not None:
        try:
            re.compile(expected.text.regex)
        except re.error as error:
            yield "text.regex", f"the regular expression does not compile: {error}"
    if any(length < 0 for length in expected.shape or ()):
        yield "shape", "a shape holds lengths, which are not negative"
    if expected.json is not UNSET:
        yield from _in_value(expected.json, "json")


def _in_value(value: Any, key: str) -> Iterator[Mistake]:  # Any: JSON
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _in_value(item, f"{key}[{index}]")
    elif isinstance(value, dict) and value and set(value) <= RANGE:
        yield from _in_range(value, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _in_value(item, f"{key}.{name}")


def _in_range(bounds: dict[str, Any], key: str) -> Iterator[Mistake]:  # Any: JSON
    text = next((name for name, bound in bounds.items() if isinstance(bound, str) and _NUMBER.fullmatch(bound)), None)
    if text is not None:
        yield f"{key}.{text}", f"{text} is text; write the number without quotes"
    if not all(map(is_number, bounds.values())):
        return  # an object that happens to have these keys
    unreal = next((name for name, bound in bounds.items() if isinstance(bound, float) and math.isnan(bound)), None)
    if unreal is not None:
        yield f"{key}.{unreal}", "nan cannot be compared with"
    if "tolerance" in bounds and "approx" not in bounds:
        yield f"{key}.tolerance", "tolerance requires approx"
    if bounds.get("tolerance", 0) < 0:
        yield f"{key}.tolerance", "a tolerance is not negative"
    if "min" in bounds and "max" in bounds and bounds["min"] > bounds["max"]:
        yield f"{key}.min", f"no number is at least {bounds['min']} and at most {bounds['max']}"


def metadata_mistakes(given: ProjectMetadata) -> Iterator[MetadataMistake]:
    """Yield the texts that cannot be recorded, by their keys below `metadata`."""
    texts: dict[str, str | None] = {f"authors[{index}]": author for index, author in enumerate(given.authors)}
    texts |= {"license": given.license, "description": given.description, "homepage": given.homepage}
    for key, text in texts.items():
        if text is not None and (problem := _problem(key, text.strip())):
            yield key, *problem
    if len(given.authors) > _MAX_AUTHORS:
        yield "authors", f"there are {len(given.authors)} authors, and {_MAX_AUTHORS} is the most", "Name a team."


def recorded_metadata(given: ProjectMetadata) -> Metadata | UnsetType:
    """Return the metadata for the index, UNSET if it is empty; there must be no `metadata_mistakes`."""
    found = Metadata(
        license=canonical_license(given.license.strip()) if given.license else None,
        authors=tuple(author.strip() for author in given.authors),
        description=given.description and given.description.strip(),
        homepage=given.homepage and given.homepage.strip(),
    )
    return UNSET if found == Metadata() else found


def valid_metadata(found: Metadata) -> Metadata:
    """Return an archive's metadata without values that are not valid in a project."""
    given = ProjectMetadata(found.license, list(found.authors), found.description, found.homepage)
    wrong = {key.partition("[")[0] for key, _, _ in metadata_mistakes(given)}
    return Metadata(**{key: value for key, value in asdict(found).items() if key not in wrong})


def canonical_license(text: str) -> str | None:
    """Return an SPDX expression in the canonical spelling; None for other texts."""
    from packaging import licenses  # noqa: PLC0415 - its table is long, and most projects name no license

    if len(text) > _MAX_LENGTHS["license"]:
        return None
    try:
        return licenses.canonicalize_license_expression(text)
    except licenses.InvalidLicenseExpression:
        return None


def contact(author: str) -> tuple[str, str] | None:
    """Return the name and the email of "Name <name@host>", each "" if it is missing; None for other texts."""
    found = _CONTACT.fullmatch(author)
    name, email = (found["name"].strip(), found["email"] or "") if found else ("", "")
    return (name, email) if name or email else None


def is_web_address(text: str) -> bool:
    """Return whether a text is the address of a page: http or https, a host, no password, no unescaped characters."""
    if not _ADDRESS.fullmatch(text) or _ESCAPE.search(text) or text.count("#") > 1 or _USER.match(text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _problem(key: str, text: str) -> tuple[str, str] | None:
    """Return the problem of a text, and a hint."""
    maximum = _MAX_LENGTHS[key.partition("[")[0]]
    if not text:
        return f"metadata.{key} is empty", "Give it a value, or remove it."
    if len(text) > maximum:
        return f"metadata.{key} has {len(text):,} characters, and {maximum:,} is the most", "Shorten it."
    plain = text.translate({ord("\n"): " ", ord("\t"): " "}) if key == "description" else text
    if any(unicodedata.category(letter) in _BROKEN for letter in plain):
        return f"metadata.{key} has a line break or another control character", "Write it as plain text."
    shown = f"'{shortened(text, 60)}'"
    if key == "license" and canonical_license(text) is None:
        return f"{shown} is not an SPDX license expression", did_you_mean(text, _USUAL) or (
            "Use an identifier of spdx.org/licenses, join several with AND or OR, or name your own LicenseRef-NAME."
        )
    if key.startswith("authors") and contact(text) is None:
        return f"{shown} is not an author", "Write Name, or Name <name@host>."
    if key == "homepage" and _USER.match(text):
        return "the homepage contains a user or a password, which would be public", "Remove it from the address."
    if key == "homepage" and not is_web_address(text):
        return f"{shown} is not the address of a page", "Write it in full: https://example.com/model"
    return None
