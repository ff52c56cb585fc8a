"""The templates of `marpack init`: their files, and the texts rendered from them."""

from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from marpack.errors import UsageError
from marpack.project.schema import SampleSpec
from marpack.project.yaml_edits import flow

_FOLDER = "init"
_ABOUT = "template.yaml"


def templates() -> Path:
    """Return the folder of the Jinja2 templates: in an installed package, or in the root of a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


class Template(Struct, frozen=True, kw_only=True):
    """One kind of project."""

    title: str  # its input and output, on one line
    handler: str = "handler.py"  # as marpack.yaml names it
    weights: str = ""  # the toy model's file
    takes: str  # pictures, numbers or text: the kind of its samples
    model: str = ""  # a description of the toy model
    test: str = ""  # Python: the test of the toy model
    handler_import: str = ""  # for that test
    handler_test: str = ""  # Python: the test of its handler
    samples: list[SampleSpec] = []
    files: list[str] = []
    requirements: str | None = None
    reads_pictures: bool = False  # its handler can be written for pictures instead of numbers
    source: str = "handler"  # the stem of its handler's template
    suffixes: list[str] = []  # of inputs in the folder that can be samples; empty: any
    folder: Path = Path()

    @property
    def name(self) -> str:
        """The template's name."""
        return self.folder.name

    def read(self, name: str) -> bytes:
        """Return one of the template's files."""
        return (self.folder / name).read_bytes()


def template_names() -> list[str]:
    """Return the names of the templates."""
    return sorted(path.parent.name for path in (templates() / _FOLDER).glob(f"*/{_ABOUT}"))


def load_template(name: str, task: str | None = None) -> Template:
    """Read one of `template_names`, or the template of a Hugging Face `task`; raises UsageError for an unknown name."""
    folder = templates() / _FOLDER / name
    if task is None and name not in template_names():
        raise UsageError(f"unknown template '{name}'", hint=f"Choose one of {', '.join(template_names())}.")
    about = yaml.safe_load((folder / ("tasks.yaml" if task else _ABOUT)).read_bytes())
    found = msgspec.convert(about[task] if task else about, Template)
    return msgspec.structs.replace(found, folder=folder, source=task or "handler")


def render(name: str, values: dict[str, Any]) -> bytes:  # Any: each variable of the templates has its type
    """Return a template file below `init/` with its values; a missing value is an error."""
    import jinja2  # noqa: PLC0415 - no other command needs it

    environment = jinja2.Environment(  # noqa: S701 - YAML, Python and Markdown, never HTML
        loader=jinja2.FileSystemLoader(templates() / _FOLDER),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "flow": flow,
        # In double quotes, YAML reads no text as a number.
        "quoted": lambda text: yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 20).strip(),
        "python": lambda value: msgspec.json.encode(value).decode().replace('","', '", "'),  # texts and lists of them
    }
    return f"{environment.get_template(name).render(values).strip()}\n".encode()
