"""docs/reference/differences.md: the two targets, from the table in the code."""

from marpack.protocol.targets import TargetDifference
from tools.reference.page import NOTE, page

# Differences of both targets: (situation, TorchServe, marpack).
LEFT_OUT = (
    (
        "a malformed form: a field without a name, a broken escape, an empty boundary, base64 sections",
        "500 or 403 with a Java exception",
        "400 `BadRequestException` with the reason",
    ),
    ("the charset of a form, or of one of its fields", "500 or 403 for a charset that Java does not know", "ignored"),
    ("`multipart/mixed` sections within a form", "read", "400 with the reason"),
    ("a `Content-Length` within a form, and an extended `filename*`", "500 if it is wrong", "ignored"),
    (
        "more than two parameters of `multipart/form-data`, and boundaries with spaces around `=`",
        "the boundary is not found",
        "the boundary is found",
    ),
    (
        "handler headers that differ only in case",
        "the last one in the order of a Java hash map",
        "the one that was set last",
    ),
    ("characters above U+FFFF in a handler's header", "`??`", "`?`"),
    ("the reason phrase of a status without a standard one", "invented, such as `Client Error (499)`", "empty"),
    (
        "`sequenceBatching` without `sequenceMaxIdleMSec`",
        "500 `NullPointerException`",
        "500 `InternalServerException` that names the key",
    ),
)


def differences() -> str:
    """Return every difference between the targets, and between both and the server."""
    rows = "\n".join(f"| {each.what} | {each.torchserve} | {each.marpack} |" for each in TargetDifference)
    return page(
        "# The two targets",
        "To choose between the targets `torchserve` and `marpack`, compare them in this table. Target `torchserve`, the"
        " default, has the rows, bytes, statuses and failures of TorchServe 0.12, its last release. Target `marpack` is"
        " for models that marpack itself serves: set `target: marpack` in `marpack.yaml`, or `--target marpack`.",
        "Everything else is the same. marpack reports exceptions, reasons and hints beside the response, with both"
        " targets.",
        f"| situation | `torchserve` | `marpack` |\n|---|---|---|\n{rows}",
        "## What marpack leaves out",
        "No known client or published handler depends on these differences, which apply to both targets.",
        "| situation | TorchServe | marpack |\n|---|---|---|\n"
        + "\n".join(f"| {' | '.join(row)} |" for row in LEFT_OUT),
        "[Conformance](../conformance.md) describes the comparison with a real server. " + NOTE,
    )
