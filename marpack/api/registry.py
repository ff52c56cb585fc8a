"""The commands that send archives to registries and fetch them, as functions, with their options by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from marpack.api import arguments, operations
from marpack.api.arguments import Name
from marpack.archive.protocol import no_progress

if TYPE_CHECKING:
    from marpack.api.results import PullReport, PushReport
    from marpack.archive import transfers
    from marpack.archive.protocol import Bar


def push(
    source: Name,
    reference: str,
    *,
    attach: Sequence[Name] = (),
    no_attach: bool = False,
    model_image: bool = False,
    plain_http: bool = False,
) -> PushReport:
    """Send an archive to an OCI registry, with the signature, attestation and SBOM that lie beside it.

    Args:
        source: A .mar or a .tar.gz.
        reference: "oci://HOST/REPOSITORY:TAG".
        attach: Further files to keep beside it: Sigstore bundles, in-toto statements or envelopes, CycloneDX.
        no_attach: Leave what lies beside it: x.mar.sig, x.mar.intoto.json and x.mar.cdx.json.
        model_image: Send it as an image whose /models holds it, as KServe takes models.
        plain_http: Talk to the registry without TLS.

    Returns:
        The manifest's digest, the file's, what was sent and attached.

    Raises:
        UsageError: the file, the address, or what is to be attached.
        ArchiveError: what is no archive.
        RegistryError: a registry that is not there, refuses, or breaks off.

    """
    options = arguments.valid(locals())
    from marpack.api import results

    files = arguments.several_names(attach, "attach")
    name = arguments.named(source)
    return results.PushReport.of(
        pushed(
            *(name, str(options["reference"]), files, no_progress),
            beside=not no_attach,
            model_image=model_image,
            plain_http=plain_http,
        )
    )


def pull(
    reference: str,
    *,
    output: Name | None = None,
    force: bool = False,
    no_attached: bool = False,
    plain_http: bool = False,
    max_size: int | None = None,
) -> PullReport:
    """Fetch an archive from an OCI registry, with what refers to it; every byte is held against its digest.

    Args:
        reference: "oci://HOST/REPOSITORY:TAG", or "…@sha256:…".
        output: The file, or a folder; None: under its own name in the current folder.
        force: Replace files that are there.
        no_attached: Leave signatures, attestations and SBOMs.
        plain_http: Talk to the registry without TLS.
        max_size: Take an archive of that many bytes; None: 256 GiB.

    Returns:
        The manifest's digest, the file and its digest, and the files beside it.

    Raises:
        UsageError: the address.
        ArchiveError: what is no archive, or not the one that its digest names.
        RegistryError: a registry that is not there, refuses, or breaks off.
        OutputExistsError, OutputError: the files cannot be written.

    """
    options = arguments.valid(locals())
    from marpack.api import results

    return results.PullReport.of(
        pulled(
            *(str(options["reference"]), options["output"], options["max_size"], no_progress),
            force=force,
            attached=not no_attached,
            plain_http=plain_http,
        )
    )


def pushed(
    source: str,
    reference: str,
    attach: Sequence[str],
    bar: Bar,
    *,
    beside: bool,
    model_image: bool,
    plain_http: bool,
) -> transfers.PushReport:
    """Send an archive, and return what is told of it; both sides are looked at before anything is sent."""
    from marpack.archive.oci.model_image import push_model_image
    from marpack.archive.oci.push import plan_push, push, writable_tag
    from marpack.archive.oci.reference import Reference
    from marpack.archive.oci.session import RegistrySession

    with RegistrySession(Reference.parse(reference), plain_http=plain_http) as session:
        writable_tag(session)
        plan = plan_push(Path(source), tuple(map(Path, attach)), beside=beside and not model_image, bar=bar)
        return (push_model_image if model_image else push)(session, plan, bar=bar)


def pulled(
    reference: str,
    output: str | None,
    max_size: int | None,
    bar: Bar,
    *,
    force: bool,
    attached: bool,
    plain_http: bool,
) -> transfers.PullReport:
    """Fetch an archive, and return what is told of it."""
    from marpack.archive.oci.pull import pull
    from marpack.archive.oci.reference import Reference
    from marpack.archive.oci.session import RegistrySession

    limits = operations.chosen_limits(None, max_size, None)
    with RegistrySession(Reference.parse(reference), plain_http=plain_http) as session:
        return pull(session, output, replace=force, attached=attached, maximum=limits.total, bar=bar)
