"""docs/reference/python-api.md: the public names, from their docstrings."""

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from tools.reference.page import NOTE, escaped, page

FIELD = re.compile(r"^    (\w+): .*?  # (?!noqa|type:|Any:)(.+)$", re.MULTILINE)
_FEWEST = 2  # functions that share an argument
WIDTH = 78  # characters of a signature on one line
SENT = """Each input of `predict`, `predict_batch`, `predict_many`, `run` and `check`, and each field of a `form`:

| value | body | content type |
|---|---|---|
| `Path` | the file's bytes | by its suffix, then its first bytes |
| `str` | the text, in UTF-8; never a file of that name | `text/plain` |
| `bytes`, `bytearray`, `memoryview` | the bytes | none |
| PIL image | a PNG | `image/png` |
| numpy array, torch tensor | nested lists, or a number | `application/json` |
| other values that JSON has | JSON | `application/json` |
| `None` | nothing | none |

Other values, and NaN and Infinity, raise a `UsageError`. In a form, text has no content type."""
RETURNED = (
    "Results are frozen. Each has `to_dict()`, a `repr` of one line, and the fields of its command's JSON. An `Answer`"
    " also has `ok`, `raw` (bytes) and `json()`."
)
RESULTS = ("InitReport", "BuildReport", "Inspection", "Diff", "Unpacked", "GateReport", "RunReport", "Answer")


def python_api() -> str:
    """Return the page of the public functions and classes."""
    import marpack
    from marpack import testing
    from marpack.api import results

    parts = [
        "# Python API",
        (
            "Each command is a function of the same name with the same options. Importing `marpack` loads nothing until"
            " a function is called, and only worker processes import torch. A `Name` is a path or an address: `str` or"
            " `Path`. Functions print nothing. `MARPACK_CACHE_DIR` and `SOURCE_DATE_EPOCH` apply as to the commands."
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
            "Schemas of the results: [build](../schemas/build.json), [check](../schemas/check.json),"
            " [diff](../schemas/diff.json), [init](../schemas/init.json), [inspect](../schemas/inspect.json),"
            " [run](../schemas/run.json), [unpack](../schemas/unpack.json). In a notebook, results show the tables of"
            " the commands, and answers their pictures: see `examples/notebook.ipynb`."
        ),
    ]
    names = ("init", "build", "open", "inspect", "diff", "unpack", "check", "run", "load")
    operations = {f"marpack.{name}": getattr(marpack, name) for name in names}
    shared = shared_arguments([*operations.values(), marpack.Scorer.__init__])
    parts += [
        "## Functions",
        "### Shared arguments",
        (
            "Several functions have these arguments. `source` is an archive, a project or an address, by default the"
            " project in the current folder. The [options of the same names](commands.md) explain the others. Sizes"
            " are in bytes, and times in seconds."
        ),
        "\n".join(f"- `{parameter}`" for parameter in shared),
    ]
    for name, made in operations.items():
        parts += function(name, made, shared)
        if made is marpack.build:
            plan = docstring(marpack.plan_build).partition("*Args*")[0].strip()
            parts += [
                "### marpack.plan_build",
                f"{plan}\n\nThe arguments are those of `build`; the result is a `BuildPlan`.",
            ]
    parts += klass("marpack.Model", marpack.Model)
    parts += fields("marpack.RawRequest", marpack.RawRequest)
    parts += called("marpack.Scorer", marpack.Scorer, shared)
    parts += fields("marpack.RowMapping", marpack.RowMapping)
    parts += ["## What is sent", SENT, "## What they return", RETURNED]
    for made in RESULTS:
        heading, about, *listed = fields(made, getattr(results, made))
        parts += [heading, re.sub(r", (with )?the fields of .*", ".", about), *listed]
    parts += ["## marpack.testing", "Functions for the tests of a handler."]
    for name in testing.__all__:
        parts += function(f"marpack.testing.{name}", getattr(testing, name))
    parts += [
        "## Errors",
        (
            "[Errors](../errors.md) derive from `marpack.errors.MarpackError`, and have `what`, `where`, `hint`, `code`"
            " and `exit_code`."
        ),
        NOTE,
    ]
    return page(*parts)


Shared = dict[str, str]  # an argument with its type and default, as in a signature → its meaning


def shared_arguments(operations: list[Callable[..., object]]) -> Shared:
    """Return the arguments that several functions have with the same type, default and meaning."""
    found: Counter[tuple[str, str]] = Counter()
    for each in operations:
        texts = argument_texts(each)
        own = [each for each in inspect.signature(each).parameters.values() if each.name in texts]
        found.update((short(str(as_written(parameter))), texts[parameter.name]) for parameter in own)
    return {parameter: text for (parameter, text), count in found.items() if count >= _FEWEST}


def argument_texts(made: object) -> dict[str, str]:
    """Return the description of each argument in a docstring."""
    return dict(re.findall(r"^    (\w+): (.+)$", inspect.getdoc(made) or "", re.MULTILINE))


def function(name: str, made: Callable[..., object], shared: Shared | None = None) -> list[str]:
    shared = shared or {}
    also = shared_names(made, shared)
    signature = f"{name}{shown_signature(made, shared)}"
    note = f"Shared arguments: {', '.join(f'`{each}`' for each in also)}." if also else ""
    return [f"### {name}", f"```{{ .python .excerpt }}\n{signature}\n```", docstring(made, also), note]


def shared_names(made: Callable[..., object], shared: Shared) -> list[str]:
    """Return the arguments of a function that are explained elsewhere."""
    parameters = inspect.signature(made).parameters.values()
    return [each.name for each in parameters if short(str(as_written(each))) in shared]


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


def called(name: str, made: type, shared: Shared) -> list[str]:
    """Return a class with `__call__`."""
    about, *methods = klass(name, made)[1:]
    signature = f"{name}{shown_signature(made, shared)}"
    return [
        f"## {name}",
        f"```{{ .python .excerpt }}\n{signature}\n```",
        about,
        f"Shared arguments: {', '.join(f'`{each}`' for each in shared_names(made, shared))}.",
        f"### {name}.\\_\\_call\\_\\_",
        f"```{{ .python .excerpt }}\nscorer{shown_signature(vars(made)['__call__'])}\n```",
        docstring(vars(made)["__call__"]),
        *methods,
    ]


def fields(name: str, made: type) -> list[str]:
    """Return the fields of a struct: first those whose names say enough."""
    texts = comments(made)
    shown = {each.name: f"`{each.name}: {kind(each.type)}`" for each in msgspec.structs.fields(made)}
    plain_ones = ", ".join(field for name, field in shown.items() if name not in texts)
    explained = "\n".join(f"- {field}: {texts[name]}" for name, field in shown.items() if name in texts)
    return [f"### {name}", docstring(made), plain_ones and f"Fields: {plain_ones}.", explained]


def comments(made: type) -> dict[str, str]:
    """Return the comment of each field."""
    found: dict[str, str] = {}
    for each in reversed(made.__mro__):
        if each.__module__.startswith("marpack."):
            found |= dict(FIELD.findall(inspect.getsource(each)))
    return {name: plain(text) for name, text in found.items()}


def plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[")


def kind(hint: object) -> str:
    is_class = isinstance(hint, type) and not getattr(hint, "__args__", None)
    text = getattr(hint, "__name__", "") if is_class else str(hint)
    return re.sub(r"\b(marpack|pathlib|typing)\.([a-z_]+\.)*(?=[A-Z])", "", text)


class Written:
    """An annotation as it is written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def shown_signature(made: Callable[..., object], shared: Shared | None = None) -> str:
    """Return a signature as it is written, without shared arguments; with several parameters, one on each line."""
    signature = inspect.signature(made)
    parameters = [as_written(each) for each in signature.parameters.values()]
    parameters = [
        each for each in parameters if short(str(each)) not in (shared or {}) or each.kind is not each.KEYWORD_ONLY
    ]
    returned = signature.return_annotation
    signature = signature.replace(
        parameters=parameters, return_annotation=Written(returned) if isinstance(returned, str) else returned
    )
    line = short(str(signature))
    if len(line) <= WIDTH or len(parameters) < 3:
        return line
    lines = [wrapped(f"    {short(each)},") for each in parameter_lines(parameters)]
    return "\n".join(["(", *lines, f"){line.rpartition(')')[2]}"])


def wrapped(line: str) -> str:
    """Return a parameter's line; the values of a long Literal are on lines of their own."""
    start, bracket, values = line.partition("Literal[")
    if len(line) <= WIDTH or not bracket:
        return line
    values, end, rest = values.partition("]")
    indent = " " * 8
    inner = textwrap.fill(values, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f"{start}{bracket}\n{inner}\n    {end}{rest}"


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
        "marpack.scoring.mapping.",
        "marpack.torchserve.context.",
        "collections.abc.",
        "pathlib._local.",
        "pathlib.",
        "typing.",
    ):
        text = text.replace(prefix, "")
    return text.replace("'Model'", "Model").replace("str | os.PathLike[str]", "Name")


def docstring(made: object, skipped: Sequence[str] = ()) -> str:
    """Return a docstring as Markdown: its indented parts as lists, without the skipped arguments."""
    lines = (inspect.getdoc(made) or "").splitlines()
    out: list[str] = []
    for line in lines:
        if line.startswith("    ") and line.strip().partition(":")[0] in skipped:
            continue
        if line in {"Args:", "Returns:", "Raises:"}:
            out += [f"*{line[:-1]}*", ""]
        elif line.startswith("    ") and not line.startswith("     "):
            name, colon, text = line.strip().partition(": ")
            is_named = colon and " " not in name.replace(", ", ",")
            out.append(f"- `{name}`: {escaped(text)}" if is_named else line.strip())
        else:
            out.append(line)
    return "\n".join(out)
