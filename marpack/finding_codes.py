"""Every finding code of marpack: its severity, its messages, its hint and its explanation.

`docs/findings.md` is printed from this table. `Code.at` makes a finding of a row.
"""

from marpack.findings import Code, Severity

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

# Content of an archive ------------------------------------------------------------------------------------------------

_COPY_AGAIN = "Copy or download the archive again. If the finding stays, the archive was changed after it was built."
DAMAGED_MEMBER = Code(
    "damaged-member",
    _ERROR,
    "{reason}",
    _COPY_AGAIN,
    "A member cannot be read, or its CRC is wrong: the archive is damaged.",
)
DIGEST_MISMATCH = Code(
    "digest-mismatch",
    _ERROR,
    "its SHA-256 is {found}, MAR-INF/marpack.json says {recorded}",
    _COPY_AGAIN,
    "A member differs from the one that MAR-INF/marpack.json records: the archive was changed after it was built.",
)
SIZE_MISMATCH = DIGEST_MISMATCH.saying("it has {found:,} bytes, MAR-INF/marpack.json says {recorded:,}")
UNLISTED_MEMBER = Code(
    "unlisted-member",
    _ERROR,
    "MAR-INF/marpack.json does not list this member",
    _COPY_AGAIN,
    "MAR-INF/marpack.json does not list a member, or cannot be read: the archive was changed after it was built.",
)
INDEX_UNREADABLE = UNLISTED_MEMBER.saying("{reason}")
MISSING_MEMBER = Code(
    "missing-member",
    _ERROR,
    "MAR-INF/marpack.json lists {name}, which is not in the archive",
    _COPY_AGAIN,
    "MAR-INF/marpack.json lists a member that is not in the archive: the archive was changed after it was built.",
)
_PLAIN_VALUES = "Write plain values and build the archive again: marpack build."
LABELS_UNREADABLE = Code(
    "labels-unreadable",
    _ERROR,
    "the labels cannot be read: {problem}",
    _PLAIN_VALUES,
    "index_to_name.json is not a JSON object of class index to label. The server cannot load the model.",
)
CONFIG_HOSTILE = Code(
    "config-hostile",
    _ERROR,
    "the model config is refused: {problem}",
    _PLAIN_VALUES,
    "The model config contains YAML aliases or tags that can exhaust memory or create objects when it is loaded.",
)
PROGRAM = Code(
    "program",
    _NOTE,
    "{count}, which marpack cannot judge: {names}",
    "Load it only if you trust its author.",
    "The archive contains native or generated code. Only `--require-safe` refuses it; `--trust-native` accepts it.",
)
