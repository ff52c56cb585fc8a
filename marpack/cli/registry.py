"""The commands that send archives to OCI registries and fetch them: push and pull."""

from __future__ import annotations

from marpack.api import operations
from marpack.api.options import PullOptions, PushOptions
from marpack.cli.options import command, json_option


@command(PushOptions)
@json_option
def push(options: PushOptions, *, as_json: bool) -> None:
    """Send an archive to an OCI registry, with its signature, attestation and SBOM.

    \b
    Examples:
      marpack push digits.mar oci://registry.example.com/team/digits:1.0
      marpack push digits.mar oci://localhost:5000/digits:1.0 --attach audit.json

    FILE is a .mar or a .tar.gz. The files FILE.sig, FILE.intoto.json and FILE.cdx.json beside it are attached. The same
    archive has the same digest in every registry, and bytes that a registry has are not sent again. marpack uses the
    credentials of docker login and oras login, and sends them only to the registry's own host.
    """
    from marpack.render.console import byte_bar, show, show_page
    from marpack.render.pages import push_page

    report = operations.push(options, byte_bar)
    if as_json:
        show(report)
    else:
        show_page(push_page(report))


@command(PullOptions)
@json_option
def pull(options: PullOptions, *, as_json: bool) -> None:
    """Fetch an archive from an OCI registry, with its signatures, attestations and SBOMs.

    \b
    Examples:
      marpack pull oci://registry.example.com/team/digits:1.0
      marpack pull oci://registry.example.com/team/digits@sha256:… -o models/

    A reference with @sha256:… instead of a tag names one manifest for good. Signatures, attestations and SBOMs are
    written beside the file: FILE.sig, FILE.intoto.json and FILE.cdx.json, and further ones as FILE.2.sig and so on.
    Every byte is compared with its digest. Either all files are written or none. To check the signer, use marpack
    verify.
    """
    from marpack.render.console import byte_bar, show, show_page
    from marpack.render.pages import pull_page

    report = operations.pull(options, byte_bar)
    if as_json:
        show(report)
    else:
        show_page(pull_page(report))
