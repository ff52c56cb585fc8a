"""The version of marpack, its installation command and the address of its docs, each in one place."""

__version__ = "0.2.0"

# No package index has a release: extras are installed from a checkout.
INSTALL = "pip install '.[{extra}]'"
UPGRADE = "Update your checkout of marpack, and run in it: pip install ."
DOCS_URL = ""  # of the site; while it is empty, no message links to it


def install_hint(extra: str) -> str:
    """Return how to install an extra."""
    return f"Run {INSTALL.format(extra=extra)} in a checkout of marpack."


def docs_link(page: str) -> str:
    """Return the address of a page of the docs, or "" while there is no site."""
    return DOCS_URL and f"{DOCS_URL.rstrip('/')}/{page}"
