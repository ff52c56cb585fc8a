import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from refusals import has_code
from trust import vouched

from marpack.errors import SignatureError, UsageError
from marpack.trust.keys import Authority, PrivateKey, PublicKey, chain_of

CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_only_the_public_half_of_a_key_verifies_its_signature(curve):
    private, other = vouched.signer(curve), vouched.signer(curve)
    signature = private.sign(b"weights")
    assert private.public.verifies(signature, b"weights")
    assert not private.public.verifies(signature, b"weights!")
    assert not other.public.verifies(signature, b"weights")
    assert not private.public.verifies(b"no signature", b"weights")


def test_the_fingerprint_is_what_sha256sum_prints_of_the_public_half(tmp_path):
    private, public = vouched.keys_in(tmp_path)
    printed = subprocess.run(["sha256sum", public], capture_output=True, text=True, check=True).stdout
    assert PublicKey.from_pem(public.read_bytes(), where="k").fingerprint == printed.split()[0]
    assert PrivateKey.from_pem(private.read_bytes(), where="k").public.fingerprint == printed.split()[0]


def test_a_key_with_a_password():
    pem = vouched.private_pem(vouched.new_key(), b"secret")
    assert PrivateKey.from_pem(pem, where="k", password=b"secret")
    for password, what in ((None, "has a password, and none was given"), (b"other", "has another password")):
        with pytest.raises(UsageError, match=what):
            PrivateKey.from_pem(pem, where="k", password=password)
    assert PrivateKey.from_pem(vouched.private_pem(vouched.new_key()), where="k", password=b"secret")  # needs none


def test_keys_that_cannot_sign_or_verify():
    rsa_key = rsa.generate_private_key(65537, 2048)
    cannot_sign = {
        "not a private key in PEM form": b"",
        "cannot be read": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "a public key, which cannot sign": vouched.public_pem(vouched.new_key()),
        "not on an elliptic curve": vouched.private_pem(rsa_key),
        "on the curve secp256k1": vouched.private_pem(vouched.new_key(ec.SECP256K1)),
    }
    cannot_verify = {
        "not a public key in PEM form": b"",
        "this is a private key": vouched.private_pem(vouched.new_key()),
        "not on an elliptic curve": vouched.public_pem(rsa_key),
        "on the curve secp224r1": vouched.public_pem(vouched.new_key(ec.SECP224R1)),
        "a certificate, not a public key": b"-----BEGIN CERTIFICATE-----\n",
    }
    for kind, cases in ((PrivateKey, cannot_sign), (PublicKey, cannot_verify)):
        for what, pem in cases.items():
            with pytest.raises(UsageError, match=what) as refused:
                kind.from_pem(pem, where="key.pem")
            assert refused.value.where == "key.pem"


def issued(**changes):
    """Return an authority's certificate, and the chain that it vouches for."""
    root, middle, own = vouched.new_key(), vouched.new_key(), vouched.new_key(ec.SECP384R1)
    top = vouched.certificate("root", root, "root", root, authority=True)
    between = vouched.certificate("middle", middle, "root", root, authority=True)
    leaf = vouched.certificate("Release", own, "middle", middle, **changes)
    return top, chain_of(b"".join(map(vouched.certificate_pem, (leaf, between))), where="c"), own


@pytest.mark.parametrize("purpose", [None, x509.ExtendedKeyUsageOID.CODE_SIGNING])
def test_an_authority_names_the_signer_and_another_does_not(purpose):
    (top, chain, own), (other, _, _) = issued(purpose=purpose), issued()
    name, key = Authority([top]).verify_chain(chain)
    fingerprint = PublicKey.from_pem(vouched.public_pem(own), where="k").fingerprint
    assert (name, key.fingerprint) == ("CN=Release", fingerprint)
    with pytest.raises(SignatureError, check=has_code("untrusted-certificate", "--ca")):
        Authority([other]).verify_chain(chain)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"until": vouched.NOW - vouched.DAY}, "no authority of --ca certifies the signer CN=Release"),
        ({"signing": False}, "its key is not for signatures"),
        ({"purpose": x509.ExtendedKeyUsageOID.SERVER_AUTH}, "its key is not for signing code"),
    ],
    ids=["expired", "other use", "other purpose"],
)
def test_a_certificate_that_cannot_sign(changes, what):
    top, chain, _ = issued(**changes)
    with pytest.raises(SignatureError, match=what):
        Authority([top]).verify_chain(chain)


def test_what_is_no_certificate():
    top, _, _ = issued()
    with pytest.raises(SignatureError, check=has_code("invalid-certificate")):
        Authority([top]).verify_chain([b"not a certificate"])
    with pytest.raises(UsageError, match="not a certificate"):
        Authority.from_pem(b"", where="authority.pem")
