"""The findings about native and generated code in an archive."""

from collections.abc import Sequence

from marpack.findings import Finding, Severity
from marpack.weights.programs import Program

CODE = "program"
_SHOWN = 5  # places in a message; all of them are in the facts


def program_findings(programs: Sequence[Program], source: str, *, refused: bool = False) -> tuple[Finding, ...]:
    """Return one finding about all programs of an archive, and none for an archive without programs.

    Args:
        programs: Native and generated code.
        source: The archive.
        refused: The finding is an error, as somebody asked for an archive without programs.
    """
    if not programs:
        return ()
    shown = ", ".join(f"{program.where} ({program.kind})" for program in programs[:_SHOWN])
    more = f" and {len(programs) - _SHOWN:,} more" if len(programs) > _SHOWN else ""
    count = "1 file is a program" if len(programs) == 1 else f"{len(programs):,} files are programs"
    finding = Finding(
        code=CODE,
        severity=Severity.ERROR if refused else Severity.NOTE,
        message=f"{count}, which marpack cannot judge: {shown}{more}",
        where=f"{source}!{programs[0].where}" if len(programs) == 1 else source,
        hint="if you trust its author, pass --trust-native" if refused else "load it only if you trust its author",
    )
    return (finding,)
