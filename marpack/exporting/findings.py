"""What of an archive does not carry over, as findings; each target adds its own."""

from collections.abc import Iterator

from marpack.exporting.plan import Export
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code

NEEDS_TRUST = Code(
    "export-needs-trust",
    "The archive's weights load only for those who trust their maker as they trust code; the export does not say so.",
    "Save a state_dict or safetensors; or add --trust-pickle to the server's arguments.",
)
REQUIREMENT_LEFT_OUT = Code(
    "export-requirement-left-out",
    "A line of requirements.txt names a file of the archive, or an option of pip's, which stay behind.",
    "Name the package and its version, from an index that the image's build can reach.",
)
COMMON = (NEEDS_TRUST, REQUIREMENT_LEFT_OUT)


def common_findings(export: Export) -> Iterator[Finding]:
    """Yield what carries over nowhere."""
    if export.needs_trust:
        yield NEEDS_TRUST.warning("its pickles ask for trust, and the exported server gives none", str(export.archive))
    for line in export.requirements.left_out:
        yield REQUIREMENT_LEFT_OUT.warning(f"'{line}' is not installed there", "requirements.txt")
