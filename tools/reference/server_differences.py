"""docs/reference/serve-differences.md: marpack serve and the original server, from the one table in the code."""

from marpack.serving.differences import ServerDifference
from tools.reference.page import NOTE, page


def server_differences() -> str:
    """Return every point in which marpack serve differs from the original server."""
    return page(
        "# `marpack serve` and TorchServe",
        "A TorchServe's clients, its start line, its config.properties and its model store find the same server:"
        " routes, statuses, bodies, headers and batches are those of TorchServe 0.12. Where the original harms whoever"
        " runs it, `marpack serve` does better. These are all the differences.",
        "`--compat torchserve` brings some of them back, for clients that depend on them; never one that is safety.",
        _table(),
        "How the rest was compared with a real server is told in [Conformance](../conformance.md). " + NOTE,
    )


def _table() -> str:
    rows = (
        f"| {each.what} | {each.original} | {each.ours} | {each.why} | {'back' if each.brought_back else ''} |"
        for each in ServerDifference
    )
    return "\n".join(("| | TorchServe 0.12 | `marpack serve` | why | `--compat` |\n|---|---|---|---|---|", *rows))
