"""All static checks of an archive, in their order."""

import re
from collections.abc import Callable, Iterable
from itertools import islice

from msgspec import UNSET, UnsetType

from marpack.archive.index import Vendored
from marpack.archive.manifest import Manifest
from marpack.errors import LimitExceededError
from marpack.finding_codes import (
    CHECK_GAVE_UP,
    MODULE_BREAKS_WORKER,
    MODULE_HIDDEN,
    MODULE_NEVER_FOUND,
    MODULE_SHADOWS,
)
from marpack.findings import Finding, Severity
from marpack.inspection.lint.config import check_keys, check_manifest, check_pt2, read_config, read_required
from marpack.inspection.lint.handler import (
    Classes,
    LintContext,
    check_batches,
    check_entry,
    check_lookups,
    check_vocabulary,
    find_entry,
    find_loader,
    search_path,
)
from marpack.inspection.lint.imports import check_imports, check_names, check_plugins, check_shadows, reach_modules
from marpack.inspection.lint.source import Files, MemberView
from marpack.inspection.lint.weights import check_labels, check_model_file, check_pretrained, check_weights
from marpack.protocol.targets import Target, TargetDifference

MAX_FINDINGS = 100  # of one rule
_PYTHON = re.compile(r"\.py(:\d+)?\Z")
_NAMES = frozenset(
    code.name
    for code in (MODULE_HIDDEN, MODULE_NEVER_FOUND, MODULE_BREAKS_WORKER, MODULE_SHADOWS)  # of check_shadows
)
Rule = Callable[[LintContext], Iterable[Finding]]


def _check_pt2(context: LintContext) -> Iterable[Finding]:
    loader = context.loader
    is_error = context.target.has(TargetDifference.PT2_ERRORS) and not loader.loads_itself
    return check_pt2(context.config, loader.severity, Severity.ERROR if is_error else loader.warning)


_RULES: tuple[Rule, ...] = (
    lambda context: check_manifest(context.manifest),
    lambda context: context.config.findings,
    lambda context: check_keys(context.config),
    lambda context: context.requirements.findings,
)
_PYTHON_RULES: tuple[Rule, ...] = (  # not for the runtime LSP, which is C++
    check_entry,
    check_model_file,
    check_imports,
    lambda context: check_names(module for module, _ in reach_modules(context).values()),
    lambda context: check_shadows(context.files, context.manifest),
    lambda context: check_plugins(context.files),
    check_weights,
    check_pretrained,
    check_vocabulary,
    check_batches,
    check_lookups,
    check_labels,
    _check_pt2,
)


def lint(
    view: MemberView,
    manifest: Manifest,
    *,
    target: Target = Target.TORCHSERVE,
    vendored: Vendored | UnsetType = UNSET,
) -> list[Finding]:
    """Return every problem that reading alone finds in an archive; nothing is executed or unpickled.

    Problems of `vendored` packages are left out. Never raises for the members' content; a member that cannot be read
    is a finding.
    """
    files = Files(view.entries, view.open, search_path(manifest, view.open))
    classes = Classes(files)
    config, requirements = read_config(files, manifest), read_required(files, manifest)
    try:
        entry = find_entry(classes, manifest)
        loader = find_loader(entry, classes)
    except (RecursionError, LimitExceededError):
        return [*files.findings, CHECK_GAVE_UP.at(manifest.model.handler)]
    context = LintContext(
        files=files,
        manifest=manifest,
        target=target,
        classes=classes,
        config=config,
        requirements=requirements,
        entry=entry,
        loader=loader,
    )
    found: list[Finding] = []
    is_native = manifest.runtime == "LSP" and target is Target.TORCHSERVE  # marpack runs any handler as Python
    for rule in _RULES if is_native else (*_RULES, *_PYTHON_RULES):
        try:
            found.extend(islice(rule(context), MAX_FINDINGS))
        except (RecursionError, LimitExceededError):
            found.append(CHECK_GAVE_UP.at(manifest.model.handler))
    if vendored:

        def top(place: str) -> str:
            return re.split("[/.:]", place)[0]

        model = manifest.model  # files that the manifest names are the author's, even in a vendored package
        named = ("MAR-INF", model.handler, model.model_file, model.serialized_file, model.config_file)
        others = {name for package in vendored.packages for name in package.modules}
        others -= set(map(top, filter(None, named)))
        # The author lists these modules: only problems inside them are left out, not those of their names.
        found = [
            finding
            for finding in found
            if finding.code in _NAMES
            or not _PYTHON.search(finding.where or "")
            or top(finding.where or "") not in others
        ]
    return list(dict.fromkeys([*files.findings, *found]))
