"""Native and generated code in an archive: a quick search, and the finding about it."""

from collections.abc import Iterator, Sequence

from marpack.archive.protocol import Archive
from marpack.findings import Finding, Severity
from marpack.weights.programs import Program, named_kind, package_kind, program_kind
from marpack.weights.zip_entries import NotZipError, read_directory

CODE = "program"
_SHOWN = 5  # places in a message; all of them are in the facts
_HEAD = 512  # bytes of each member
_ZIP = b"PK"


def find_programs(archive: Archive) -> Iterator[Program]:
    """Yield the members that are programs, and the zips among the members that hold some by name.

    This reads the first bytes of each member and the directory of each zip. `inspect` reads all of them.
    """
    for name in archive.entries:
        with archive.open(name) as file:
            head = file.read(_HEAD)
            if kind := program_kind(name, head, file):
                yield Program(name, kind)
            if not head.startswith(_ZIP):
                continue
            try:
                entries = read_directory(file)
            except NotZipError:
                continue
        if package := package_kind(entries):
            yield Program(name, package)
        for entry in entries:
            if inside := named_kind(entry.name):
                yield Program(f"{name}!{entry.name}", inside)


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
