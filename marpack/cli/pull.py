"""The command `marpack pull`."""

from __future__ import annotations

import click

from marpack.cli.options import size


@click.command()
@click.argument("reference", metavar="oci://HOST/REPOSITORY:TAG")
@click.option("-o", "--output", metavar="FILE|DIR", help="Where it goes; by default here, under its own name.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--no-attached", is_flag=True, help="Leave signatures, attestations and SBOMs.")
@click.option("--plain-http", is_flag=True, help="Talk to the registry without TLS; this machine's need no such word.")
@click.option("--max-size", type=size, metavar="SIZE", help="Take an archive of that many bytes (256G).")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def pull(
    reference: str,
    *,
    output: str | None,
    force: bool,
    no_attached: bool,
    plain_http: bool,
    max_size: int | None,
    as_json: bool,
) -> None:
    """Fetch an archive from an OCI registry, with what refers to it.

    \b
    Examples:
      marpack pull oci://registry.example.com/team/digits:1.0
      marpack pull oci://registry.example.com/team/digits@sha256:… -o models/

    Instead of a tag, @sha256:… names one manifest for good. Signatures, attestations and SBOMs are put beside the
    file: FILE.sig, FILE.intoto.json and FILE.cdx.json, further ones of a kind as FILE.2.sig and so on. Every byte is
    held against its digest; all files appear, or none. Who made it is for marpack verify to say.
    """
    from marpack.api.registry import pulled
    from marpack.render.progress import byte_bar

    report = pulled(
        *(reference, output, max_size, byte_bar), force=force, attached=not no_attached, plain_http=plain_http
    )
    if as_json:
        from marpack.render.output import show

        show(report)
        return
    from marpack.render.layout import show_page
    from marpack.render.registry import pull_lines

    show_page(pull_lines(report))
