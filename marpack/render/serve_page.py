"""The page that a served model is tried on: one HTML file, its script, its style, and the answers drawn on it."""

from collections.abc import Mapping, Sequence

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from marpack.json_text import to_json
from marpack.project.scaffold.template import templates
from marpack.render.report.article import article
from marpack.runner.results import AnsweredInput
from marpack.serving.page import PageAsset, PageModel, PageState
from marpack.version import __version__

# The page's script copies this one to the style: its security policy forbids style in attributes, as answers are
# drawn from what a handler said.
_STYLE = "data-css"


class Page:
    """The page's renderer; the files are read once, when it is made."""

    def __init__(self) -> None:
        folder = templates() / "serve"
        # The report's colours and the look of its answers, and after them what only this page has.
        style = (templates() / "report" / "style.css").read_bytes() + (folder / "page.css").read_bytes()
        self._assets = {
            "page.css": PageAsset("text/css; charset=utf-8", style),
            "page.js": PageAsset("text/javascript; charset=utf-8", (folder / "page.js").read_bytes()),
        }
        loader = FileSystemLoader(folder)
        environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        self._template = environment.get_template("page.html.j2")

    def index(self, models: Sequence[PageModel]) -> bytes:
        """Return the page, in UTF-8, as it is before it asks for anything."""
        state = to_json(PageState(tuple(models))).decode()
        page = self._template.render(models=models, state=state, version=__version__)
        return page.encode("utf-8", "backslashreplace")

    def asset(self, name: str) -> PageAsset | None:
        """Return a file of the page's by its name under `/page/`, or None where there is none."""
        return self._assets.get(name)

    def draw(self, answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
        """Return the HTML of one input with its answer, without a style that the page's policy forbids."""
        return article(answered, labels, handler, style=_STYLE)
