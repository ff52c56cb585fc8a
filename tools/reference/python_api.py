"""docs/reference/python-api.md: the public names, as their docstrings tell them."""

import inspect
import re
from collections.abc import Iterator

import msgspec

from tools.reference.page import NOTE, page

FIELD = re.compile(r"^    (\w+): .*?  # (?!noqa|type:|Any:)(.+)$", re.MULTILINE)
WIDTH = 100  # characters of a signature on one line
SENT = """Each input of `predict`, `predict_batch`, `predict_many`, `run` and `check`, and each field of a `form`:

| value | body | content type |
|---|---|---|
| `Path` | the file's bytes | by its suffix, then its first bytes |
| `str` | the text, in UTF-8; never a file of that name, which the answer's notes then tell | `text/plain` |
| `bytes`, `bytearray`, `memoryview` | themselves | none |
| PIL image | a PNG; modes that PNG has not are converted | `image/png` |
| numpy array, torch tensor | nested lists, or a number where it has no dimensions | `application/json` |
| anything else that JSON holds | JSON | `application/json` |
| `None` | nothing | none |

What is none of these, and a number that JSON has not (NaN, Infinity), is a `UsageError` that tells where it stands.
In a form, text has no content type."""
RETURNED = (
    "Each has `to_dict()`, a `repr` of one line, and the fields of its command's JSON. An `Answer` has `ok`, `raw`"
    " (bytes) and `json()`, too."
)
RESULTS = ("InitReport", "BuildReport", "Inspection", "Diff", "Unpacked", "GateReport", "RunReport", "Answer")


def python_api() -> str:
    """Return the public functions and classes, as their docstrings tell them."""
    import marpack
    from marpack import testing
    from marpack.api import results

    parts = [
        "# Python API",
        (
            "The commands are functions, too, by the same names, with the options by theirs. Everything below is typed"
            " and stable; importing `marpack` costs nothing until a function is called, and torch is only ever imported"
            " in the worker process. A `Name` is a path or an address: `str`, or a `Path`. Nothing is printed;"
            " `MARPACK_CACHE_DIR` and `SOURCE_DATE_EPOCH` hold as for the commands."
        ),
        (
            '```python\nfrom pathlib import Path\n\nimport marpack\n\nbuilt = marpack.build("examples/digits")\n'
            "print(built.path, built.content_digest[:14])\n\n"
            "print(marpack.check(built.path).deployable)\n\n"
            "with marpack.load(built.path) as model:\n"
            '    answer = model.predict(Path("examples/digits/samples/seven.png"))\n'
            "    print(answer.status, max(answer.json(), key=answer.json().get))\n```"
        ),
        (
            "What they return is frozen, has `to_dict()` in the shape that the command writes with `--json`"
            " (schemas: [build](../schemas/build.json), [check](../schemas/check.json), [diff](../schemas/diff.json),"
            " [init](../schemas/init.json), [inspect](../schemas/inspect.json), [pull](../schemas/pull.json),"
            " [push](../schemas/push.json), [run](../schemas/run.json),"
            " [unpack](../schemas/unpack.json)), and shows itself in a notebook: the tables of the commands, and each"
            " answer with its picture, class bars, boxes or mask. `examples/notebook.ipynb` has ten cells of it."
        ),
    ]
    names = ("init", "build", "plan_build", "open", "inspect", "diff", "unpack", "check", "run", "load", "push", "pull")
    for name in names:
        parts += function(f"marpack.{name}", getattr(marpack, name))
    parts += klass("marpack.Model", marpack.Model)
    parts += fields("marpack.RawRequest", marpack.RawRequest)
    parts += called("marpack.Scorer", marpack.Scorer)
    parts += fields("marpack.RowMapping", marpack.RowMapping)
    parts += ["## What is sent", SENT, "## What they return", RETURNED]
    for made in RESULTS:
        parts += fields(made, getattr(results, made))
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


def called(name: str, made: type) -> list[str]:
    """Return a class that is made for being called."""
    about, *methods = klass(name, made)[1:]
    signature = f"{name}{shown_signature(made)}"
    return [
        f"## {name}",
        f"```{{ .python .excerpt }}\n{signature}\n```",
        about,
        f"### {name}.\\_\\_call\\_\\_",
        f"```{{ .python .excerpt }}\nscorer{shown_signature(vars(made)['__call__'])}\n```",
        docstring(vars(made)["__call__"]),
        *methods,
    ]


def fields(name: str, made: type) -> list[str]:
    said = comments(made)
    rows = "\n".join(
        f"| `{each.name}` | `{kind(each.type)}` | {said.get(each.name, '')} |" for each in msgspec.structs.fields(made)
    )
    return [f"### {name}", docstring(made), f"| field | | |\n|---|---|---|\n{rows}"]


def comments(made: type) -> dict[str, str]:
    """Return what stands behind each field's line."""
    found: dict[str, str] = {}
    for each in reversed(made.__mro__):
        if each.__module__.startswith("marpack."):
            found |= dict(FIELD.findall(inspect.getsource(each)))
    return {name: plain(text) for name, text in found.items()}


def plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def kind(hint: object) -> str:
    text = (
        getattr(hint, "__name__", "") if isinstance(hint, type) and not getattr(hint, "__args__", None) else str(hint)
    )
    text = re.sub(r"\b(marpack\.(protocol\.messages|torchserve\.http|torchserve|findings)|pathlib|typing)\.", "", text)
    return text.replace("|", "\\|")


class Written:
    """An annotation as it is written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def shown_signature(made: object) -> str:
    """Return a signature as it is written, a parameter a line where one line is too short."""
    signature = inspect.signature(made)  # type: ignore[arg-type]
    parameters = [as_written(each) for each in signature.parameters.values()]
    returned = signature.return_annotation
    signature = signature.replace(
        parameters=parameters, return_annotation=Written(returned) if isinstance(returned, str) else returned
    )
    line = short(str(signature))
    if len(line) <= WIDTH or len(parameters) < 3:
        return line
    lines = [f"    {short(each)}," for each in parameter_lines(parameters)]
    return "\n".join(["(", *lines, f"){line.rpartition(')')[2]}"])


def as_written(parameter: inspect.Parameter) -> inspect.Parameter:
    hint = parameter.annotation
    text = hint if isinstance(hint, str) else str(hint)
    if text.startswith("typing.Optional["):
        text = f"{text.removeprefix('typing.Optional[')[:-1]} | None"
    elif not isinstance(hint, str):
        return parameter
    return parameter.replace(annotation=Written(text))


def parameter_lines(parameters: list[inspect.Parameter]) -> Iterator[str]:
    keywords = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "*"
        yield str(each)


def short(text: str) -> str:
    for prefix in (
        "marpack.api.results.",
        "results.",
        "marpack.archive.protocol.",
        "marpack.torchserve.context.",
        "collections.abc.",
        "pathlib._local.",
        "pathlib.",
        "typing.",
    ):
        text = text.replace(prefix, "")
    return text.replace("'Model'", "Model").replace("str | os.PathLike[str]", "Name")


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
