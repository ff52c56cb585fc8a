"""Signatures of an archive's file in the OpenSSF model-signing format.

The one signed resource is the file itself, by its SHA-256, since members' digests cover neither headers nor comments.
The members' digests go along to show which member differs.

Sources: in-toto Attestation Framework, Statement v1; Dead Simple Signing Envelope v1.0; OpenSSF Model Signing v1.0.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, Struct

from marpack import finding_codes as codes
from marpack.archive.copying import file_digest
from marpack.archive.index import content_digest, index_of
from marpack.archive.protocol import Progress
from marpack.archive.reader import open_archive
from marpack.errors import (
    ArchiveError,
    DamagedArchiveError,
    SignatureError,
    UsageError,
    describe_os_error,
    located,
    shortened,
)
from marpack.findings import Finding
from marpack.inspection.members import changed, digests
from marpack.trust import Signer
from marpack.trust.keys import Authority, PrivateKey, PublicKey, certified_by

SUFFIX = ".sig"  # of the signature beside an archive
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MEDIA_TYPES = (MEDIA_TYPE, *(f"application/vnd.dev.sigstore.bundle+json;version=0.{n}" for n in (1, 2, 3)))
_ITSELF = "."  # the official tool's name for a model that is one file; the specification's is the file's own
_OFFICIAL = "Verify it with the official tool: pip install model-signing"
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
Read = TypeVar("Read")
_MAX_FILE = 64 << 20  # bytes of a signature: 65,536 members with their digests have a tenth of it


class ResourceDescriptor(Struct, frozen=True):
    """A file that a statement is about."""

    name: str
    digest: dict[str, str]  # "sha256" → lower-case hex


class Statement(Struct, frozen=True, kw_only=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    """A claim about files."""

    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: dict[str, Any]  # Any: JSON, as its type has it
    type: str = STATEMENT_TYPE

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """Parse a statement. Raises SignatureError."""
        statement = decoded(payload, cls, what="statement")
        if statement.type != STATEMENT_TYPE:
            raise SignatureError(f"this is a statement of another kind: {shortened(statement.type)}")
        return statement

    def to_json(self) -> bytes:
        """Return the statement's bytes, always the same for the same values."""
        return msgspec.json.encode(self, order="sorted")


class EnvelopeSignature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signature of an envelope."""

    sig: str  # Base64
    keyid: str | None = None  # a hint; not covered by the signature


class Envelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Bytes with signatures over them, as JSON. Trust the bytes only after `opened` verified them."""

    payload: str  # Base64
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...]

    @classmethod
    def sealed(cls, payload: bytes, key: PrivateKey) -> Self:
        """Sign exactly these bytes."""
        signature = EnvelopeSignature(sig=to_base64(key.sign(_encoded(payload))), keyid="")
        return cls(payload=to_base64(payload), payload_type=PAYLOAD_TYPE, signatures=(signature,))

    def opened(self, key: PublicKey) -> bytes:
        """Return the bytes, if the key signed them.

        A signature that names another key's fingerprint is ignored. Raises SignatureError.
        """
        if self.payload_type != PAYLOAD_TYPE:
            raise SignatureError(f"it does not contain a statement: {shortened(self.payload_type)}")
        payload = from_base64(self.payload)
        mine = [each for each in self.signatures if not each.keyid or each.keyid == key.fingerprint]
        if self.signatures and not mine:
            raise signed_by_another(", ".join(sorted({str(each.keyid) for each in self.signatures})), key)
        data = _encoded(payload)
        if not any(key.verifies(from_base64(each.sig), data) for each in mine):
            what = f"the key {key.fingerprint} did not sign this: another key did, or it changed after signing"
            raise SignatureError(what)
        return payload


def _encoded(payload: bytes) -> bytes:
    """Return the signed bytes: DSSE's pre-authentication encoding of the payload."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def signed_by_another(named: str, key: PublicKey) -> SignatureError:
    """Return the error for a signature that names other keys."""
    what = f"it names the key {named} as the signer's; the one given is {key.fingerprint}"
    hint = "Pass the signer's own public key. Otherwise do not trust this file."
    return SignatureError(what, hint=hint, code="other-signer")


def decoded(data: bytes, kind: type[Read], *, what: str) -> Read:
    """Parse untrusted JSON. Raises SignatureError, in which `what` names the expected content."""

    def unique(pairs: list[tuple[str, Any]]) -> None:  # Any: JSON
        # Readers disagree on which value of a repeated key counts.
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key is repeated in an object")

    try:
        json.loads(data, object_pairs_hook=unique)
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise SignatureError(f"not a valid {what}: {error}") from error


def to_base64(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str) -> bytes:
    """Decode Base64 of either alphabet. Raises SignatureError for text that no encoder writes."""
    standard = text.replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(standard, validate=True)
    except ValueError:
        data = None
    if data is None or to_base64(data) != standard:  # bits that decoding drops: two texts for the same bytes
        raise SignatureError("the signature contains invalid Base64")
    return data


def read_bounded(path: Path, *, what: str, hint: str | None = None) -> bytes:
    """Return a small file's bytes. Raises UsageError, in which `what` names its kind: "the signature"."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "does not exist" if is_missing else f"cannot be read: {describe_os_error(error)}"
        code = "file-not-found" if is_missing else "unreadable-file"
        raise UsageError(f"{what} {reason}", where=str(path), hint=hint, code=code) from error
    if len(data) > _MAX_FILE:
        hint = "Name the file that marpack sign wrote."
        raise UsageError(
            f"{what} is larger than {_MAX_FILE >> 20} MB", where=str(path), hint=hint, code="file-too-large"
        )
    return data


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
    """A signature as a file: the claimed signer and the envelope."""

    dsse_envelope: Envelope
    media_type: str
    verification_material: _Material

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parse a bundle. Raises SignatureError."""
        bundle = decoded(data, cls, what="signature of a model")
        if bundle.media_type not in _MEDIA_TYPES:
            raise SignatureError(f"it is a bundle of another kind: {shortened(bundle.media_type)}")
        if len(bundle.dsse_envelope.signatures) != 1:
            count = len(bundle.dsse_envelope.signatures)
            raise SignatureError(f"the bundle contains {count} signatures; it must contain exactly one")
        return bundle

    def opened(self, trusted: PublicKey | Authority) -> tuple[Signer, bytes]:
        """Return the signer and the verified bytes. Raises SignatureError for a signer that is not trusted."""
        material = self.verification_material
        if material.certificate is not None:
            raise SignatureError("it is a keyless Sigstore signature, which marpack does not verify", hint=_OFFICIAL)
        if isinstance(trusted, Authority):
            if material.chain is None:
                what = "it was made with a key, not with a certificate"
                hint = "Pass the signer's public key: --key signer.pub"
                raise SignatureError(what, hint=hint, code="signed-with-key")
            chain = [from_base64(each.raw_bytes) for each in material.chain.certificates]
            name, key = trusted.verify_chain(chain)
            return Signer("certificate", name), self.dsse_envelope.opened(key)
        if material.public_key is None:
            hint = "Pass the authority that you trust: --ca authority.pem"
            what = "the signature was made with a certificate, not with a key alone"
            raise SignatureError(what, hint=hint, code="signed-with-certificate")
        named = material.public_key.hint
        if named and named != trusted.fingerprint:
            raise signed_by_another(named, trusted)
        return Signer("key", trusted.fingerprint), self.dsse_envelope.opened(trusted)


class _Resource(Struct, frozen=True):
    name: str
    digest: _Sha256
    algorithm: Literal["sha256"]
    annotations: dict[str, Any] = {}  # Any: JSON of whoever signed


class _Serialization(Struct, frozen=True):
    method: Literal["files"]
    hash_type: Literal["sha256"]


class _Predicate(Struct, frozen=True):
    resources: tuple[_Resource, ...]
    serialization: _Serialization


def sign(
    path: Path, key: PrivateKey, *, chain: Sequence[bytes] = (), progress: Progress | None = None
) -> tuple[str, Signer, bytes]:
    """Return the SHA-256 of an archive's file, the signer and the signature's bytes.

    The file is read twice, once for itself and once for its members. `chain` has certificates (ASN.1 DER) of the key,
    the signer's first; without them, the signature names the key's fingerprint. Raises ArchiveError for a file that is
    not an archive, or is damaged.
    """
    if chain:
        subject, certified = certified_by(chain[0])
        if certified != key.public.fingerprint:
            what = "the first certificate belongs to another key than the one that signs"
            hint = "Put the signer's own certificate first, then those of its issuers."
            raise UsageError(what, where="--certificate", hint=hint, code="certificate-key-mismatch")
        signer = Signer("certificate", subject)
        material = _Material(chain=_Chain(tuple(_Certificate(to_base64(each)) for each in chain)))
    else:
        signer = Signer("key", key.public.fingerprint)
        material = _Material(public_key=_PublicKeyHint(key.public.fingerprint))
    sha256 = file_digest(path, progress)
    with open_archive(path) as archive:
        found = dict(digests(archive, progress))
        damaged = [each for each in found.values() if isinstance(each, Finding)]
        index = index_of(archive)
        wrong = damaged if index is None else [*damaged, *changed(archive, index, found)]
        if wrong:
            what = f"the archive is not signed, as it differs from the one that was built: {wrong[0].message}"
            hint = f"Show the differences: marpack inspect {archive.source} --verify"
            raise DamagedArchiveError(what, where=wrong[0].where, hint=hint, code="content-mismatch")
        members = {name: digest for name, digest in sorted(found.items()) if isinstance(digest, str)}
        digest = content_digest(archive)
    annotations = {"file": path.name, "members": members, **({} if digest is None else {"contentDigest": digest})}
    resource = {"name": _ITSELF, "algorithm": "sha256", "digest": sha256, "annotations": annotations}
    statement = Statement(
        # The digest of all resources' digests, of which there is one.
        subject=(ResourceDescriptor(path.name, {"sha256": hashlib.sha256(bytes.fromhex(sha256)).hexdigest()}),),
        predicate_type=PREDICATE_TYPE,
        predicate={
            "resources": [resource],
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False},
        },
    )
    envelope = Envelope.sealed(statement.to_json(), key)
    bundle = Bundle(media_type=MEDIA_TYPE, verification_material=material, dsse_envelope=envelope)
    return sha256, signer, msgspec.json.encode(bundle) + b"\n"


def verify(path: Path, sha256: str, signature: Path, trusted: PublicKey | Authority) -> Signer:
    """Return the signer of an archive whose file has a SHA-256: the trusted key, or one that an authority certifies.

    The statement is read only after its signature is verified. Raises SignatureError with every difference; UsageError
    for a file that cannot be read.
    """
    with located(str(signature)):
        data = read_bounded(signature, what="the signature", hint=f"Get {path.name}{SUFFIX} from the signer.")
        signer, payload = Bundle.from_json(data).opened(trusted)
        resource = _signed_resource(Statement.from_json(payload))
    differences: list[Finding] = []
    if resource.name not in (_ITSELF, path.name):
        differences.append(codes.SIGNED_NAME.at(str(path), name=resource.name))
    if resource.digest != sha256:
        differences.append(codes.SIGNED_FILE.at(str(path), found=sha256, signed=resource.digest))
        differences += _member_differences(path, resource.annotations.get("members"))
    if differences:
        raise SignatureError(f"this is not the file that {signer} signed", where=str(path), findings=tuple(differences))
    return signer


def _signed_resource(statement: Statement) -> _Resource:
    """Return the one file that a statement is about. Raises SignatureError."""
    if statement.predicate_type != PREDICATE_TYPE:
        what = f"the statement is not a list of a model's files: {statement.predicate_type}"
        raise SignatureError(what, hint=_OFFICIAL)
    try:
        predicate = msgspec.convert(statement.predicate, _Predicate)
    except msgspec.ValidationError as error:
        raise SignatureError(f"its list of files cannot be read: {error}", hint=_OFFICIAL) from error
    if len(predicate.resources) != 1:
        raise SignatureError(
            f"the signature covers {len(predicate.resources)} files of a folder, not one archive", hint=_OFFICIAL
        )
    return predicate.resources[0]


def _member_differences(path: Path, signed: object) -> Iterator[Finding]:
    """Yield the members that changed, if the signer listed their digests."""
    if not isinstance(signed, dict):
        return
    try:
        with open_archive(path) as archive:
            found = dict(digests(archive))
    except ArchiveError as error:
        yield codes.SIGNED_MEMBERS_UNREADABLE.at(str(path), reason=error.what)
        return
    apart = [name for name in sorted({*signed, *found}) if found.get(name) != signed.get(name)]
    for name in apart:
        code = codes.SIGNED_MEMBER if name in found else codes.SIGNED_MEMBER_MISSING
        code = code if name in signed else codes.SIGNED_MEMBER_ADDED
        yield code.at(f"{path}!{name}", name=name)
    if not apart:
        yield codes.SIGNED_CONTAINER.at(str(path))
