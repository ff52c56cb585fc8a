"""Signatures over an archive's file, in the OpenSSF model-signing format: made, verified, and what differs.

The one resource that is signed is the file itself, by its SHA-256: members' digests see neither a header nor a comment.
They go along to say which member differs, if one does.

Source: OpenSSF Model Signing specification v1.0.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct

from marpack.archive.copying import file_digest
from marpack.archive.index import content_digest, index_of
from marpack.archive.protocol import Archive, Progress
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, DamagedArchiveError, SignatureError, UsageError
from marpack.findings import Finding, Severity
from marpack.inspection.members import changed, digests
from marpack.trust.keys import Authority, PrivateKey, PublicKey, certified_by
from marpack.trust.results import Signer, refusal
from marpack.trust.statements import (
    Envelope,
    ResourceDescriptor,
    Statement,
    decoded,
    from_base64,
    read_bounded,
    signed_by_another,
    to_base64,
)

SUFFIX = ".sig"  # of the signature beside an archive
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MEDIA_TYPES = (MEDIA_TYPE, *(f"application/vnd.dev.sigstore.bundle+json;version=0.{n}" for n in (1, 2, 3)))
_ITSELF = "."  # the official tool's name for a model that is one file; the specification's is the file's own
_OFFICIAL = "verify it with the official tool: pip install model-signing"
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _PublicKeyHint(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    hint: str = ""  # the fingerprint; bundles of old have the key itself in its place
    raw_bytes: str = ""
    key_details: str = ""


class _Certificate(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    raw_bytes: str  # Base64 of ASN.1 DER


class _Chain(Struct, frozen=True, forbid_unknown_fields=True):
    certificates: Annotated[tuple[_Certificate, ...], Meta(min_length=1)]  # the signer's first


class _Material(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    public_key: _PublicKeyHint | None = msgspec.field(default=None, name="publicKey")
    chain: _Chain | None = msgspec.field(default=None, name="x509CertificateChain")
    certificate: _Certificate | None = None  # of Sigstore's keyless signing
    # Any: of Sigstore's own servers, and nothing to a signature by a key or a certificate.
    tlog_entries: list[Any] = msgspec.field(default_factory=list, name="tlogEntries")
    timestamps: dict[str, Any] = msgspec.field(default_factory=dict, name="timestampVerificationData")


class Bundle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A signature as a file: who is said to have signed, and the envelope."""

    dsse_envelope: Envelope
    media_type: str
    verification_material: _Material

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Self:
        """Parse a bundle. Raises SignatureError naming `where`."""
        bundle = decoded(data, cls, what="signature of a model", where=where)
        if bundle.media_type not in _MEDIA_TYPES:
            raise SignatureError(f"it is a bundle of another kind: {bundle.media_type}", where=where)
        if len(bundle.dsse_envelope.signatures) != 1:
            raise SignatureError("a bundle holds one signature, no more and no less", where=where)
        return bundle

    def opened(self, trusted: PublicKey | Authority, *, where: str) -> tuple[Signer, bytes]:
        """Return who signed, and the very bytes. Raises SignatureError unless that is who is trusted."""
        material = self.verification_material
        if material.certificate is not None:
            raise SignatureError("it is one of Sigstore, made without a key", where=where, hint=_OFFICIAL)
        if isinstance(trusted, Authority):
            if material.chain is None:
                what = "it was made with a key, not with a certificate"
                hint = "give the signer's public key: --key signer.pub"
                raise SignatureError(what, where=where, hint=hint, code="signed-with-key")
            chain = [from_base64(each.raw_bytes, where=where) for each in material.chain.certificates]
            name, key = trusted.vouches_for(chain, where=where)
            return Signer("certificate", name), self.dsse_envelope.opened(key, where=where)
        if material.public_key is None:
            hint = "name the authority that you trust: --ca authority.pem"
            what = "it was made with a certificate, not with a key alone"
            raise SignatureError(what, where=where, hint=hint, code="signed-with-certificate")
        named = material.public_key.hint
        if named and named != trusted.fingerprint:
            raise signed_by_another(named, trusted, where=where)
        return Signer("key", trusted.fingerprint), self.dsse_envelope.opened(trusted, where=where)


class _Resource(Struct, frozen=True):
    name: str
    digest: _Sha256
    algorithm: str
    annotations: dict[str, Any] = {}  # Any: JSON of whoever signed


class _Serialization(Struct, frozen=True):
    method: str
    hash_type: str


class _Predicate(Struct, frozen=True):
    resources: tuple[_Resource, ...]
    serialization: _Serialization


def sign(
    path: Path, key: PrivateKey, *, chain: Sequence[bytes] = (), progress: Progress | None = None
) -> tuple[str, Signer, bytes]:
    """Return the file's SHA-256, who signed, and the signature's bytes.

    Args:
        path: The archive, a .mar or a .tar.gz; it is read twice, once for itself and once for its members.
        key: Signs.
        chain: Certificates (ASN.1 DER) that say whose key it is, the signer's first; none: the key's fingerprint does.
        progress: Is told of bytes read.

    Raises ArchiveError for what is no archive, or no sound one.
    """
    sha256 = file_digest(path, progress)
    with open_archive(path) as archive:
        members = _sound_members(archive, progress)
        resource = {
            "name": _ITSELF,
            "algorithm": "sha256",
            "digest": sha256,
            "annotations": {"file": path.name, "members": members, **_content_digest(archive)},
        }
    statement = Statement(
        # The digest of the digests of all resources: of one, here.
        subject=(ResourceDescriptor(path.name, {"sha256": hashlib.sha256(bytes.fromhex(sha256)).hexdigest()}),),
        predicate_type=PREDICATE_TYPE,
        predicate={
            "resources": [resource],
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False},
        },
    )
    signer, material = _presented(key, chain)
    envelope = Envelope.sealed(statement.to_json(), key)
    bundle = Bundle(media_type=MEDIA_TYPE, verification_material=material, dsse_envelope=envelope)
    return sha256, signer, msgspec.json.encode(bundle) + b"\n"


def _presented(key: PrivateKey, chain: Sequence[bytes]) -> tuple[Signer, _Material]:
    """Return who signs, and what a bundle says of it."""
    if not chain:
        fingerprint = key.public.fingerprint
        return Signer("key", fingerprint), _Material(public_key=_PublicKeyHint(fingerprint))
    subject, certified = certified_by(chain[0])
    if certified != key.public.fingerprint:
        hint = "the signer's own certificate comes first, then who vouches for it"
        what = "the first certificate is about another key than the one that signs"
        raise UsageError(what, hint=hint, code="certificate-key-mismatch")
    certificates = tuple(_Certificate(to_base64(each)) for each in chain)
    return Signer("certificate", subject), _Material(chain=_Chain(certificates))


def _content_digest(archive: Archive) -> dict[str, str]:
    digest = content_digest(archive)
    return {} if digest is None else {"contentDigest": digest}


def _sound_members(archive: Archive, progress: Progress | None) -> dict[str, str]:
    """Return the SHA-256 of each member; raises DamagedArchiveError for an archive that is not as it was built."""
    found = dict(digests(archive, progress))
    damaged = [each for each in found.values() if isinstance(each, Finding)]
    index = index_of(archive)
    wrong = damaged or [] if index is None else [*damaged, *changed(archive, index, found)]
    if wrong:
        hint = f"look into it: marpack inspect {archive.source} --verify"
        what = f"it is not as it was built, so it is not signed: {wrong[0].message}"
        raise DamagedArchiveError(what, where=wrong[0].where, hint=hint, code="content-mismatch")
    return {name: digest for name, digest in sorted(found.items()) if isinstance(digest, str)}


def verify(path: Path, sha256: str, signature: Path, trusted: PublicKey | Authority) -> Signer:
    """Return who signed an archive, if that is who is trusted and the file is what they signed.

    First the signature is held against the key; only then is read what it says, and compared with what is here.

    Args:
        path: The archive.
        sha256: Of its file.
        signature: The bundle beside it.
        trusted: The signer's public key, or the authorities that say whose a certificate is.

    Raises SignatureError, holding every difference; UsageError for a file that cannot be read.
    """
    where = str(signature)
    data = read_bounded(signature, what="the signature", hint=f"whoever signed it has it: {path.name}{SUFFIX}")
    signer, payload = Bundle.from_json(data, where=where).opened(trusted, where=where)
    resource = _signed_file(Statement.from_json(payload, where=where), where=where)
    differences = tuple(_differences(path, sha256, resource))
    if differences:
        what = f"this is not the file that {signer} signed"
        hint = "do not deploy it; get it again from whoever signed it"
        raise SignatureError(what, where=str(path), hint=hint, findings=differences)
    return signer


def _signed_file(statement: Statement, *, where: str) -> _Resource:
    """Return the one file that a statement speaks of. Raises SignatureError."""
    if statement.predicate_type != PREDICATE_TYPE:
        what = f"it says something else than what a model consists of: {statement.predicate_type}"
        raise SignatureError(what, where=where)
    try:
        predicate = msgspec.convert(statement.predicate, _Predicate)
    except msgspec.ValidationError as error:
        raise SignatureError(f"its list of files cannot be read: {error}", where=where, hint=_OFFICIAL) from error
    serialization = predicate.serialization
    if (serialization.method, serialization.hash_type) != ("files", "sha256"):
        what = f"it holds {serialization.hash_type} of {serialization.method}, marpack reads sha256 of files"
        raise SignatureError(what, where=where, hint=_OFFICIAL)
    if len(predicate.resources) != 1:
        what = f"it is over {len(predicate.resources)} files of a folder, not over one archive"
        raise SignatureError(what, where=where, hint=_OFFICIAL)
    (resource,) = predicate.resources
    if resource.algorithm != "sha256":
        raise SignatureError(f"it says sha256, and then holds {resource.algorithm}", where=where)
    return resource


def _differences(path: Path, sha256: str, resource: _Resource) -> Iterator[Finding]:
    """Yield in what a file is not the one that was signed."""
    if resource.name not in (_ITSELF, path.name):
        yield refusal("signed-name", f"the signature is over a file named {resource.name}", str(path))
    if resource.digest != sha256:
        yield refusal("signed-file", f"its SHA-256 is {sha256}, {resource.digest} was signed", str(path))
        yield from _members_apart(path, resource.annotations.get("members"))


def _members_apart(path: Path, signed: object) -> Iterator[Finding]:
    """Yield which members are not as they were, as far as whoever signed said what they were."""
    if not isinstance(signed, dict):
        return
    try:
        with open_archive(path) as archive:
            found = dict(digests(archive))
    except ArchiveError as error:
        yield refusal("signed-member", f"it opens no more: {error.what}", str(path))
        return
    apart = [name for name in sorted({*signed, *found}) if found.get(name) != signed.get(name)]
    for name in apart:
        how = "has other bytes than were signed" if name in found else "is gone"
        how = how if name in signed else "was added"
        yield refusal("signed-member", f"the member {name} {how}", f"{path}!{name}")
    if not apart:
        what = "no member differs: what changed lies around them, as a header, a comment or their order"
        yield Finding(code="signed-container", severity=Severity.NOTE, message=what, where=str(path))
