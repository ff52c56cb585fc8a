"""docs/reference/differences.md: the two targets, from the one table in the code."""

from marpack.protocol.targets import TargetDifference
from tools.reference.page import NOTE, page

# What marpack leaves out under both targets: (what, on the server, in marpack).
LEFT_OUT = (
    (
        "a malformed form: a field without a name, a broken escape, an empty boundary, base64 sections",
        "500 or 403 with the text of a Java exception",
        "400 BadRequestException with the reason",
    ),
    ("the charset of a form, or of one of its fields", "500 or 403 for a charset that Java does not know", "ignored"),
    ("`multipart/mixed` sections within a form", "read", "400 with the reason"),
    ("a `Content-Length` within a form, and an extended `filename*`", "500 if it is wrong", "ignored"),
    (
        "parameters of `multipart/form-data` beyond the second, and boundaries with blanks around `=`",
        "the boundary is not found",
        "the boundary is found",
    ),
    (
        "headers of a handler that differ only in case",
        "the last in the order of a Java hash map is sent",
        "the one that was set last is sent",
    ),
    ("characters above U+FFFF in a header of a handler", "`??`", "`?`"),
    ("the reason phrase of a status without a standard one", "made up, such as `Client Error (499)`", "empty"),
    (
        "`sequenceBatching` without `sequenceMaxIdleMSec`",
        "500 NullPointerException",
        "500 InternalServerException that names the key",
    ),
)


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
        "## What marpack leaves out",
        "No known client or published handler depends on these points. They are the same under both targets.",
        "| | TorchServe | marpack |\n|---|---|---|\n" + "\n".join(f"| {' | '.join(row)} |" for row in LEFT_OUT),
        "How closely the first column was compared with a real server is told in"
        " [Conformance](../conformance.md). " + NOTE,
    )
