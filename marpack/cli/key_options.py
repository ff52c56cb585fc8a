"""Keys, as options take them: a file, or the environment variable that holds one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.findings import Finding
    from marpack.trust.keys import PrivateKey

_ENVIRONMENT = "env:"
_PASSWORD = "MARPACK_KEY_PASSWORD"  # noqa: S105 - the variable's name


def key_of(text: str) -> str | bytes:
    """Return the file that an option names, or the content of the variable that it names. Raises UsageError."""
    if not text.startswith(_ENVIRONMENT):
        return text
    name = text.removeprefix(_ENVIRONMENT)
    if not os.environ.get(name):
        raise UsageError("this environment variable is not set", where=text, hint="put the key into it, as PEM")
    return os.environb[name.encode()] if os.supports_bytes_environ else os.environ[name].encode()


def private_key_of(text: str) -> tuple[PrivateKey, tuple[Finding, ...]]:
    """Return the private key that an option names, and what is to be known of it; a password may be asked for."""
    from marpack.api.vouching import private_key

    return private_key(key_of(text), _password(text), where=text)


def _password(text: str) -> str | None:
    """Return the password of a private key: the environment's or, on a terminal, the one that is typed."""
    if password := os.environ.get(_PASSWORD):
        return password
    if text.startswith(_ENVIRONMENT) or not sys.stdin.isatty() or not _is_locked(text):
        return None
    import click

    typed: str = click.prompt(f"Password of {text}", hide_input=True, err=True)
    return typed


def _is_locked(path: str) -> bool:
    from pathlib import Path

    from marpack.trust.keys import needs_password
    from marpack.trust.statements import read_bounded

    return needs_password(read_bounded(Path(path), what="the key"))
