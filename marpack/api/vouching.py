"""The commands by which somebody vouches for an archive, as functions: `sign` and `verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from marpack.api import arguments
from marpack.api.arguments import Name
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError
from marpack.version import __version__

if TYPE_CHECKING:
    from marpack.api.results import Signed, Verification
    from marpack.archive.protocol import Archive, Bar
    from marpack.findings import Finding
    from marpack.gate.verdicts import GateReport
    from marpack.inspection.facts import Inspection
    from marpack.trust import results as outcomes
    from marpack.trust.attestations import CheckedFile
    from marpack.trust.keys import Authority, PrivateKey, PublicKey
    from marpack.trust.verifying import Trust

_OTHERS_READ = 0o044  # of a file's mode
_MAX_PEM = 1 << 20  # bytes
Key = Name | bytes  # a file, or its content


def sign(
    archive: Name,
    *,
    key: Key,
    password: str | None = None,
    certificate: Key | None = None,
    output: Name | None = None,
    force: bool = False,
) -> Signed:
    """Sign an archive's file, in the OpenSSF model-signing format.

    Args:
        archive: A .mar or a .tar.gz.
        key: The private key, on the curve P-256, P-384 or P-521, in PEM form: a file, or its bytes.
        password: Of the key, if it has one.
        certificate: Certificates in PEM form, the signer's first, that say whose key it is; None: its fingerprint does.
        output: The signature's file; None: the archive's name with `.sig` behind it.
        force: Replace a signature that is there.

    Returns:
        The file's SHA-256, the signature's file and who signed; findings tell of a key that others can read.

    Raises:
        UsageError: the archive, the key or the certificate; MissingExtraError without the extra `sign`.
        OutputExistsError: there is a signature already.
        ArchiveError: what is no sound archive.

    """
    arguments.valid(locals())
    private, findings = private_key(key, password)
    certificates = chain(certificate)
    from marpack.api import results

    path = arguments.named(archive, "archive")
    target = None if output is None else arguments.named(output, "output")
    return results.Signed.of(signed(path, private, certificates, target, no_progress, force=force, findings=findings))


def verify(
    archive: Name,
    *,
    key: Key | None = None,
    ca: Key | None = None,
    signature: Name | None = None,
    require_check: Name | None = None,
    check_key: Key | None = None,
    allow_unsigned: bool = False,
) -> Verification:
    """Make sure that somebody who is trusted vouches for an archive's file, to the last byte.

    Args:
        archive: A .mar or a .tar.gz.
        key: The signer's public key in PEM form: a file, or its bytes.
        ca: In its place, the certificates that are believed when they say whose key it is.
        signature: None: the archive's name with `.sig` behind it. With `require_check` that one may be missing.
        require_check: An attestation by `marpack check --attest`, which must say of this file that it may be deployed.
        check_key: Of whoever checked; None: `key`.
        allow_unsigned: Take an attestation that nobody signed, as a claim.

    Returns:
        The file's SHA-256, who signed it, and who checked it.

    Raises:
        SignatureError: nobody who is trusted vouches for this file; `findings` holds every difference.
        UsageError: what is not there, or cannot be asked for; MissingExtraError without the extra `sign`.

    """
    arguments.valid(locals())
    path = Path(arguments.named(archive, "archive"))
    check = None if require_check is None else Path(arguments.named(require_check, "require_check"))
    beside = None if signature is None else Path(arguments.named(signature, "signature"))
    trust = trusted(key, ca, beside, check, check_key, allow_unsigned=allow_unsigned)
    from marpack.api import results

    return results.Verification.of(verified(path, trust, no_progress))


def private_key(key: Key, password: str | None, *, where: str = "key") -> tuple[PrivateKey, tuple[Finding, ...]]:
    """Return a private key, and what is to be known of its file. Raises UsageError, MissingExtraError."""
    from marpack.findings import Finding, Severity
    from marpack.trust.keys import PrivateKey

    pem, where = _pem(key, where)
    private = PrivateKey.from_pem(pem, where=where, password=password.encode() if password else None)
    if isinstance(key, bytes) or os.name == "nt" or not os.stat(key).st_mode & _OTHERS_READ:  # noqa: PTH116 - any name
        return private, ()
    message, hint = "others on this machine can read the private key", f"chmod 600 {where}"
    warning = Finding(code="readable-key", severity=Severity.WARNING, message=message, where=where, hint=hint)
    return private, (warning,)


def trusted(
    key: Key | None,
    ca: Key | None,
    signature: Path | None,
    check: Path | None,
    check_key: Key | None,
    *,
    allow_unsigned: bool,
) -> Trust:
    """Return who is believed and what is asked for. Raises UsageError for what cannot go together."""
    from marpack.trust.verifying import Trust

    if key is not None and ca is not None:
        raise UsageError("a key and an authority are two ways of trusting", hint="give --key or --ca")
    if check is None and (check_key is not None or allow_unsigned):
        option = "--check-key" if check_key is not None else "--allow-unsigned"
        raise UsageError(f"{option} is of attestations", hint="name one: --require-check FILE")
    if allow_unsigned and check_key is not None:
        raise UsageError("--allow-unsigned believes anybody, --check-key one signer", hint="give one of them")
    if key is None and ca is None and signature is not None:
        raise UsageError("a signature is verified with a key", hint="the signer's public one: --key signer.pub")
    signers = _public(key, "key") if key is not None else _authority(ca) if ca is not None else None
    checkers = _public(check_key, "check_key") if check_key is not None else _own_key(signers)
    if check is None and signers is None:
        hint = "the signer's public key: --key signer.pub, or an authority: --ca authority.pem"
        raise UsageError("there is nobody to trust", hint=hint)
    if check is not None and checkers is None and not allow_unsigned:
        hint = "--key or --check-key names whoever checked; --allow-unsigned shows what is claimed"
        raise UsageError("without a key, anybody may have written the attestation", where=str(check), hint=hint)
    return Trust(signers=signers, signature=signature, check=check, checkers=None if allow_unsigned else checkers)


def _own_key(signers: PublicKey | Authority | None) -> PublicKey | None:
    from marpack.trust.keys import PublicKey

    return signers if isinstance(signers, PublicKey) else None


def _public(key: Key, name: str) -> PublicKey:
    from marpack.trust.keys import PublicKey

    pem, where = _pem(key, name)
    return PublicKey.from_pem(pem, where=where)


def _authority(ca: Key) -> Authority:
    from marpack.trust.keys import Authority

    pem, where = _pem(ca, "ca")
    return Authority.from_pem(pem, where=where)


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
    from marpack.trust.statements import read_bounded

    path = arguments.named(key, name)
    return read_bounded(Path(path), what="the key", hint="name a file in PEM form"), path


def signed(
    archive: str,
    key: PrivateKey,
    certificates: list[bytes],
    output: str | None,
    bar: Bar,
    *,
    force: bool,
    findings: tuple[Finding, ...],
) -> outcomes.Signed:
    """Write an archive's signature, whole or not at all."""
    from marpack.archive.staging import staged_file
    from marpack.trust.results import Signed
    from marpack.trust.signatures import SUFFIX, sign

    path = _file(archive)
    target = Path(output if output is not None else f"{archive}{SUFFIX}")
    with staged_file(target, replace=force) as file, bar("signing", 2 * path.stat().st_size) as progress:
        sha256, signer, data = sign(path, key, chain=certificates, progress=progress)
        file.write(data)
    return Signed(archive=archive, sha256=sha256, signature=str(target), signer=signer, findings=findings)


def verified(path: Path, trust: Trust, bar: Bar) -> outcomes.Verification:
    """Return who vouches for an archive; see `marpack.trust.verifying.verify`."""
    from marpack.trust.verifying import verify

    with bar("verifying", _file(str(path)).stat().st_size) as progress:
        return verify(path, trust, progress)


class Attester:
    """Whoever attests what a check finds of a file: looks at it before, and again when they write it down."""

    def __init__(self, file: str | None, key: PrivateKey | None, *, option: str, isolated: bool) -> None:
        """Take note of the file to write; with None, nobody attests anything. Raises UsageError."""
        from marpack.render.output import expect_writable

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
        from marpack.render.output import write_whole
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
    from marpack.render.output import write_whole
    from marpack.trust import sbom as bill

    bill.spare(archive, Path(sbom))
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
