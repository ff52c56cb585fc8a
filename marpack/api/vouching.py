"""Signatures and attestations of archives: what `sign`, `verify` and `check --attest` do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from marpack import finding_codes as codes
from marpack.api.declaring import Key
from marpack.errors import UsageError
from marpack.version import __version__

if TYPE_CHECKING:
    from marpack.api.options import SignOptions, VerifyOptions
    from marpack.archive.protocol import Archive, Bar
    from marpack.findings import Finding
    from marpack.gate.verdicts import GateReport
    from marpack.inspection.facts import Inspection
    from marpack.trust import Signed, Verification
    from marpack.trust.attestations import CheckedFile, Trust
    from marpack.trust.keys import PrivateKey

_OTHERS_READ = 0o044  # of a file's mode
_MAX_PEM = 1 << 20  # bytes


def sign(options: SignOptions, bar: Bar, *, where: str = "key") -> Signed:
    """Write an archive's signature. `where` names the key in messages if it is not a file."""
    from marpack.archive.staging import staged_file
    from marpack.trust import Signed, signatures

    key, findings = private_key(options.key, options.password, where=where)
    certificates = chain(options.certificate)
    archive = os.fspath(options.archive)
    path = _file(archive)
    target = Path(f"{archive}{signatures.SUFFIX}" if options.output is None else options.output)
    with staged_file(target, replace=options.force) as file, bar("signing", 2 * path.stat().st_size) as progress:
        sha256, signer, data = signatures.sign(path, key, chain=certificates, progress=progress)
        file.write(data)
    return Signed(archive=archive, sha256=sha256, signature=str(target), signer=signer, findings=findings)


def verify(options: VerifyOptions, bar: Bar) -> Verification:
    """Return who signed and who checked an archive. Raises SignatureError for one that is not trusted."""
    from marpack.trust import attestations

    trust = _trust(options)
    path = Path(options.archive)
    with bar("verifying", _file(str(path)).stat().st_size) as progress:
        return attestations.verify(path, trust, progress)


def private_key(key: Key, password: str | None, *, where: str = "key") -> tuple[PrivateKey, tuple[Finding, ...]]:
    """Return a private key, and what is to be known of its file. Raises UsageError, MissingExtraError."""
    from marpack.trust.keys import PrivateKey

    pem, where = _pem(key, where)
    private = PrivateKey.from_pem(pem, where=where, password=password.encode() if password else None)
    if isinstance(key, bytes) or os.name == "nt" or not os.stat(key).st_mode & _OTHERS_READ:  # noqa: PTH116 - any name
        return private, ()
    message, hint = "others on this machine can read the private key", f"chmod 600 {where}"
    warning = codes.READABLE_KEY.at(where, hint=hint, message=message)
    return private, (warning,)


def _trust(options: VerifyOptions) -> Trust:
    """Return the trusted keys and the required documents. Raises UsageError for options that do not go together."""
    from marpack.trust.attestations import Trust
    from marpack.trust.keys import Authority, PublicKey

    def public_key(key: Key, name: str) -> PublicKey:
        pem, where = _pem(key, name)
        return PublicKey.from_pem(pem, where=where)

    key, ca, check_key, allow_unsigned = options.key, options.ca, options.check_key, options.allow_unsigned
    check = None if options.require_check is None else Path(options.require_check)
    signature = None if options.signature is None else Path(options.signature)
    if key is not None and ca is not None:
        raise UsageError("--key and --ca exclude each other", hint="Give one of them.")
    if check is None and (check_key is not None or allow_unsigned):
        option = "--check-key" if check_key is not None else "--allow-unsigned"
        raise UsageError(f"{option} requires --require-check", hint="Add --require-check FILE.")
    if allow_unsigned and check_key is not None:
        raise UsageError("--allow-unsigned and --check-key exclude each other", hint="Give one of them.")
    if key is None and ca is None and signature is not None:
        hint = "Give the signer's public key (--key signer.pub) or an authority (--ca authority.pem)."
        raise UsageError("--signature requires --key or --ca", hint=hint)
    signers: PublicKey | Authority | None = None if key is None else public_key(key, "key")
    if ca is not None:
        pem, where = _pem(ca, "ca")
        signers = Authority.from_pem(pem, where=where)
    checkers = signers if isinstance(signers, PublicKey) else None
    if check_key is not None:
        checkers = public_key(check_key, "check_key")
    if check is None and signers is None:
        hint = "Give the signer's public key (--key signer.pub) or an authority (--ca authority.pem)."
        raise UsageError("no trusted key or authority", hint=hint)
    if check is not None and checkers is None and not allow_unsigned:
        hint = "Give the checker's key with --key or --check-key, or accept unsigned claims with --allow-unsigned."
        raise UsageError("an attestation without a trusted key proves nothing", where=str(check), hint=hint)
    return Trust(signers=signers, signature=signature, check=check, checkers=None if allow_unsigned else checkers)


def chain(certificate: Key | None) -> list[bytes]:
    """Return the certificates, in ASN.1 DER; none for None. Raises UsageError."""
    if certificate is None:
        return []
    from marpack.trust.keys import chain_of

    pem, where = _pem(certificate, "certificate")
    return chain_of(pem, where=where)


def _pem(key: Key, name: str) -> tuple[bytes, str]:
    """Return a key's bytes, and where they are from. Raises UsageError."""
    if isinstance(key, bytes):
        return key, name
    from marpack.trust.signatures import read_bounded

    path = os.fspath(key)
    return read_bounded(Path(path), what="the key", hint="name a file in PEM form"), path


class Attester:
    """Whoever attests what a check finds of a file: looks at it before, and again when they write it down."""

    def __init__(self, file: str | None, key: PrivateKey | None, *, option: str, isolated: bool) -> None:
        """Take note of the file to write; with None, nobody attests anything. Raises UsageError."""
        from marpack.render.console import expect_writable

        if file is None and key is not None:
            hint = "name its file: --attest FILE"
            raise UsageError(
                "a key signs an attestation, and none was asked for", hint=hint, code="key-without-attestation"
            )
        expect_writable(file, option=option)
        self._file, self._key, self._option = file, key, option
        self._isolated = isolated
        self._before: CheckedFile | None = None

    def look_at(self, archive: Path, bar: Bar) -> None:
        """Look at the file that is about to be checked. Raises UsageError for what is none."""
        if self._file is not None:
            from marpack.trust.attestations import CheckedFile

            with bar("hashing", _file(str(archive)).stat().st_size) as progress:
                self._before = CheckedFile.of(archive, progress)

    def write(self, report: GateReport) -> None:
        """Write what was found of that file, whole or not at all, and nothing of a check that was interrupted.

        Raises SignatureError if the file changed meanwhile, UsageError if nothing can be written there.
        """
        if self._file is None or self._before is None or report.interrupted:
            return
        from marpack.render.console import write_whole
        from marpack.trust.attestations import attest

        data = attest(report, self._before, self._key, versions=_versions(isolated=self._isolated))
        write_whole(self._file, data, option=self._option)


def _versions(*, isolated: bool) -> dict[str, str]:
    """Return what answered, as far as this environment knows: an isolated one has others."""
    import platform
    from importlib.metadata import version

    own = {"marpack": __version__}
    if isolated:
        return own
    return own | {"python": platform.python_version(), "torch": version("torch"), "onnxruntime": version("onnxruntime")}


def write_sbom(archive: Archive, facts: Inspection, sbom: str, bar: Bar) -> None:
    """Write what is in an archive as CycloneDX; see `marpack.trust.sbom`."""
    from marpack.render.console import write_whole
    from marpack.trust import sbom as bill

    bill.check_output(archive, Path(sbom))
    file = bill.file_of(archive)
    with bar("hashing", file.stat().st_size if file and file.is_file() else 0) as progress:
        found = bill.collect(archive, facts, progress)
    write_whole(sbom, bill.sbom(found), option="--sbom")


def _file(archive: str) -> Path:
    """Return an archive's path; raises UsageError for what is no file, of which alone one can vouch."""
    path = Path(archive)
    if path.is_file():
        return path
    hint = "pack it: marpack build" if path.is_dir() else "name a .mar or a .tar.gz on this machine"
    raise UsageError(
        "only an archive's file can be vouched for, by its SHA-256",
        where=archive,
        hint=hint,
        code="not-an-archive-file",
    )
