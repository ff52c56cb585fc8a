"""All codes of the static checks in one place, and `docs/findings.md` as printed from them."""

from collections.abc import Iterator
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

# Modules that declare codes, under the headings of the document; a code stands under the first that has it.
_CHAPTERS: dict[str, tuple[ModuleType, ...]] = {
    "Manifest": (manifest_facts,),
    "Members": (files, sources, linting),
    "Handler": (handler_file, entry, handler_class, answering, constructing),
    "Model file": (model_file,),
    "Imports": (imports, local_modules, ts_imports, shadows),
    "Requirements": (requirements,),
    "Weights": (weights, checkpoint, state_keys, text_handler),
    "Labels": (labels_file, labels),
    "Model config": (model_config, config_keys, compiling),
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


def chapters() -> Iterator[tuple[str, list[Code]]]:
    """Yield every heading with its codes, each code once."""
    seen: set[str] = set()
    for heading, places in _CHAPTERS.items():
        found = [code for place in places for code in _codes_of(place) if code.name not in seen]
        unique = list({code.name: code for code in found}.values())
        seen.update(code.name for code in unique)
        yield heading, unique


def all_codes() -> dict[str, Code]:
    """Return every code by its name."""
    return {code.name: code for _, codes in chapters() for code in codes}


def as_markdown() -> str:
    """Return docs/findings.md."""
    parts = [_HEAD]
    for heading, codes in chapters():
        parts.append(f"\n## {heading}\n")
        parts.extend(f"\n### {code.name}\n\n{code.cause}\n\n*Fix:* {code.fix}\n" for code in codes)
    return "".join(parts)


def _codes_of(module: ModuleType) -> list[Code]:
    return [value for value in vars(module).values() if isinstance(value, Code)]
