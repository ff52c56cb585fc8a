"""The templates of `marpack init`: what each brings along, and the texts made from it."""

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
_WIDE = 1 << 20  # columns: no line is ever folded


def templates() -> Path:
    """Return the folder of the Jinja2 templates: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


class Template(Struct, frozen=True, kw_only=True):
    """One kind of project."""

    title: str  # what goes in and what comes out, on one line
    handler: str  # as marpack.yaml names it
    weights: str  # the toy model's file
    takes: str  # pictures, numbers or text: what its samples are
    model: str  # what the toy model does
    test: str  # Python: what the toy model must answer
    handler_import: str = ""  # what that test needs of the handler
    handler_test: str = ""  # Python: what its handler's stages must do
    samples: list[SampleSpec] = []
    files: list[str] = []
    requirements: str | None = None
    reads_pictures: bool = False  # its handler can be written for pictures instead of numbers
    folder: Path = Path()

    @property
    def name(self) -> str:
        """The template's name."""
        return self.folder.name

    @property
    def built_in(self) -> bool:
        """Whether its handler is the server's own."""
        return ".py" not in self.handler

    def read(self, name: str) -> bytes:
        """Return one of the files that it brings along."""
        return (self.folder / name).read_bytes()


def template_names() -> list[str]:
    """Return the names there are."""
    return sorted(path.parent.name for path in (templates() / _FOLDER).glob(f"*/{_ABOUT}"))


def load_template(name: str) -> Template:
    """Read one template; see `template_names`. Raises UsageError if there is none of that name."""
    folder = templates() / _FOLDER / name
    if name not in template_names():
        raise UsageError(f"there is no template '{name}'", hint=f"one of {', '.join(template_names())}")
    found = msgspec.convert(yaml.safe_load((folder / _ABOUT).read_bytes()), Template)
    return msgspec.structs.replace(found, folder=folder)


def render(name: str, values: dict[str, Any]) -> bytes:  # Any: what the templates ask for
    """Return the text that a template file below `init/` makes of some values; one that is missing is an error."""
    import jinja2  # noqa: PLC0415 - no other command needs it

    source = jinja2.FileSystemLoader(templates() / _FOLDER)
    environment = jinja2.Environment(  # noqa: S701 - YAML, Python and Markdown, never HTML
        loader=source, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["flow"] = flow
    environment.filters["quoted"] = _quoted
    environment.filters["python"] = _python
    text = environment.get_template(name).render(values)
    return f"{text.strip()}\n".encode()


def _quoted(text: str) -> str:
    """Return a text as YAML would never take for a number."""
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=_WIDE).strip()


def _python(value: Any) -> str:  # Any: texts and lists of them
    """Return a value as Python code."""
    return msgspec.json.encode(value).decode().replace('","', '", "')
