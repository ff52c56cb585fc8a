"""Keys, certificates and changed files that the tests of this room share."""

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from marpack.trust.keys import PrivateKey

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def new_key(curve=ec.SECP256R1):
    return ec.generate_private_key(curve())


def private_pem(key, password=None):
    cipher = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, cipher)


def signer(curve=ec.SECP256R1):
    return PrivateKey.from_pem(private_pem(new_key(curve)), where="k")


def public_pem(key):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def certificate_pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def certificate(subject, key, issuer, issuer_key, *, authority=False, until=NOW + DAY, signing=True, purpose=None):
    """Return a certificate, with what a signing one needs."""
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (subject, issuer)]
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 3 * DAY)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=signing, key_cert_sign=authority, crl_sign=authority, decipher_only=False, **usage
            ),
            critical=True,
        )
    )
    if purpose is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def keys_in(folder: Path, name="signer"):
    """Write a pair of keys into a folder; return both files."""
    key = new_key()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(private_pem(key))
    private.chmod(0o600)
    public.write_bytes(public_pem(key))
    return private, public


def each_changed_byte(path: Path) -> Iterator[int]:
    """Yield each position of a file but the last, a newline, while one bit of the byte there is flipped."""
    whole = path.read_bytes()
    with path.open("r+b") as file:
        for place in range(len(whole) - 1):
            os.pwrite(file.fileno(), bytes([whole[place] ^ 1]), place)
            yield place
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert path.read_bytes() == whole
