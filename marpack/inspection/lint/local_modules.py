"""Imports that only a file of the author's own can answer, and the archive does not have it."""

from marpack.findings import Finding, Severity
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files
from marpack.torchserve import stock as ts

NOT_PACKED = Code(
    "Imports",
    "import-not-packed",
    "A module that looks like the author's own is imported, and it is not at the archive's root, where Python looks.",
    "Pack the file at the archive's root.",
)
HANDLER_MODULE = Code(
    "Imports",
    "import-handler-module",
    "The server's handlers are imported from ts.torch_handler; by themselves their names are not found.",
    "Import from ts.torch_handler.",
)

# What people call their own files, and no distribution they would install is imported by.
_HOMELY = (
    "model models my_model net nets network networks util utils helper helpers common config configs cfg constants "
    "preprocess preprocessing preprocessor postprocess postprocessing postprocessor transform inference predict "
    "predictor dataset dataloader data_utils model_utils handler handler_utils base_model layers modules architecture "
    "backbone encoder decoder losses train training settings src lib"
)


def not_packed(files: Files, top: str, severity: Severity, where: str) -> Finding | None:
    """Return the finding for an import that must be the author's own and is not packed; None for any other.

    Args:
        files: The members, none of which answers the import.
        top: The top-level module.
        severity: How much it weighs.
        where: Where the import stands.
    """
    if top in ts.HANDLERS:
        hint = f"write ts.torch_handler.{top}"
        return HANDLER_MODULE.weigh(severity, f"'{top}' is found only as ts.torch_handler.{top}", where, hint)
    homely = top in _HOMELY.split()
    elsewhere = _elsewhere(files, top)
    if not homely and elsewhere is None:
        return None
    message = f"'{top}' is packed as {elsewhere}, where Python does not look" if elsewhere else f"'{top}' is not packed"
    return NOT_PACKED.weigh(severity if homely else Severity.WARNING, message, where)


def _elsewhere(files: Files, top: str) -> str | None:
    """Return where a module lies in a folder that is no package of its own."""
    found = sorted(name for name in files.members.names if name.endswith((f"/{top}.py", f"/{top}/__init__.py")))
    loose = (name for name in found if "__init__.py" not in files.members.files_in(name.partition("/")[0] + "/"))
    return next(loose, None)


def packed_tops(files: Files) -> list[str]:
    """Return the names that can be imported from the archive's root."""
    return sorted({name.split("/")[0].removesuffix(".py") for name in files.members.names if name.endswith(".py")})
