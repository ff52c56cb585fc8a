"""Keys and certificates on elliptic curves, as PEM, and the verification of signatures with them."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Self, cast

from marpack.errors import MissingExtraError, SignatureError, UsageError, located

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import verification
except ImportError as error:
    raise MissingExtraError("cryptography", "sign", "signing and verifying") from error

# The curves of the model-signing format, each with the hash that goes with its size.
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}
_MAKE_ONE = "Create a private key: openssl ecparam -name prime256v1 -genkey -noout -out signer.pem"
_UNLOCK = "Set MARPACK_KEY_PASSWORD to the password of the key."
_PUBLIC_HALF = "Pass the public half of the key: openssl pkey -in signer.pem -pubout -out signer.pub"
_SIGNS_CODE = x509.oid.ExtendedKeyUsageOID.CODE_SIGNING


class PublicKey:
    """The half of a key that verifies signatures."""

    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self._key = key

    @classmethod
    def from_pem(cls, pem: bytes, *, where: str) -> Self:
        """Parse a public key. Raises UsageError naming `where`."""
        if b"PRIVATE KEY-----" in pem:
            raise UsageError("this is a private key, which only its owner should have", where=where, hint=_PUBLIC_HALF)
        if b"BEGIN CERTIFICATE-----" in pem:
            raise UsageError("this is a certificate, not a public key", where=where, hint="Pass it with --ca.")
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError("not a public key in PEM form", where=where, hint=_PUBLIC_HALF) from error
        return cls(_on_curve(key, where))

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Self:
        """Return the key of a certificate. Raises SignatureError."""
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _HASHES:
            what = "the key of the signer's certificate is not on the curve P-256, P-384 or P-521"
            raise SignatureError(what, hint=f"Get a certificate for such a key. {_MAKE_ONE}")
        return cls(key)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the key's PEM form as openssl writes it, lower-case hex: what `sha256sum signer.pub` prints.

        Source: the model-signing format's `publicKey.hint`.
        """
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return hashlib.sha256(self._key.public_bytes(serialization.Encoding.PEM, form)).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Return whether a signature (ASN.1 DER) of these bytes was made by this key's private half."""
        try:
            self._key.verify(signature, data, ec.ECDSA(_HASHES[self._key.curve.name]))
        except InvalidSignature:
            return False
        return True


class PrivateKey:
    """The half of a key that signs."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    @classmethod
    def from_pem(cls, pem: bytes, *, where: str, password: bytes | None = None) -> Self:
        """Parse a private key. Raises UsageError naming `where`, never the key."""
        if b"PRIVATE KEY-----" not in pem:
            is_public = b"PUBLIC KEY-----" in pem or b"CERTIFICATE-----" in pem
            what = "this is a public key, which cannot sign" if is_public else "not a private key in PEM form"
            raise UsageError(what, where=where, hint="Pass the private key." if is_public else _MAKE_ONE)
        try:
            key = serialization.load_pem_private_key(pem, password)
        except TypeError as error:  # a password for a key that has none, or none for one that has
            if password is not None:
                return cls.from_pem(pem, where=where)
            what = "the private key has a password, and none was given"
            raise UsageError(what, where=where, hint=_UNLOCK, code="password-required") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            what = "the private key cannot be read" if password is None else "the private key has another password"
            raise UsageError(what, where=where, hint=_MAKE_ONE if password is None else _UNLOCK) from error
        _on_curve(key.public_key(), where)
        return cls(cast("ec.EllipticCurvePrivateKey", key))  # as its public half is one

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Return a signature over these bytes, in ASN.1 DER."""
        return self._key.sign(data, ec.ECDSA(_HASHES[self._key.curve.name]))


def needs_password(pem: bytes) -> bool:
    """Return whether a private key in PEM form is encrypted."""
    return b"BEGIN ENCRYPTED PRIVATE KEY-----" in pem or b"Proc-Type: 4,ENCRYPTED" in pem


def _on_curve(key: object, where: str) -> ec.EllipticCurvePublicKey:
    """Return a key of a supported curve; raise UsageError for any other."""
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UsageError("the key is not on an elliptic curve", where=where, hint=_MAKE_ONE)
    if key.curve.name not in _HASHES:
        what = f"the key is on the curve {key.curve.name}; the format has P-256, P-384 and P-521"
        raise UsageError(what, where=where, hint=_MAKE_ONE)
    return key


def certificates_of(pem: bytes, *, where: str) -> list[x509.Certificate]:
    """Parse at least one certificate in PEM form. Raises UsageError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        hint = "Convert it: openssl x509 -inform DER -in FILE -out certificate.pem"
        raise UsageError("not a certificate in PEM form", where=where, hint=hint) from error


def chain_of(pem: bytes, *, where: str) -> list[bytes]:
    """Return at least one certificate in PEM form as ASN.1 DER, in their order. Raises UsageError."""
    return [each.public_bytes(serialization.Encoding.DER) for each in certificates_of(pem, where=where)]


def certified_by(certificate: bytes) -> tuple[str, str]:
    """Return a certificate's subject, and its key's fingerprint. Raises SignatureError for a key of another kind."""
    parsed = x509.load_der_x509_certificate(certificate)
    with located(_subject(parsed)):
        return _subject(parsed), PublicKey.of(parsed).fingerprint


class Authority:
    """The certificates of trusted authorities."""

    def __init__(self, roots: Sequence[x509.Certificate]) -> None:
        self._roots = tuple(roots)

    @classmethod
    def from_pem(cls, pem: bytes, *, where: str) -> Self:
        """Parse the certificates. Raises UsageError naming `where`."""
        return cls(certificates_of(pem, where=where))

    def verify_chain(self, chain: Sequence[bytes]) -> tuple[str, PublicKey]:
        """Return the subject and the key of the first of these certificates (ASN.1 DER), if the chain is valid now.

        Now, because the bundle does not prove when it was signed. Raises SignatureError.
        """
        try:
            leaf, *others = [x509.load_der_x509_certificate(each) for each in chain]
        except ValueError as error:
            raise SignatureError("a certificate in the signature cannot be read", code="invalid-certificate") from error

        def expect_signing(*given: Any) -> None:  # Any: the policy, the certificate and its extension or None
            if given[2] is None or not given[2].digital_signature:
                raise ValueError("its key is not for signatures")

        def expect_code_signing(*given: Any) -> None:  # Any: as above
            if given[2] is not None and _SIGNS_CODE not in given[2]:
                raise ValueError("its key is not for signing code")

        agnostic, policy = verification.Criticality.AGNOSTIC, verification.ExtensionPolicy.permit_all()
        policy = policy.require_present(x509.KeyUsage, agnostic, expect_signing)
        policy = policy.may_be_present(x509.ExtendedKeyUsage, agnostic, expect_code_signing)
        builder = verification.PolicyBuilder().store(verification.Store(list(self._roots))).time(datetime.now(UTC))
        authorities = verification.ExtensionPolicy.webpki_defaults_ca()
        verifier = builder.extension_policies(ca_policy=authorities, ee_policy=policy).build_client_verifier()
        try:
            verifier.verify(leaf, others)
        except verification.VerificationError as error:
            what = f"no authority of --ca certifies the signer {_subject(leaf)}: {error}"
            hint = "Pass the authority of the signer. If the certificate expired, get a new signature from the signer."
            raise SignatureError(what, hint=hint, code="untrusted-certificate") from error
        return _subject(leaf), PublicKey.of(leaf)


def _subject(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string() or "without a name"
