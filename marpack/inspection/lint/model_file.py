"""The model file: the one class that BaseHandler constructs before it loads a state_dict into it."""

from collections.abc import Iterator

import msgspec

from marpack.archive.manifest import Manifest
from marpack.findings import Finding, Severity
from marpack.inspection.lint.classes import Library, Packed, Plain
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.constructing import check_constructing
from marpack.inspection.lint.files import Files, Module
from marpack.inspection.lint.own_classes import Count, count, odd_line
from marpack.inspection.lint.sources import broken
from marpack.torchserve.stock import never_found

MANIFEST = "MAR-INF/MANIFEST.json: model.modelFile"

MISSING = Code(
    "Model file",
    "model-file-missing",
    "The model file is not in the archive.",
    "Pack the file at the archive's root, or leave modelFile out.",
)
FILE_NAME = Code(
    "Model file",
    "model-file-name",
    "The server imports the model file by its name up to the first dot, from the archive's root.",
    "Rename the file to a plain name such as model.py, and pack it at the root.",
)
NO_CLASS = Code(
    "Model file",
    "model-no-class",
    "The model file has no class of its own; imported classes do not count.",
    "Define the model's class in the model file: class Model(Imported): pass.",
)
MANY_CLASSES = Code(
    "Model file",
    "model-many-classes",
    "The model file has more than one class of its own, and the server wants exactly one.",
    "Move the building blocks into another packed module and import them: imported classes do not count.",
)
UNDECIDED = Code(
    "Model file",
    "model-undecided",
    "Only running the model file would tell how many classes it has.",
    "Define the model's class at the module's top level, under no condition.",
)
NO_MODULE = Code(
    "Model file",
    "model-not-a-module",
    "The model's class is no torch.nn.Module, so it has no load_state_dict, to or eval.",
    "Derive the class from torch.nn.Module.",
)


def check_model_file(files: Files, library: Library, manifest: Manifest, severity: Severity) -> Iterator[Finding]:
    """Yield why the server cannot make the model of the model file.

    Args:
        files: The members.
        library: Resolves bases.
        manifest: Names the file.
        severity: How much it weighs; less than an error where the handler loads the model by itself.
    """
    name = manifest.model.model_file
    if not name:
        return
    if name not in files:
        yield MISSING.weigh(severity, f"the model file '{name}' is not in the archive", MANIFEST)
        return
    dotted = name.split(".")[0]
    if "/" in name or name != f"{dotted}.py":
        yield FILE_NAME.weigh(severity, f"the server imports '{dotted}', which is not '{name}'", name)
        return
    if never_found(dotted):
        yield FILE_NAME.weigh(severity, f"the server imports Python's own module '{dotted}' instead", name)
        return
    module = library.packed(dotted)
    if module is not None:
        yield from _check_class(library, module, severity)
        return
    located = files.members.locate(dotted, files.roots)
    tree = files.module(dotted, located.member) if located and located.member == name else None
    if tree is not None and not isinstance(tree, Module):
        yield broken(name, tree, severity)


def _check_class(library: Library, module: Module, severity: Severity) -> Iterator[Finding]:
    counted = count(module)
    one = counted.the_one
    if one is None:
        yield _not_one(module, counted, severity)
        return
    cls = Packed(module, one)
    for finding in (*check_constructing(library, cls, "model"), *_check_module(library, cls)):
        yield finding if severity is Severity.ERROR else _weighed(finding, severity)


def _not_one(module: Module, counted: Count, severity: Severity) -> Finding:
    listed = ", ".join(counted.names[:6]) + (", …" if len(counted.names) > 6 else "")
    if counted.low > 1:
        message = f"it has {counted.low} classes of its own ({listed}) where the server wants exactly one"
        return MANY_CLASSES.weigh(severity, message, module.at(odd_line(module, counted, "forward")))
    if counted.high == 0:
        return NO_CLASS.weigh(severity, "it has no class of its own", module.member)
    return UNDECIDED.note(f"only running it would tell how many classes it has ({listed})", module.member)


def _check_module(library: Library, cls: Packed) -> Iterator[Finding]:
    order = library.order(cls)
    if not all(isinstance(base, Packed | Plain) for base in order):
        return
    if any(isinstance(base, Plain) and base.dotted.startswith("torch.nn.") for base in order):
        return
    if library.find(cls, "load_state_dict") is None:
        message = f"the class {cls.node.name} is no torch.nn.Module"
        yield NO_MODULE.error(message, cls.module.at(cls.node))


def _weighed(finding: Finding, severity: Severity) -> Finding:
    return msgspec.structs.replace(finding, severity=severity)
