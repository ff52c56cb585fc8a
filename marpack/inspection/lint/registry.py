"""All codes of the static checks in one place, and `docs/findings.md` as printed from them."""

from types import ModuleType

from marpack.inspection.lint import (
    answering,
    checkpoint,
    compiling,
    config_keys,
    constructing,
    entry,
    files,
    handler_class,
    handler_file,
    imports,
    labels,
    labels_file,
    linting,
    local_modules,
    manifest_facts,
    model_config,
    model_file,
    requirements,
    shadows,
    sources,
    state_keys,
    text_handler,
    ts_imports,
    weights,
)
from marpack.inspection.lint.codes import Code

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
    manifest_facts,
    files,
    sources,
    linting,
    handler_file,
    entry,
    handler_class,
    answering,
    constructing,
    model_file,
    imports,
    local_modules,
    ts_imports,
    shadows,
    requirements,
    weights,
    checkpoint,
    state_keys,
    text_handler,
    labels_file,
    labels,
    model_config,
    config_keys,
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


def all_codes() -> dict[str, Code]:
    """Return every code by its name."""
    codes = [value for rules in _RULES for value in vars(rules).values() if isinstance(value, Code)]
    return {code.name: code for code in codes}


def as_markdown() -> str:
    """Return docs/findings.md."""
    parts = [_HEAD]
    for chapter in _CHAPTERS:
        parts.append(f"\n## {chapter}\n")
        codes = [code for code in all_codes().values() if code.chapter == chapter]
        parts.extend(f"\n### {code.name}\n\n{code.cause}\n\n*Fix:* {code.fix}\n" for code in codes)
    return "".join(parts)
