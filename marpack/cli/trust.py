"""The commands sign and verify, and private keys as options name them: a file, or an environment variable."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from marpack.api import vouching
from marpack.api.options import SignOptions, VerifyOptions
from marpack.cli.options import command, json_option
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.api.declaring import Key
    from marpack.findings import Finding
    from marpack.trust.keys import PrivateKey

_ENVIRONMENT = "env:"
_PASSWORD = "MARPACK_KEY_PASSWORD"  # noqa: S105 - the variable's name


@command(SignOptions)
@json_option
def sign(options: SignOptions, *, as_json: bool) -> None:
    """Sign an archive's file, so that others can verify its origin.

    \b
    Examples:
      marpack sign digits.mar --key signer.pem           writes digits.mar.sig
      marpack sign digits.mar --key env:SIGNING_KEY      the key is in a variable, as in CI
    Create a key, and the public key for others:
      openssl ecparam -name prime256v1 -genkey -noout -out signer.pem
      openssl pkey -in signer.pem -pubout -out signer.pub

    ARCHIVE is a .mar or a .tar.gz. The signature is in the OpenSSF model-signing format and covers the file's SHA-256.
    A key is a file, or env:NAME for an environment variable. If the key has a password, marpack reads it from
    MARPACK_KEY_PASSWORD or asks for it. An archive that has changed since it was built is not signed (exit code 3).
    """
    from marpack.render.console import byte_bar, show, show_findings, show_page
    from marpack.render.pages import signed_page

    name = os.fsdecode(os.fspath(options.key))
    named = replace(
        options, key=read_key(options.key), password=_password(name), certificate=read_key(options.certificate)
    )
    signed = vouching.sign(named, byte_bar, where=name)
    if as_json:
        show_findings(signed.findings)
        show(signed)
    else:
        show_page(signed_page(signed))


@command(VerifyOptions)
@json_option
def verify(options: VerifyOptions, *, as_json: bool) -> None:
    """Verify an archive's signature and check result.

    \b
    Examples:
      marpack verify digits.mar --key signer.pub
      marpack verify digits.mar --key signer.pub --require-check digits.mar.intoto.json

    ARCHIVE is a .mar or a .tar.gz. No part of it is run or unpickled. marpack compares the signature with the key, and
    every byte of the file with the signed digest. A key is a file, or env:NAME for an environment variable. To check
    only that an archive is as it was built, use marpack inspect --verify. The exit code is 3 if
    anything differs or the signer is not trusted; every difference is listed.
    """
    from marpack.render.console import byte_bar, show, show_page
    from marpack.render.pages import verification_page

    keys = {name: read_key(getattr(options, name)) for name in ("key", "ca", "check_key")}
    verification = vouching.verify(replace(options, **keys), byte_bar)
    if as_json:
        show(verification)
    else:
        show_page(verification_page(verification))


def read_key(named: Key | None) -> Key | None:
    """Return the file of a key, or the content of the environment variable that env:NAME names. Raises UsageError."""
    if not isinstance(named, str) or not named.startswith(_ENVIRONMENT):
        return named
    name = named.removeprefix(_ENVIRONMENT)
    if not os.environ.get(name):
        raise UsageError("this environment variable is not set", where=named, hint="put the key into it, as PEM")
    return os.environb[name.encode()] if os.supports_bytes_environ else os.environ[name].encode()


def read_private_key(named: str) -> tuple[PrivateKey, tuple[Finding, ...]]:
    """Return a private key and the findings about its file. On a terminal, ask for its password if it has one."""
    key = read_key(named)
    assert key is not None  # noqa: S101 - it is named
    return vouching.private_key(key, _password(named), where=named)


def _password(named: str) -> str | None:
    """Return the password of a private key, from the environment or the terminal."""
    if password := os.environ.get(_PASSWORD):
        return password
    if named.startswith(_ENVIRONMENT) or not sys.stdin.isatty() or not _is_locked(named):
        return None
    typed: str = click.prompt(f"Password of {named}", hide_input=True, err=True)
    return typed


def _is_locked(path: str) -> bool:
    from pathlib import Path

    from marpack.trust.keys import needs_password
    from marpack.trust.signatures import read_bounded

    return needs_password(read_bounded(Path(path), what="the key"))
