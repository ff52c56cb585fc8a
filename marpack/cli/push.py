"""The command `marpack push`."""

from __future__ import annotations

import click

from marpack.cli.completion import sources


@click.command()
@click.argument("source", metavar="FILE", shell_complete=sources)
@click.argument("reference", metavar="oci://HOST/REPOSITORY:TAG")
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE",
    shell_complete=sources,
    help="Keep a signature, attestation or SBOM beside it, too. Repeatable.",
)
@click.option("--no-attach", is_flag=True, help="Leave what lies beside FILE under the usual names.")
@click.option("--model-image", is_flag=True, help="Push an image whose /models holds FILE, as KServe takes models.")
@click.option("--plain-http", is_flag=True, help="Talk to the registry without TLS; this machine's need no such word.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def push(
    source: str,
    reference: str,
    *,
    attach: tuple[str, ...],
    no_attach: bool,
    model_image: bool,
    plain_http: bool,
    as_json: bool,
) -> None:
    """Send an archive to an OCI registry, with what is known of it.

    \b
    Examples:
      marpack push digits.mar oci://registry.example.com/team/digits:1.0
      marpack push digits.mar oci://localhost:5000/digits:1.0 --attach audit.json
      marpack push digits.mar oci://registry.example.com/team/digits:1.0-image --model-image

    FILE is a .mar or a .tar.gz. What lies beside it goes along: FILE.sig, FILE.intoto.json and FILE.cdx.json. The
    same archive has the same digest in every registry, and what a registry has is not sent again. Credentials are
    those of docker login and oras login; they go to the registry's own host alone.
    """
    from marpack.api.registry import pushed
    from marpack.render.progress import byte_bar

    report = pushed(
        *(source, reference, attach, byte_bar),
        beside=not no_attach,
        model_image=model_image,
        plain_http=plain_http,
    )
    if as_json:
        from marpack.render.output import show

        show(report)
        return
    from marpack.render.layout import show_page
    from marpack.render.registry import push_lines

    show_page(push_lines(report))
