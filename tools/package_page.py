"""What an index shows on the package's page: README.md, whose links lead into the repository, and addresses.

A metadata hook of hatchling's. Its `repository` in pyproject.toml is the one place for the repository's address; while
that is empty, README.md stays as it is, and there are no addresses.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(?<=\]\()(?!#|[a-z]+:)[^)\s]+(?=\))")  # what a link or a picture of Markdown leads to


def absolute(text: str, repository: str, version: str) -> str:
    """Return a page of Markdown whose relative links lead to the files of a version."""

    def lead(link: re.Match[str]) -> str:
        return f"{repository}/{'raw' if link[0].endswith(('.svg', '.png')) else 'blob'}/v{version}/{link[0]}"

    return RELATIVE.sub(lead, text)


class PackagePage(MetadataHookInterface):
    """Fills in `readme` and `urls` of pyproject.toml's [project], whose version is known by then."""

    def update(self, metadata: dict[str, Any]) -> None:  # Any: of TOML
        text, repository = Path(self.root, "README.md").read_text(encoding="utf-8"), self.config["repository"]
        if repository:
            text = absolute(text, repository, metadata["version"])
        beside = {"Homepage": "", "Documentation": "#documentation", "Issues": "/issues", "Releases": "/releases"}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {label: repository + place for label, place in beside.items() if repository}
