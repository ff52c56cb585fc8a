"""All static checks in their order, and docs/findings.md as printed from their codes."""

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice

from msgspec import UNSET, UnsetType

from marpack.archive.index import Vendored
from marpack.archive.manifest import Manifest
from marpack.errors import LimitExceededError
from marpack.findings import Finding
from marpack.inspection.lint.classes import Library
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.compiling import CompileCheck
from marpack.inspection.lint.entry_point import decide, find_handler, search_path
from marpack.inspection.lint.files import GAVE_UP, Files, MemberView
from marpack.inspection.lint.handler_class import check_batches, check_entry, check_lookups, check_vocabulary
from marpack.inspection.lint.imports import Imports
from marpack.inspection.lint.labels import LabelsCheck
from marpack.inspection.lint.manifest import check_manifest
from marpack.inspection.lint.model_config import check_keys, read_config
from marpack.inspection.lint.model_loading import LintContext, check_model_file, loader_of
from marpack.inspection.lint.requirements import requirements_of
from marpack.inspection.lint.shadows import check_shadows
from marpack.inspection.lint.undefined_names import check_names
from marpack.inspection.lint.weights import WeightsCheck
from marpack.protocol.targets import Target

MAX_FINDINGS = 100  # of one rule; who has more has seen enough

# Heading in the document → the modules whose codes stand under it; a code imported from another is that one's.
_CHAPTERS = {
    "Manifest": ("manifest",),
    "Members": ("files",),
    "Handler": ("entry_point", "handler_class", "classes"),
    "Model file": ("model_loading",),
    "Imports": ("imports", "missing_modules", "shadows"),
    "Names": ("undefined_names",),
    "Requirements": ("requirements",),
    "Weights": ("weights",),
    "Labels": ("labels",),
    "Model config": ("model_config", "compiling"),
}
_HEAD = """\
# Findings

What `marpack build` and `marpack inspect` can find wrong with an archive by reading alone: nothing of it is executed,
imported or unpickled. Each finding has a stable code, a place, a sentence and a hint.

- **error**: the server certainly fails: it refuses the model, a worker dies, or every request is a 503. Errors stop a
  build.
- **warning**: something probably is not as its author means it. Warnings stop a build under `--strict`.
- **note**: worth knowing, and may well be meant.

One code can weigh differently: a state_dict without a model file is an error where BaseHandler loads the model, and a
note where the handler's own `initialize` does. This page is printed from the code; do not edit it by hand.
"""


Rule = Callable[[LintContext], Iterable[Finding]]


def _top(place: str) -> str:
    """Return the first part of a member's name, without a suffix."""
    return re.split("[/.:]", place)[0]


def lint(
    view: MemberView,
    manifest: Manifest,
    *,
    target: Target = Target.TORCHSERVE,
    vendored: Vendored | UnsetType = UNSET,
) -> list[Finding]:
    """Return everything that reading alone can find wrong with an archive; nothing is executed or unpickled.

    Args:
        view: The members, packed or about to be.
        manifest: The manifest that names them.
        target: Whose behaviour counts.
        vendored: Packages that the archive brings along, which are for others to find fault with.

    Never raises for what the members hold; a member that cannot be read is a finding.
    """
    files = Files(view.entries, view.open, search_path(manifest))
    context = _context_of(files, manifest, target)
    if isinstance(context, Finding):
        return [*files.findings, context]
    found = [finding for rule in _rules(manifest) for finding in _run(rule, context)]
    others = {name for package in vendored.packages for name in package.modules} if vendored else set()
    model = manifest.model  # what it names is the author's, whatever an archive says of itself
    named = ("MAR-INF", model.handler, model.model_file, model.serialized_file, model.config_file)
    others -= set(map(_top, filter(None, named)))
    found = [finding for finding in found if _top(finding.where or "") not in others]
    return list(dict.fromkeys([*files.findings, *found]))


def _context_of(files: Files, manifest: Manifest, target: Target) -> LintContext | Finding:
    library = Library(files)
    config = read_config(files, manifest)
    requirements = requirements_of(files, manifest)
    try:
        handler = find_handler(files, manifest)
        entry = decide(handler, library)
        loader = loader_of(entry, library)
    except (RecursionError, LimitExceededError):
        return GAVE_UP.note("the handler could not be looked into", manifest.model.handler)
    return LintContext(
        files=files,
        manifest=manifest,
        target=target,
        library=library,
        config=config,
        requirements=requirements,
        handler=handler,
        entry=entry,
        loader=loader,
    )


def _run(rule: Rule, context: LintContext) -> Iterator[Finding]:
    try:
        yield from islice(rule(context), MAX_FINDINGS)
    except (RecursionError, LimitExceededError):
        yield GAVE_UP.note("a check could not be finished", context.manifest.model.handler)


def _rules(manifest: Manifest) -> tuple[Rule, ...]:
    return _PLAIN if manifest.runtime == "LSP" else (*_PLAIN, *_PYTHON)


# What needs no Python, and what does.
_PLAIN: tuple[Rule, ...] = (
    lambda context: check_manifest(context.manifest),
    lambda context: context.config.findings,
    lambda context: check_keys(context.config),
    lambda context: context.requirements.findings,
)
_PYTHON: tuple[Rule, ...] = (
    lambda context: (*context.handler.findings, *context.entry.findings),
    check_entry,
    check_model_file,
    lambda context: Imports(context).check(),
    lambda context: check_names(Imports(context).modules),
    lambda context: check_shadows(context.files, context.manifest),
    lambda context: WeightsCheck(context).check(),
    check_vocabulary,
    check_batches,
    check_lookups,
    lambda context: LabelsCheck(context).check(),
    lambda context: CompileCheck(context).check(),
)


def all_codes() -> dict[str, Code]:
    """Return every code by its name."""
    return {code.name: code for code in _chapters()}


def _chapters() -> dict[Code, str]:
    """Return every code with its heading in the document."""
    found: dict[Code, str] = {}
    for chapter, names in _CHAPTERS.items():
        modules = (import_module(f"{__package__}.{name}") for name in names)
        codes = [value for module in modules for value in vars(module).values() if isinstance(value, Code)]
        found |= {code: chapter for code in codes if code not in found}
    return found


def as_markdown() -> str:
    """Return docs/findings.md."""
    parts = [_HEAD]
    for chapter in _CHAPTERS:
        parts.append(f"\n## {chapter}\n")
        codes = [code for code, place in _chapters().items() if place == chapter]
        parts.extend(f"\n### {code.name}\n\n{code.cause}\n\n*Fix:* {code.fix}\n" for code in codes)
    return "".join(parts)
