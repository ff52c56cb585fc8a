"""The command `marpack sign`."""

from __future__ import annotations

import click

from marpack.cli.completion import sources


@click.command()
@click.argument("archive", shell_complete=sources)
@click.option("--key", required=True, metavar="PRIVATE", help="The private key, as PEM: a file, or env:NAME.")
@click.option(
    "--certificate", metavar="FILE", help="Certificates that say whose key it is, as PEM, the signer's first."
)
@click.option("-o", "--output", metavar="FILE", help="The signature [ARCHIVE.sig].")
@click.option("--force", is_flag=True, help="Replace a signature that is there.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def sign(archive: str, key: str, certificate: str | None, output: str | None, *, force: bool, as_json: bool) -> None:
    """Sign an archive, so that whoever gets it can tell that it is yours, to the last byte.

    \b
    Examples:
      marpack sign digits.mar --key signer.pem           writes digits.mar.sig
      marpack sign digits.mar --key env:SIGNING_KEY      the key from a variable, as in CI
    A key to begin with, and its public half for everybody else:
      openssl ecparam -name prime256v1 -genkey -noout -out signer.pem
      openssl pkey -in signer.pem -pubout -out signer.pub

    ARCHIVE is a .mar or a .tar.gz. The signature is in the OpenSSF model-signing format, over the file's SHA-256. The
    password of a key that has one is asked for, or taken from MARPACK_KEY_PASSWORD. An archive that is not as it was
    built is not signed (exit code 3).
    """
    from marpack.api.vouching import chain, signed
    from marpack.cli.key_options import key_of, private_key_of
    from marpack.render.progress import byte_bar
    from marpack.render.trust import show_signed

    private, findings = private_key_of(key)
    certificates = chain(key_of(certificate) if certificate else None)
    made = signed(archive, private, certificates, output, byte_bar, force=force, findings=findings)
    show_signed(made, as_json=as_json)
