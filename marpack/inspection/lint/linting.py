"""All static checks in their order, and docs/findings.md as printed from their codes."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import ModuleType

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.errors import LimitExceededError
from marpack.findings import Finding
from marpack.inspection.lint import (
    classes,
    compiling,
    entry_point,
    files,
    handler_class,
    imports,
    labels,
    manifest,
    model_config,
    model_loading,
    requirements,
    shadows,
    weights,
)
from marpack.inspection.lint.classes import Library
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.compiling import CompileCheck
from marpack.inspection.lint.entry_point import EntryDecision, HandlerFile, decide, find_handler, search_path
from marpack.inspection.lint.files import Files, MemberView, Module
from marpack.inspection.lint.handler_class import check_batches, check_entry, check_vocabulary
from marpack.inspection.lint.imports import Imports
from marpack.inspection.lint.labels import LabelsCheck
from marpack.inspection.lint.manifest import check_manifest
from marpack.inspection.lint.model_config import ModelConfig, check_keys, read_config
from marpack.inspection.lint.model_loading import LoadingStrategy, check_model_file, loader_of
from marpack.inspection.lint.requirements import Requirements, requirements_of
from marpack.inspection.lint.shadows import check_shadows
from marpack.inspection.lint.weights import WeightsCheck
from marpack.torchserve.targets import Target

MAX_FINDINGS = 100  # of one rule; who has more has seen enough

GAVE_UP = Code(
    "Members",
    "check-gave-up",
    "A file is nested so deeply, or branches so often, that a check could not be finished.",
    "Check it by running it: marpack run.",
)
_CHAPTERS = (
    "Manifest",
    "Members",
    "Handler",
    "Model file",
    "Imports",
    "Requirements",
    "Weights",
    "Labels",
    "Model config",
)
_RULES: tuple[ModuleType, ...] = (
    manifest,
    files,
    entry_point,
    handler_class,
    classes,
    model_loading,
    imports,
    shadows,
    requirements,
    weights,
    labels,
    model_config,
    compiling,
)
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


class LintContext(Struct, frozen=True, kw_only=True):
    """One archive with all that the rules need to know of it, worked out once."""

    files: Files
    manifest: Manifest
    target: Target
    library: Library
    config: ModelConfig
    requirements: Requirements
    handler: HandlerFile
    entry: EntryDecision
    loader: LoadingStrategy


Rule = Callable[[LintContext], Iterable[Finding]]


def lint(view: MemberView, manifest: Manifest, *, target: Target = Target.TORCHSERVE) -> list[Finding]:
    """Return everything that reading alone can find wrong with an archive; nothing is executed or unpickled.

    Args:
        view: The members, packed or about to be.
        manifest: The manifest that names them.
        target: Whose behaviour counts.

    Never raises for what the members hold; a member that cannot be read is a finding.
    """
    files = Files(view.names(), view.open, search_path(manifest))
    lint_context = _subject(files, manifest, target)
    if isinstance(lint_context, Finding):
        return [*files.findings, lint_context]
    found = [finding for rule in _rules(manifest) for finding in _run(rule, lint_context)]
    return list(dict.fromkeys([*files.findings, *found]))


def _subject(files: Files, manifest: Manifest, target: Target) -> LintContext | Finding:
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


def _run(rule: Rule, lint_context: LintContext) -> Iterator[Finding]:
    try:
        yield from islice(rule(lint_context), MAX_FINDINGS)
    except (RecursionError, LimitExceededError):
        yield GAVE_UP.note("a check could not be finished", lint_context.manifest.model.handler)


def _rules(manifest: Manifest) -> tuple[Rule, ...]:
    return _PLAIN if manifest.runtime == "LSP" else (*_PLAIN, *_PYTHON)


def _handler(lint_context: LintContext) -> Iterator[Finding]:
    yield from lint_context.handler.findings
    yield from lint_context.entry.findings
    yield from check_entry(lint_context.entry, lint_context.library, awaited=lint_context.config.awaited)


def _model_file(lint_context: LintContext) -> Iterable[Finding]:
    return check_model_file(
        lint_context.files, lint_context.library, lint_context.manifest, lint_context.loader.severity
    )


def _imports(lint_context: LintContext) -> Iterable[Finding]:
    model = lint_context.manifest.model.model_file
    used = model is not None and model in lint_context.files
    second = lint_context.library.packed(model.split(".")[0]) if model and used else None
    starts: list[Module] = [module for module in (lint_context.handler.module, second) if module is not None]
    return Imports(lint_context.files, lint_context.library, lint_context.requirements).check(starts)


def _weights(lint_context: LintContext) -> Iterable[Finding]:
    check = WeightsCheck(
        lint_context.files, lint_context.manifest, lint_context.target, lint_context.library, lint_context.loader
    )
    return check.check(lint_context.config, lint_context.requirements)


# What needs no Python, and what does.
_PLAIN: tuple[Rule, ...] = (
    lambda lint_context: check_manifest(lint_context.manifest),
    lambda lint_context: lint_context.config.findings,
    lambda lint_context: check_keys(lint_context.config),
    lambda lint_context: lint_context.requirements.findings,
)
_PYTHON: tuple[Rule, ...] = (
    _handler,
    _model_file,
    _imports,
    lambda lint_context: check_shadows(lint_context.files, lint_context.manifest),
    _weights,
    lambda lint_context: check_vocabulary(
        lint_context.files, lint_context.manifest, lint_context.library, lint_context.loader
    ),
    lambda lint_context: check_batches(
        lint_context.config, lint_context.library, lint_context.loader, lint_context.target
    ),
    lambda lint_context: LabelsCheck(
        lint_context.files, lint_context.library, lint_context.loader, lint_context.target
    ).check(),
    lambda lint_context: CompileCheck(lint_context.config, lint_context.loader, lint_context.target).check(),
)


def all_codes() -> dict[str, Code]:
    """Return every code by its name."""
    codes = [value for rules in _RULES for value in vars(rules).values() if isinstance(value, Code)]
    return {code.name: code for code in (*codes, GAVE_UP)}


def as_markdown() -> str:
    """Return docs/findings.md."""
    parts = [_HEAD]
    for chapter in _CHAPTERS:
        parts.append(f"\n## {chapter}\n")
        codes = [code for code in all_codes().values() if code.chapter == chapter]
        parts.extend(f"\n### {code.name}\n\n{code.cause}\n\n*Fix:* {code.fix}\n" for code in codes)
    return "".join(parts)
