"""Which file of the archive, and which function or class in it, the server will call (contract §2)."""

import ast
from enum import StrEnum
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.bindings import Binding, Count, Imported, Own, Value, count, odd_line
from marpack.inspection.lint.classes import Class, Library, LocalClass, ServerClass, UnknownClass, absolute
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.files import NOT_LOOKED_INTO, Files, Found, Located, Module, broken
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import INSTALLED, HandlerName, is_standard, never_found

MANIFEST = "MAR-INF/MANIFEST.json: model.handler"

MISSING = Code(
    "handler-missing",
    "The handler's file is not in the archive, and no built-in handler has its name; the worker dies.",
    "Pack the file at the archive's root, or name a built-in handler.",
)
UNKNOWN = Code(
    "handler-unknown",
    "The handler is neither a packed module nor a built-in; it works only where it is installed on the server.",
    "Pack the module, or name a built-in handler.",
)
FILE_NAME = Code(
    "handler-file-name",
    "The server imports the handler by its file's name up to `.py`, and a dot in it means a package.",
    "Rename the file to a plain name such as handler.py.",
)
SHADOWED = Code(
    "handler-shadows-built-in",
    "A packed module has the name of a built-in handler and takes its place.",
    "Rename the module if the built-in is meant.",
)
OWN_MODULE = Code(
    "handler-never-found",
    "A module of this name is loaded in every Python, so the packed file is never imported.",
    "Rename the file to a plain name such as handler.py.",
)
NO_HANDLER = Code(
    "handler-not-a-handler",
    "The name is a module of the server's that holds no handler.",
    "Name a built-in handler, or a packed file.",
)
NEEDS = Code(
    "handler-needs-engine",
    "The built-in handler needs a package that a stock server does not have.",
    "List the package in requirements.txt, or use a server image that has it.",
)
NO_ENTRY = Code(
    "handler-no-entry",
    "The handler's module has neither the function nor a class of its own; imported classes do not count.",
    "Define `handle(data, context)`, or one class with `initialize` and `handle`.",
)
MANY_CLASSES = Code(
    "handler-many-classes",
    "The handler's module has more than one class of its own; dataclasses, enums, exceptions and aliases count too.",
    "Move all but the handler's class into another packed module and import them: imported classes do not count.",
)
FUNCTION_MISSING = Code(
    "handler-function-missing",
    "The function after the colon does not exist; the server takes the module's one class instead, without a word.",
    "Name a function of the module, or leave the colon out.",
)
NOT_CALLABLE = Code(
    "handler-not-callable",
    "The module's entry point is not a function, and the server calls it as one with `None` and the context.",
    "Let the name stand for a function `handle(data, context)`.",
)
UNDECIDED = Code(
    "handler-undecided",
    "Only running the module would tell what its entry point is.",
    "Define the handler's class or function at the module's top level, under no condition.",
)


class HandlerFile(Struct, frozen=True, kw_only=True):
    """Where the handler comes from; with neither a module nor a built-in, nothing more can be told."""

    member: str | None = None  # the packed source file, parsed or not
    module: Module | None = None
    built_in: str | None = None  # the class that answers, by its dotted name
    function: str | None = None  # after the colon
    findings: tuple[Finding, ...] = ()


def search_path(manifest: Manifest) -> tuple[str, ...]:
    """Return the folders of the archive that the worker's search path begins with."""
    folder = HandlerName.parse(manifest.model.handler).folder
    return ("",) if folder is None else (f"{folder}/", "")


def find_handler(files: Files, manifest: Manifest) -> HandlerFile:
    """Find the handler of a manifest among the members and the built-ins."""
    name = HandlerName.parse(manifest.model.handler)
    dotted = name.module
    if never_found(dotted.partition(".")[0]):
        finding = OWN_MODULE.error(f"the server imports Python's own module '{dotted}' instead", MANIFEST)
        return HandlerFile(findings=(finding,))
    located = files.locate(dotted) if dotted else None
    if located is None:
        return _not_packed(files, name)
    notes = []
    if dotted in ts.BUILT_INS:
        message = f"the packed {located.member} takes the place of the built-in {dotted}"
        notes.append(SHADOWED.note(message, located.member))
    if located.kind is not Found.SOURCE:
        return HandlerFile(findings=(*notes, _no_source(located)))
    module = files.module(located)
    if isinstance(module, Module):
        return HandlerFile(member=located.member, module=module, function=name.function or None, findings=tuple(notes))
    trouble = [broken(located.member, module)] if module else []
    return HandlerFile(member=located.member, findings=(*notes, *trouble))


def _no_source(located: Located) -> Finding:
    if located.kind is Found.NAMESPACE:
        return MISSING.error(f"'{located.dotted}' is a folder without __init__.py, which holds no handler", MANIFEST)
    return NOT_LOOKED_INTO.note("it is compiled, so its entry point was not looked into", located.member)


def _not_packed(files: Files, name: HandlerName) -> HandlerFile:
    built_in = ts.BUILT_INS.get(name.path)
    if built_in is None:
        return HandlerFile(findings=(_missing(files, name),))
    needed = ts.needs_of(built_in.module)
    message = f"the built-in {built_in.name} needs {needed}, which a stock server does not have"
    findings = (NEEDS.note(message, MANIFEST),) if needed else ()
    return HandlerFile(built_in=built_in.dotted, findings=findings)


def _missing(files: Files, name: HandlerName) -> Finding:
    path, base, dotted = name.path, name.base, name.module
    if not dotted:
        return MISSING.error("the manifest names no handler", MANIFEST)
    if "." in dotted and base in files.files_in(""):
        return FILE_NAME.error(f"'{base}' cannot be imported: its name has a dot before .py", base)
    if ts.has_module(f"ts.torch_handler.{dotted}"):
        return NO_HANDLER.error(f"'{dotted}' is a module of the server's without a handler in it", MANIFEST)
    elsewhere = sorted(name for name in files.names if name.endswith(f"/{dotted}.py"))
    if elsewhere:
        message = f"'{path}' is packed as {elsewhere[0]}, where the server does not look"
        return MISSING.error(message, MANIFEST, "pack it at the archive's root")
    hint = _near(files, path, dotted)
    if path.endswith(".py") or hint or "." not in dotted:
        return MISSING.error(f"'{path}' is neither in the archive nor a built-in handler", MANIFEST, hint)
    return UNKNOWN.warning(f"'{path}' is not packed, and works only where it is installed", MANIFEST)


def _near(files: Files, path: str, dotted: str) -> str | None:
    packed = [name for name in files.files_in("") if name.endswith(".py")]
    choices = packed if path.endswith(".py") else [*ts.BUILT_INS, *(name.removesuffix(".py") for name in packed)]
    return suggestion(path if path.endswith(".py") else dotted, choices)


class EntryKind(StrEnum):
    """What the server will call."""

    FUNCTION = "function"
    CLASS = "class"
    NOTHING = "nothing"  # certainly
    UNKNOWN = "unknown"


class LocalFunction(Struct, frozen=True):
    """A function that a packed module defines."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class EntryDecision(Struct, frozen=True, kw_only=True):
    """The entry point, with what was noticed while deciding it."""

    kind: EntryKind = EntryKind.UNKNOWN
    module: Module | None = None
    name: str = "handle"  # of the function
    function: LocalFunction | None = None  # if it can be read
    cls: Class | None = None  # the one to make an instance of
    findings: tuple[Finding, ...] = ()


def decide(found: HandlerFile, library: Library) -> EntryDecision:
    """Decide what the server will call (contract §2)."""
    if found.built_in:
        return EntryDecision(kind=EntryKind.CLASS, cls=ServerClass(found.built_in))
    if found.module is None:
        return EntryDecision()
    name = found.function or "handle"
    binding = lookup(library, found.module, name)
    if isinstance(binding, Binding):
        return _function(library, found.module, name, binding)
    if binding is None:
        return _unsure(found.module, f"only running it would tell whether it has '{name}'")
    entry = _class(library, found.module)
    return _without_function(entry, found) if found.function else entry


class Absent(Struct, frozen=True):
    """A name that a module does not have, for certain."""


def lookup(library: Library, module: Module, name: str) -> Binding | Absent | None:
    """Return what a module's attribute is bound to; None if only running it would tell."""
    answer: Binding | Absent | None = Absent()
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop(0)
        if current.member in seen:
            continue
        seen.add(current.member)
        if name in current.scope.names:
            hidden = current is not module and (name.startswith("_") or "__all__" in current.scope.names)
            return None if hidden else current.scope.names[name]
        if current.scope.dynamic:
            answer = None
        for star in current.scope.stars:
            packed = library.packed(absolute(current, star) or "")
            if packed:
                waiting.append(packed)
            elif not isinstance(_from_outside(absolute(current, star), star, name), Absent):
                answer = _from_outside(absolute(current, star), star, name)
    return answer


def _from_outside(source: str | None, star: Imported, name: str) -> Binding | Absent | None:
    """Return what `from source import *` binds a name to, of a module that is not packed."""
    if source and ts.has_module(source):
        return Binding((star,)) if name in ts.names_of(source) else Absent()
    top = (source or "?").partition(".")[0]
    return Absent() if is_standard(top) or top in INSTALLED else None


def _function(library: Library, module: Module, name: str, binding: Binding) -> EntryDecision:
    where = module.at(binding.line)
    if not binding.sure or len(binding.values) != 1:
        return _unsure(module, f"only running it would tell what '{name}' stands for", where)
    owner, value = _follow(library, module, binding.values[0])
    if isinstance(value, Own) and isinstance(value.node, ast.ClassDef):
        message = f"'{name}' is a class, and the server would call it as a function with None and the context"
        return _nothing(module, NOT_CALLABLE.error(message, where))
    if isinstance(value, Own):
        assert not isinstance(value.node, ast.ClassDef)  # noqa: S101 - for the type checker
        function = LocalFunction(owner, value.node)
        return EntryDecision(kind=EntryKind.FUNCTION, module=module, name=name, function=function)
    if _is_no_function(library, module, value):
        message = f"'{name}' is not a function, and the server would call it with None and the context"
        return _nothing(module, NOT_CALLABLE.error(message, where))
    return EntryDecision(kind=EntryKind.FUNCTION, module=module, name=name)


def _follow(library: Library, module: Module, value: Value, depth: int = 0) -> tuple[Module, Value]:
    """Follow imports to the packed module that defines a value, as far as that is certain."""
    if not isinstance(value, Imported) or value.name is None or depth > 20:
        return module, value
    source = absolute(module, value)
    packed = library.packed(source) if source else None
    binding = lookup(library, packed, value.name) if packed else None
    if packed is None or not isinstance(binding, Binding) or binding.only is None:
        return module, value
    return _follow(library, packed, binding.only, depth + 1)


def _is_no_function(library: Library, module: Module, value: Value) -> bool:
    """Say whether a value certainly cannot be called: a constant, a module."""
    if isinstance(value, Imported):
        return value.name is None and library.packed(absolute(module, value) or "") is not None
    node = getattr(value, "node", None)
    return isinstance(node, ast.Constant | ast.List | ast.Dict | ast.Tuple | ast.Set | ast.JoinedStr)


def _class(library: Library, module: Module) -> EntryDecision:
    counted = count(module.scope)
    one = counted.the_one
    if one is not None:
        return EntryDecision(kind=EntryKind.CLASS, module=module, cls=LocalClass(module, one))
    if counted.low > 1:
        return _many(module, counted)
    if counted.high == 0:
        return _none(library, module)
    listed = ", ".join(counted.names[:5])
    return _unsure(module, f"only running it would tell how many classes it has of its own ({listed})")


def _many(module: Module, counted: Count) -> EntryDecision:
    listed = ", ".join(counted.names[:6]) + (", …" if len(counted.names) > 6 else "")
    message = f"it has {counted.low} classes of its own ({listed}) where the server wants exactly one, and no 'handle'"
    where = module.at(odd_line(module.scope, counted, "handle"))
    return _nothing(module, MANY_CLASSES.error(message, where))


def _none(library: Library, module: Module) -> EntryDecision:
    message = "it has neither a function 'handle' nor a class of its own"
    imported = (name for name, binding in module.scope.names.items() if isinstance(binding.only, Imported))
    handler = next(
        (name for name in islice(imported, 100) if answers(library, library.class_of(module, ast.Name(name)))), None
    )
    hint = None
    if handler:
        message += f"; the imported {handler} does not count"
        hint = f"derive one class: class Handler({handler}): pass"
    return _nothing(module, NO_ENTRY.error(message, module.member, hint))


def _nothing(module: Module, finding: Finding) -> EntryDecision:
    return EntryDecision(kind=EntryKind.NOTHING, module=module, findings=(finding,))


def answers(library: Library, cls: Class | None) -> bool:
    """Tell whether a class has `handle`; where it inherits from one that nobody here knows, by that one's name."""
    found = library.find(cls, "handle") if isinstance(cls, LocalClass | ServerClass) else None
    if found is not None and isinstance(found.owner, UnknownClass):
        return found.owner.text.endswith(("Handler", "Classifier", "Segmenter", "Detector"))
    return found is not None


def _without_function(entry: EntryDecision, found: HandlerFile) -> EntryDecision:
    message = f"there is no function '{found.function}'"
    if entry.kind is EntryKind.NOTHING:
        finding = NO_ENTRY.error(message, found.module.member if found.module else None)
    elif entry.kind is EntryKind.CLASS:
        finding = FUNCTION_MISSING.warning(f"{message}; the server takes the module's one class instead", MANIFEST)
    else:
        return entry
    return replace(entry, findings=(finding, *entry.findings))


def _unsure(module: Module, message: str, where: str | None = None) -> EntryDecision:
    return EntryDecision(module=module, findings=(UNDECIDED.note(message, where or module.member),))
