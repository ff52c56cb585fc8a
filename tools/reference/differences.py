"""docs/reference/differences.md: the two targets, from the one table in the code."""

from marpack.protocol.targets import TargetDifference
from tools.reference.page import NOTE, page


def differences() -> str:
    """Return every point in which target marpack differs from the server."""
    rows = "\n".join(f"| {each.what} | {each.torchserve} | {each.marpack} |" for each in TargetDifference)
    return page(
        "# The two targets",
        "marpack answers as TorchServe 0.12, the last release, answers: same rows into the handler, same bytes and"
        " status out, its failures included. That is `target: torchserve`, the default. What marpack adds, it adds"
        " *beside* the answer: the true traceback, the reason, the way out.",
        "Those who serve with marpack's own runtime can set `target: marpack` in `marpack.yaml`, or `--target"
        " marpack`. These are all the differences; each is held by a test for both targets, and everything else"
        " is the same.",
        f"| | `torchserve` | `marpack` |\n|---|---|---|\n{rows}",
        "How closely the first column was compared with a real server is told in"
        " [Conformance](../conformance.md). " + NOTE,
    )
