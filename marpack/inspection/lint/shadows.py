"""Packed modules that take the place of others, and packed modules that others take the place of.

The model folder comes first on the worker's search path, from the interpreter's very start.
"""

from collections.abc import Iterator

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files, Found, Located
from marpack.torchserve.server_modules import (
    INSTALLED,
    SERVER_LOADED,
    SINGLE_FILES,
    SUBSTITUTABLE,
    HandlerName,
    breaks_worker,
    is_standard,
    never_found,
)

BREAKS = Code(
    "module-breaks-worker",
    "A packed module has the name of one that the server's worker itself imports, and takes its place.",
    "Rename the file, and the imports of it.",
)
SHADOWS = Code(
    "module-shadows",
    "A packed module has the name of one in Python's standard library or on the server, and takes its place.",
    "Rename the file, and the imports of it.",
)
LOST = Code(
    "module-never-found",
    "A packed module has the name of one that every Python has loaded already, so it is never imported.",
    "Rename the file, and the imports of it.",
)
HIDDEN = Code(
    "module-hidden",
    "Two packed files share a module's name, and Python takes a package or a compiled file before a .py file.",
    "Rename one of the two.",
)

_ROOT = ("",)  # the model folder, whatever the handler's own


def check_shadows(files: Files, manifest: Manifest) -> Iterator[Finding]:
    """Yield the modules at the archive's root whose names are taken."""
    for base in sorted(files.files_in("")):
        if base.endswith(".py") and base.count(".") == 1:
            yield from _check_hidden(files, base)
    for top in _tops(files):
        located = files.locate(top, _ROOT)
        if located and located.kind is not Found.NAMESPACE:
            yield from _check_name(located, named=located.member in _named(manifest))


def _tops(files: Files) -> list[str]:
    modules = {name.split(".")[0] for name in files.files_in("") if name.endswith(".py")}
    packages = {name.split("/")[0] for name in files.names if name.count("/") == 1 and "/__init__." in name}
    return sorted(modules | packages)


def _named(manifest: Manifest) -> set[str | None]:
    return {manifest.model.model_file, HandlerName.parse(manifest.model.handler).path}


def _check_hidden(files: Files, base: str) -> Iterator[Finding]:
    located = files.locate(base.removesuffix(".py"), _ROOT)
    if located and located.member != base:
        yield HIDDEN.warning(f"Python imports {located.member} in its place", base)


def _check_name(located: Located, *, named: bool) -> Iterator[Finding]:
    top, member = located.dotted, located.member
    if never_found(top):
        if not named:  # the handler's and the model's own rules say it louder
            yield LOST.warning(f"every Python has its own '{top}' loaded before this file is looked for", member)
    elif breaks_worker(top) and not _is_substitute(located, named=named):
        yield BREAKS.error(f"the worker itself imports '{top}', and gets this file in its place", member)
    elif is_standard(top):
        yield SHADOWS.warning(f"it takes the place of Python's own '{top}', for every library on the server", member)
    elif top in INSTALLED and not located.package and top not in SINGLE_FILES:
        yield SHADOWS.warning(f"it takes the place of the package '{top}' on the server", member)


def _is_substitute(located: Located, *, named: bool) -> bool:
    """Say whether a module may be a complete copy of the one it stands for, as `pip install -t` leaves it."""
    top = located.dotted
    return not named and (top in SUBSTITUTABLE or (located.package and top in SERVER_LOADED))
