"""Where the Jinja2 templates lie: inside an installed package, beside it in a checkout."""

from pathlib import Path


def folder() -> Path:
    """Return the folder of the templates."""
    package = Path(__file__).parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"
