"""The command `marpack verify`."""

from __future__ import annotations

from pathlib import Path

import click

from marpack.cli.completion import sources


@click.command()
@click.argument("archive", shell_complete=sources)
@click.option("--key", metavar="PUBLIC", help="The signer's public key, as PEM: a file, or env:NAME.")
@click.option("--ca", metavar="FILE", help="Who is believed when they say whose key it is: certificates, as PEM.")
@click.option("--signature", metavar="FILE", help="The signature [ARCHIVE.sig].")
@click.option("--require-check", metavar="FILE", help="An attestation must say that it may be deployed.")
@click.option("--check-key", metavar="PUBLIC", help="Of whoever checked [that of --key].")
@click.option("--allow-unsigned", is_flag=True, help="Show what an attestation claims that nobody signed.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def verify(
    archive: str,
    key: str | None,
    ca: str | None,
    signature: str | None,
    require_check: str | None,
    check_key: str | None,
    *,
    allow_unsigned: bool,
    as_json: bool,
) -> None:
    """Make sure who vouches for an archive: whose it is and, if asked for, that it was checked.

    \b
    Examples:
      marpack verify digits.mar --key signer.pub
      marpack verify digits.mar --key signer.pub --require-check digits.mar.intoto.json

    ARCHIVE is a .mar or a .tar.gz; nothing of it is run or unpickled. This is about authorship: the signature is held
    against the key, and then every byte of the file against what was signed. marpack inspect --verify is about
    integrity: whether an archive is as it was built, whoever built it. The exit code is 3 if anything differs, or is by
    somebody else; every difference is listed.
    """
    from marpack.api.vouching import trusted, verified
    from marpack.cli.key_options import key_of
    from marpack.render.progress import byte_bar
    from marpack.render.trust import show_verification

    signers, authority, checkers = (key_of(each) if each else None for each in (key, ca, check_key))
    beside, check = (Path(each) if each else None for each in (signature, require_check))
    trust = trusted(signers, authority, beside, check, checkers, allow_unsigned=allow_unsigned)
    show_verification(verified(Path(archive), trust, byte_bar), as_json=as_json)
