"""The command `marpack inspect`."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import click

from marpack.cli.completion import sources
from marpack.cli.options import limit_options, opcode_option, outside_option
from marpack.errors import ExitCode

if TYPE_CHECKING:
    from marpack.inspection.facts import Inspection


@click.command()
@click.argument("source", required=False, shell_complete=sources)
@click.option("--verify", is_flag=True, help="Read every byte: recompute all digests and CRCs.")
@click.option("--sbom", metavar="FILE", help="Also write what is in it as a CycloneDX 1.6 SBOM.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@outside_option
@limit_options
@opcode_option
@click.pass_context
def inspect(
    context: click.Context,
    /,
    source: str | None,
    *,
    verify: bool,
    sbom: str | None,
    as_json: bool,
    allow_outside: bool,
    max_opcodes: int | None,
    **limits: int | None,
) -> None:
    """Show the contents and problems of an archive without running it.

    \b
    Examples:
      marpack inspect digits.mar                       builder, contents, safety of the weights
      marpack inspect https://host/digits.mar --json   a remote archive, not downloaded whole
      marpack inspect digits.mar --sbom digits.cdx.json  also write an SBOM

    SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci), or a project folder; without one, the
    project in this folder. The static checks of a build run, too. The exit code is 1 if a finding is an error, 3 if the
    archive is damaged, hostile or changed.
    """
    gc.disable()  # there is nothing to collect in what takes a twentieth of a second
    try:
        from marpack.api.operations import chosen_limits, inspected
        from marpack.render.progress import byte_bar

        if sbom is not None:  # no other look waits for what writes files
            from marpack.render.output import expect_writable

            expect_writable(sbom, option="--sbom")
        facts = inspected(
            source,
            chosen_limits(**limits),
            byte_bar,
            verify=verify,
            parse_config=as_json,
            max_opcodes=max_opcodes,
            sbom=sbom,
            allow_outside=allow_outside,
        )
    finally:
        gc.enable()
    _show(facts, as_json=as_json)
    context.exit(_exit_code(facts))


def _show(facts: Inspection, *, as_json: bool) -> None:
    if as_json:
        from marpack.render.output import show

        show(facts)
        return
    from marpack.render.inspection import inspection_lines
    from marpack.render.layout import page_width, show_page

    show_page(inspection_lines(facts, page_width()))


def _exit_code(facts: Inspection) -> ExitCode:
    from marpack.findings import Severity
    from marpack.inspection.text_members import DISTRUSTED
    from marpack.inspection.verify import UNFIT

    errors = [finding for finding in facts.findings if finding.severity is Severity.ERROR]
    if any(finding.code in UNFIT | DISTRUSTED for finding in errors):
        return ExitCode.ARCHIVE
    return ExitCode.SHORT if errors else ExitCode.OK
