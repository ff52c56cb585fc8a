"""docs/errors.md: every error, its cause, its exit code, and the sentences it is raised with."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache

from marpack.errors import ExitCode, MarpackError
from tools.reference.page import NOTE, ROOT, escaped, page


def errors() -> str:
    """Return every error there is, with its cause, its exit code, and the sentences it is raised with."""
    sentences = messages()
    parts = [
        "# Errors",
        (
            "Every error has a code, a sentence that says what is wrong, a place, and a hint: a command or an edit."
            " In the sentences below, … stands for names and numbers. A code in front of a sentence replaces the code"
            " in the heading. Findings, which do not end a command, have codes of their own: see"
            " [Findings](findings.md). With `--json` (or `--jsonl`), an error is an object on stdout, too (`Failure` in"
            " each of [schemas/](schemas/inspect.json))."
        ),
        "| exit code | |\n|---|---|\n" + "\n".join(f"| {code.value} | {text} |" for code, text in EXIT_CODES.items()),
        NOTE,
    ]
    for kind in sorted(subclasses(MarpackError), key=lambda kind: (kind.exit_code, kind.code)):
        parts += [f"## {kind.code}", cause(kind), f"*Exit code* {kind.exit_code.value}. *Way out:* {kind.fix}"]
        known = sorted(sentences.get(kind.__name__, {}).items())
        if known:
            parts.append("\n".join(f"- {code}{what}{hint}" for what, (code, hint) in known))
    return page(*parts)


EXIT_CODES = {
    ExitCode.OK: "everything is fine",
    ExitCode.SHORT: "something fell short: an input failed, a finding, a sample missed",
    ExitCode.USAGE: "the command line, or the project file",
    ExitCode.ARCHIVE: "not a readable, safe archive",
    ExitCode.HANDLER: "the handler could not be loaded or initialised",
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
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                hint, code = (next(texts(given[name]), "") if name in given else "" for name in ("hint", "code"))
                for what in texts(node.args[0]):
                    if len(what) > 12:  # more than a placeholder
                        told = (f"`{code}`: " if code else "", f"<br>*hint:* {escaped(hint)}" if hint else "")
                        found.setdefault(node.func.id, {})[escaped(what)] = told
    return found


def texts(node: ast.expr) -> Iterator[str]:
    """Yield what a text in the code may come out as, … standing for what is not known before."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
