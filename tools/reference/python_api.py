"""docs/reference/python-api.md: the public names, as their docstrings tell them."""

import inspect

import msgspec

from tools.reference.page import NOTE, page


def python_api() -> str:
    """Return the public functions and classes, as their docstrings tell them."""
    from marpack import api, testing
    from marpack.project.plan import Built
    from marpack.runner.results import Result

    parts = [
        "# Python API",
        (
            "The commands are functions, too. Everything below is typed and stable; importing `marpack` costs nothing"
            " until a function is called, and torch is only ever imported in the worker process."
        ),
        (
            '```python\nimport marpack\n\nbuilt = marpack.build("examples/digits")\n'
            "print(built.path.name, built.digest[:14])\n\nwith marpack.open(built.path) as archive:\n"
            "    print(archive.manifest.model.handler, len(archive.entries))\n\n"
            "with marpack.load(built.path) as model:\n"
            '    answer = model.predict("examples/digits/samples/seven.png")\n'
            "    print(answer.status, max(answer.json(), key=answer.json().get))\n```"
        ),
    ]
    for name in ("build", "open", "load"):
        parts += function(f"marpack.{name}", getattr(api, name))
    parts += klass("marpack.Model", api.Model)
    parts += ["## What they return", *fields("Built", Built), *fields("Result", Result)]
    parts += ["## marpack.testing", "For the tests of a handler's author."]
    for name in testing.__all__:
        parts += function(f"marpack.testing.{name}", getattr(testing, name))
    parts += [
        "## Errors",
        (
            "All of them are of one tree, `marpack.errors.MarpackError`, and have `what`, `where`, `hint`, `code` and"
            " `exit_code`: see [Errors](../errors.md)."
        ),
        NOTE,
    ]
    return page(*parts)


def function(name: str, made: object) -> list[str]:
    signature = f"{name}{shown_signature(made)}"
    return [f"### {name}", f"```{{ .python .excerpt }}\n{signature}\n```", docstring(made)]


def klass(name: str, made: type) -> list[str]:
    parts = [f"## {name}", docstring(made)]
    for method, value in vars(made).items():
        if method.startswith("_"):
            continue
        if isinstance(value, property):
            parts += [f"### {name}.{method}", docstring(value)]
        else:
            parts += [
                f"### {name}.{method}",
                f"```{{ .python .excerpt }}\n{method}{shown_signature(value)}\n```",
                docstring(value),
            ]
    return parts


def fields(name: str, made: type) -> list[str]:
    rows = "\n".join(f"| `{each.name}` | `{kind(each.type)}` |" for each in msgspec.structs.fields(made))
    return [f"### {name}", docstring(made), f"| field | |\n|---|---|\n{rows}"]


def kind(hint: object) -> str:
    text = (
        getattr(hint, "__name__", "") if isinstance(hint, type) and not getattr(hint, "__args__", None) else str(hint)
    )
    for prefix in ("marpack.torchserve.messages.", "marpack.findings.", "pathlib.", "typing.", "marpack.torchserve."):
        text = text.replace(prefix, "")
    return text.replace("|", "\\|")


def shown_signature(made: object) -> str:
    text = str(inspect.signature(made)) if callable(made) else ""
    for prefix in (
        "marpack.archive.protocol.",
        "marpack.project.plan.",
        "marpack.runner.results.",
        "marpack.torchserve.context.",
        "collections.abc.",
        "pathlib._local.",
        "pathlib.",
        "typing.",
    ):
        text = text.replace(prefix, "")
    return text.replace("'Model'", "Model")


def docstring(made: object) -> str:
    """Return a docstring as Markdown: its indented parts as lists."""
    lines = (inspect.getdoc(made) or "").splitlines()
    out: list[str] = []
    for line in lines:
        if line in {"Args:", "Returns:", "Raises:"}:
            out += [f"*{line[:-1]}*", ""]
        elif line.startswith("    ") and not line.startswith("     "):
            name, colon, text = line.strip().partition(": ")
            out.append(f"- `{name}`: {text}" if colon and " " not in name.replace(", ", ",") else f"- {line.strip()}")
        else:
            out.append(line)
    return "\n".join(out)
