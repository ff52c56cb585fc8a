"""docs/errors.md: every error, its cause, its exit code, and the sentences it is raised with."""

import ast
import importlib
import inspect
from collections.abc import Iterable, Iterator
from functools import cache

from marpack.errors import ExitCode, MarpackError
from tools.reference.page import NOTE, ROOT, escaped, page


def errors() -> str:
    """Return every error there is, with its cause, its exit code, and the sentences it is raised with."""
    sentences = messages()
    parts = [
        "# Errors",
        (
            "This page lists marpack's errors. An error ends a command and has a code, a message, a place and a hint."
            " In the messages below, … stands for names and numbers. A code before a message replaces the code in the"
            " heading. With `--json` or `--jsonl`, an error is also an object on stdout (`Failure` in each of"
            " [schemas/](schemas/inspect.json)). Problems that do not end a command are [findings](findings.md)."
        ),
        "| exit code | meaning |\n|---|---|\n"
        + "\n".join(f"| {code.value} | {text} |" for code, text in EXIT_CODES.items()),
        NOTE,
    ]
    for kind in sorted(subclasses(MarpackError), key=lambda kind: (kind.exit_code, kind.code)):
        parts += [
            f"## {kind.code}",
            cause(kind),
            f"*Exit code* {kind.exit_code.value}. *Fix:* {kind.fix or 'see the hint'}",
        ]
        known = sorted(sentences.get(kind.__name__, {}).items())
        if known:
            parts.append("\n".join(f"- {code}{what}{hint}" for what, (code, hint) in known))
    return page(*parts)


EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.SHORT: "a check, an input or a finding failed",
    ExitCode.USAGE: "the command line or the project file is wrong",
    ExitCode.ARCHIVE: "the archive is unreadable or unsafe",
    ExitCode.HANDLER: "the handler could not be loaded or initialized",
    ExitCode.INTERRUPTED: "interrupted",
}


def cause(kind: type[MarpackError]) -> str:
    """Return the first paragraph of an error's docstring, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


@cache
def subclasses(kind: type[MarpackError]) -> set[type[MarpackError]]:
    """Return every class of the tree below one, wherever it is defined."""
    for path in sorted((ROOT / "marpack").rglob("*.py")):
        tree = ast.parse(path.read_text())
        if any(isinstance(node, ast.ClassDef) and node.name.endswith("Error") for node in tree.body):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return below(kind)


def below(kind: type[MarpackError]) -> set[type[MarpackError]]:
    found = set(kind.__subclasses__())
    return found | {inner for each in found for inner in below(each)}


@cache
def messages() -> dict[str, dict[str, tuple[str, str]]]:
    """Return by class name every sentence that the code makes such an error of, with its own code and its hint."""
    names = {kind.__name__ for kind in subclasses(MarpackError)}
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for path in sorted((ROOT / "marpack").rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = assigned(tree.body)
        for scope in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            nodes = list(ast.walk(scope))
            calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
            raised = [(call.func.id, call) for call in calls if call.func.id in names]
            values = constants | assigned(nodes) if raised else {}
            for name, call in raised:
                found.setdefault(name, {}).update(sentences_of(call, values))
    return found


Values = dict[str, list[ast.expr]]


def assigned(nodes: Iterable[ast.AST]) -> Values:
    """Return by name what the nodes assign to it."""
    values: Values = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in pairs(target, node.value):
                    values.setdefault(name, []).append(value)
        elif isinstance(node, ast.AugAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
            values.setdefault(node.target.id, []).append(node.value)
    return values


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that an assignment binds, with the expression it is bound to."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for inner, part in zip(target.elts, value.elts, strict=False):
            yield from pairs(inner, part)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.IfExp):
        yield from pairs(target, value.body)
        yield from pairs(target, value.orelse)


def sentences_of(call: ast.Call, values: Values) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each sentence that an error is made with, and its code and hint as they are printed."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    hint, code = (only_text(given[name], values) if name in given else "" for name in ("hint", "code"))
    for what in texts(call.args[0], values) if call.args else ():
        if len(what) > 12:  # more than a placeholder
            yield escaped(what), (f"`{code}`: " if code else "", f"<br>*hint:* {escaped(hint)}" if hint else "")


def only_text(node: ast.expr, values: Values) -> str:
    """Return what a text in the code comes out as; nothing if that depends on the sentence."""
    found = list(texts(node, values))
    return found[0] if len(found) == 1 else ""


def texts(node: ast.expr, values: Values) -> Iterator[str]:
    """Yield what a text in the code may come out as, … standing for what is not known before."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body, values)
        yield from texts(node.orelse, values)
    elif isinstance(node, ast.Name) and len(values.get(node.id, ())) == 1:  # of several, the raise has but some
        unread = {name: found for name, found in values.items() if name != node.id}  # no circle
        yield from texts(*values[node.id], unread)
