"""What is signed and how: in-toto statements, in the envelopes of DSSE.

Sources: in-toto Attestation Framework, Statement v1; Dead Simple Signing Envelope v1.0.
"""

import base64
import binascii
import json
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from marpack.errors import SignatureError, UsageError, describe_os_error
from marpack.trust.keys import PrivateKey, PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
Read = TypeVar("Read")
_MAX_FILE = 64 << 20  # bytes of a signature or an attestation: 65,536 members with their digests have a tenth of it


class ResourceDescriptor(Struct, frozen=True):
    """What a statement is about."""

    name: str
    digest: dict[str, str]  # "sha256" → lower-case hex


class Statement(Struct, frozen=True, kw_only=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    """Somebody says something about something."""

    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: dict[str, Any]  # Any: JSON, as its type has it
    type: str = STATEMENT_TYPE

    @classmethod
    def from_json(cls, payload: bytes, *, where: str) -> Self:
        """Parse a statement. Raises SignatureError naming `where`."""
        statement = decoded(payload, cls, what="statement", where=where)
        if statement.type != STATEMENT_TYPE:
            raise SignatureError(f"this is a statement of another kind: {statement.type}", where=where)
        return statement

    def to_json(self) -> bytes:
        """Return the statement's bytes, always the same for the same values."""
        return msgspec.json.encode(self, order="sorted")


class EnvelopeSignature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signature of an envelope."""

    sig: str  # Base64
    keyid: str | None = None  # a hint, which nobody signed


class Envelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Bytes with signatures over them, as JSON. What it holds is to be believed only once it was `opened`."""

    payload: str  # Base64
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...]

    @classmethod
    def sealed(cls, payload: bytes, key: PrivateKey, *, keyid: str = "") -> Self:
        """Sign exactly these bytes."""
        signature = EnvelopeSignature(sig=to_base64(key.sign(_encoded(payload))), keyid=keyid)
        return cls(payload=to_base64(payload), payload_type=PAYLOAD_TYPE, signatures=(signature,))

    def opened(self, key: PublicKey, *, where: str) -> bytes:
        """Return the bytes, if the key signed them.

        A signature that names a key names this one by its fingerprint, or it is not asked. Raises SignatureError.
        """
        payload = self.unsigned(where=where)
        named = {each.keyid for each in self.signatures if each.keyid} - {key.fingerprint}
        mine = [each for each in self.signatures if not each.keyid or each.keyid == key.fingerprint]
        if named and not mine:
            raise signed_by_another(", ".join(sorted(named)), key, where=where)
        data = _encoded(payload)
        if not any(key.made(from_base64(each.sig, where=where), data) for each in mine):
            what = f"the key {key.fingerprint} did not sign this: it is another's, or was changed after it was signed"
            raise SignatureError(what, where=where)
        return payload

    def unsigned(self, *, where: str) -> bytes:
        """Return the bytes as a mere claim, whoever signed them. Raises SignatureError for what is no statement's."""
        if self.payload_type != PAYLOAD_TYPE:
            raise SignatureError(f"it holds something else than a statement: {self.payload_type}", where=where)
        return from_base64(self.payload, where=where)


def _encoded(payload: bytes) -> bytes:
    """Return what is signed in the payload's place: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def signed_by_another(named: str, key: PublicKey, *, where: str) -> SignatureError:
    """Return the refusal of a signature that names other keys."""
    what = f"it names the key {named} as the signer's; the one given is {key.fingerprint}"
    hint = "give the signer's own public key, or do not trust this"
    return SignatureError(what, where=where, hint=hint, code="other-signer")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:  # Any: JSON
    """Raise ValueError for an object that has a key twice: readers disagree on which of the two values counts."""
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError("a key is repeated in an object")


def decoded(data: bytes, kind: type[Read], *, what: str, where: str) -> Read:
    """Parse JSON that may be anybody's. Raises SignatureError, in which `what` names what it should be."""
    try:
        json.loads(data, object_pairs_hook=_refuse_repeated_keys)
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise SignatureError(f"this is no {what}: {error}", where=where) from error


def to_base64(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str, *, where: str) -> bytes:
    """Return the bytes of a text in Base64, of either alphabet. Raises SignatureError for what no encoder writes."""
    standard = text.replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SignatureError("it holds what is no Base64", where=where) from error
    if to_base64(data) != standard:  # bits that decoding drops: two texts for the same bytes
        raise SignatureError("it holds what is no Base64", where=where)
    return data


def read_bounded(path: Path, *, what: str, hint: str | None = None) -> bytes:
    """Return a small file's bytes. Raises UsageError, in which `what` names its kind: "the signature"."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "is not there" if is_missing else f"cannot be read: {describe_os_error(error)}"
        code = "file-not-found" if is_missing else "unreadable-file"
        raise UsageError(f"{what} {reason}", where=str(path), hint=hint, code=code) from error
    if len(data) > _MAX_FILE:
        raise UsageError(
            f"{what} has over {_MAX_FILE >> 20} MB, which none has", where=str(path), code="file-too-large"
        )
    return data
