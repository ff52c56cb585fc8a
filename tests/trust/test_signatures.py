import base64
import json
import zipfile
from pathlib import Path

import msgspec
import pytest
from lazy import model_signing
from refusals import has_code
from trust import vouched

from marpack.archive.copying import file_digest
from marpack.errors import DamagedArchiveError, NotAnArchiveError, SignatureError, UsageError
from marpack.trust import signatures
from marpack.trust.keys import Authority, PrivateKey, PublicKey, chain_of
from marpack.trust.signatures import (
    Bundle,
    Envelope,
    ResourceDescriptor,
    Statement,
    from_base64,
    read_bounded,
    sign,
    to_base64,
    verify,
)

DATA = Path(__file__).parents[1] / "data" / "model-signing"
HANDLER = "def handle(data, context):\n    return data\n"


@pytest.fixture
def keys(tmp_path):
    private, public = vouched.keys_in(tmp_path)
    return PrivateKey.from_pem(private.read_bytes(), where="k"), PublicKey.from_pem(public.read_bytes(), where="k")


@pytest.fixture
def signed(make_mar, keys):
    """Return an archive and its signature, beside it."""
    archive = make_mar(HANDLER, files={"weights.bin": bytes(5000)})
    signature = archive.with_name(f"{archive.name}.sig")
    signature.write_bytes(sign(archive, keys[0])[2])
    return archive, signature


def refusal(archive, signature, trusted):
    with pytest.raises(SignatureError) as refused:
        verify(archive, file_digest(archive), signature, trusted)
    return refused.value


def codes(error):
    return [finding.code for finding in error.findings]


def test_we_and_the_official_tool_verify_each_others_signatures(signed, keys, tmp_path):
    judge = model_signing.verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "signer.pub")
    judge.verify(*signed)
    official = tmp_path / "official.sig"
    signer = model_signing.signing.Config().use_elliptic_key_signer(private_key=tmp_path / "signer.pem")
    signer.sign(signed[0], official)
    assert verify(signed[0], file_digest(signed[0]), official, keys[1]).kind == "key"
    with signed[0].open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="mismatch"):
        judge.verify(*signed)
    assert codes(refusal(signed[0], official, keys[1])) == ["signed-file"]


def test_certificates_both_ways(make_mar, tmp_path):
    root, own = vouched.new_key(), vouched.new_key()
    top = vouched.certificate("root", root, "root", root, authority=True)
    leaf = vouched.certificate("Release", own, "root", root)
    (tmp_path / "own.pem").write_bytes(vouched.private_pem(own))
    (tmp_path / "leaf.pem").write_bytes(vouched.certificate_pem(leaf))
    (tmp_path / "root.pem").write_bytes(vouched.certificate_pem(top))
    archive, signature, official = make_mar(HANDLER), tmp_path / "probe.mar.sig", tmp_path / "official.sig"
    key = PrivateKey.from_pem(vouched.private_pem(own), where="k")
    chain = chain_of(vouched.certificate_pem(leaf) + vouched.certificate_pem(top), where="c")
    _, signer, data = sign(archive, key, chain=chain)
    signature.write_bytes(data)
    assert str(signer) == "certificate CN=Release"
    theirs = model_signing.verifying.Config().use_certificate_verifier(certificate_chain=[tmp_path / "root.pem"])
    theirs.verify(archive, signature)
    made = model_signing.signing.Config().use_certificate_signer(
        private_key=tmp_path / "own.pem",
        signing_certificate=tmp_path / "leaf.pem",
        certificate_chain=[tmp_path / "root.pem"],
    )
    made.sign(archive, official)
    for each in (signature, official):
        assert str(verify(archive, file_digest(archive), each, Authority([top]))) == "certificate CN=Release"
    assert refusal(archive, signature, key.public).code == "signed-with-certificate"
    with pytest.raises(UsageError, check=has_code("certificate-key-mismatch")):
        sign(archive, vouched.signer(), chain=chain)


def test_the_specifications_vectors_and_signatures_of_old_versions():
    key = PublicKey.from_pem((DATA / "signing-key-pub.pem").read_bytes(), where="k")
    for version in ("v0.3.1", "v1.0.0"):
        file = DATA / version / "signme-1"
        assert verify(file, file_digest(file), DATA / version / "model.sig", key).name == key.fingerprint
    vectors = {
        "valid/key": "covers 2 files of a folder",
        "valid/certificate": "made with a certificate",
        "valid/sigstore": "keyless Sigstore signature",
        "invalid/empty": "not a valid signature of a model",
        "invalid/missing-envelope": "missing required field `dsseEnvelope`",
        "invalid/missing-verification-material": "missing required field `verificationMaterial`",
        "invalid/missing-tlog-entries": "keyless Sigstore signature",
        "invalid-payload/wrong-predicate": "did not sign this",
    }
    for vector, what in vectors.items():
        assert what in refusal(file, DATA / f"{vector}.bundle.json", key).what
    authority = Authority.from_pem((DATA / "ca-cert.pem").read_bytes(), where="c")
    certified = DATA / "valid" / "certificate.bundle.json"
    signer, _ = Bundle.from_json(certified.read_bytes()).opened(authority)
    assert signer.kind == "certificate"
    assert "covers 2 files" in refusal(file, certified, authority).what


def test_another_authority_or_key_does_not_verify_a_signature(signed):
    top = vouched.new_key()
    authority = Authority([vouched.certificate("root", top, "root", top, authority=True)])
    assert refusal(*signed, authority).code == "signed-with-key"
    assert refusal(*signed, vouched.signer().public).code == "other-signer"


def test_every_changed_byte_of_the_archive_or_the_signature_is_refused(signed, keys):
    archive, signature = signed
    sha256 = file_digest(archive)
    for place in vouched.each_changed_byte(signature):
        with pytest.raises(SignatureError) as refused:
            verify(archive, sha256, signature, keys[1])
        assert refused.value.where, place
    whole = archive.read_bytes()
    for place in range(0, len(whole), 97):
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "signed-file" in codes(refusal(archive, signature, keys[1])), place


def test_differences_are_named_by_container_member_or_file(signed, keys, make_mar):
    archive, signature = signed
    with zipfile.ZipFile(archive, "a") as file:  # `inspect --verify` accepts this
        file.comment = b"appended"
    error = refusal(archive, signature, keys[1])
    assert codes(error) == ["signed-file", "signed-container"]
    assert all(name not in error.findings[1].message for name in ("handler.py", "weights.bin"))
    archive.write_bytes(archive.read_bytes()[:200])
    error = refusal(archive, signature, keys[1])
    assert codes(error) == ["signed-file", "signed-member"]
    assert error.findings[1].where == str(archive)
    make_mar(HANDLER + "\n", files={"other.bin": b"1"})
    error = refusal(archive, signature, keys[1])
    assert codes(error) == ["signed-file", "signed-member", "signed-member", "signed-member"]
    changes = {"handler.py": "differs", "other.bin": "added", "weights.bin": "missing"}
    for finding, (name, change) in zip(error.findings[1:], changes.items(), strict=True):
        assert finding.where == f"{archive}!{name}"
        assert change in finding.message.split()


def resigned(signed, keys, change):
    """Change the statement of a signature with a function, and sign it with the same key."""
    bundle = Bundle.from_json(signed[1].read_bytes())
    statement = json.loads(bundle.dsse_envelope.opened(keys[1]))
    change(statement["predicate"], statement)
    sealed = Envelope.sealed(json.dumps(statement).encode(), keys[0])
    signed[1].write_bytes(msgspec.json.encode(msgspec.structs.replace(bundle, dsse_envelope=sealed)))


def test_the_signed_name_of_a_single_file_must_be_its_own(signed, keys):
    resigned(signed, keys, lambda said, _: said["resources"][0].update(name="probe.mar"))
    assert verify(signed[0], file_digest(signed[0]), signed[1], keys[1])
    resigned(signed, keys, lambda said, _: said["resources"][0].update(name="other.mar"))
    assert codes(refusal(*signed, keys[1])) == ["signed-name"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda _, statement: statement.update(predicateType="https://example.com/x"), "not a list of a model"),
        (lambda said, _: said.pop("resources"), "cannot be read"),
        (lambda said, _: said["resources"].clear(), "covers 0 files"),
        (lambda said, _: said["resources"][0].update(digest="0"), "cannot be read"),
        (lambda said, _: said["serialization"].update(method="shards"), "cannot be read"),
        (lambda said, _: said["serialization"].update(hash_type="blake3"), "cannot be read"),
        (lambda said, _: said["resources"][0].update(algorithm="blake3"), "cannot be read"),
    ],
    ids=["predicate", "missing", "none", "digest", "shards", "hash", "algorithm"],
)
def test_a_signed_statement_of_another_kind(signed, keys, change, what):
    resigned(signed, keys, change)
    assert what in refusal(*signed, keys[1]).what


def test_annotations_list_the_members_and_other_annotations_are_ignored(signed, keys):
    def change(said, statement):
        assert statement["subject"][0]["name"] == "probe.mar"
        (resource,) = said["resources"]
        assert sorted(resource["annotations"]["members"]) == ["MAR-INF/MANIFEST.json", "handler.py", "weights.bin"]
        assert resource["annotations"]["file"] == "probe.mar"
        resource |= {"digest": "0" * 64, "annotations": {"members": ["x"]}}

    resigned(signed, keys, change)
    assert codes(refusal(*signed, keys[1])) == ["signed-file"]


def test_damaged_archives_and_other_files_are_not_signed(make_mar, keys, tmp_path):
    archive = make_mar(HANDLER, files={"weights.bin": bytes(5000)})
    whole = bytearray(archive.read_bytes())
    whole[1000] ^= 1
    archive.write_bytes(whole)
    with pytest.raises(DamagedArchiveError, check=has_code("content-mismatch")):
        sign(archive, keys[0])
    (tmp_path / "x.mar").write_bytes(b"x" * 100)
    with pytest.raises(NotAnArchiveError):
        sign(tmp_path / "x.mar", keys[0])


SAID = Statement(
    subject=(ResourceDescriptor("m.mar", {"sha256": "0" * 64}),), predicate_type="t", predicate={"b": 1, "a": [2]}
)
changed = msgspec.structs.replace


@pytest.fixture
def key():
    return vouched.signer()


def named(payload, key):
    """Return an envelope whose signature names its key, as those of other tools do."""
    sealed = Envelope.sealed(payload, key)
    return changed(sealed, signatures=(changed(sealed.signatures[0], keyid=key.public.fingerprint),))


def test_only_a_valid_statement_is_read():
    assert Statement.from_json(SAID.to_json()) == SAID
    assert json.loads(SAID.to_json())["_type"] == "https://in-toto.io/Statement/v1"
    wrong = dict.fromkeys((b"", b"[]", b"\xff", b"[" * 100_000), "not a valid statement")
    wrong[SAID.to_json().replace(b"Statement/v1", b"Statement/v2")] = "another kind"
    wrong[SAID.to_json().replace(b'"predicate"', b'"predicat"')] = "predicate"
    for payload, what in wrong.items():
        with pytest.raises(SignatureError, match=what):
            Statement.from_json(payload)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda sealed: {"payload": to_base64(b"other")}, "did not sign this"),
        (lambda sealed: {"payload": sealed.payload + "="}, "invalid Base64"),
        (lambda sealed: {"payload": sealed.payload + "\n"}, "invalid Base64"),
        (lambda sealed: {"payload_type": "text/plain"}, "does not contain a statement"),
        (lambda sealed: {"signatures": ()}, "did not sign this"),
        (lambda sealed: {"signatures": (changed(sealed.signatures[0], sig=to_base64(b"no")),)}, "did not sign this"),
        (lambda sealed: {"signatures": (changed(sealed.signatures[0], keyid="other"),)}, "names the key other"),
    ],
    ids=["payload", "padding", "newline", "type", "unsigned", "signature", "keyid"],
)
def test_a_changed_envelope_stays_shut(key, change, what):
    sealed = named(b'{"a":1}', key)
    with pytest.raises(SignatureError, match=what):
        changed(sealed, **change(sealed)).opened(key.public)


def test_one_of_several_signatures_is_enough(key):
    other = vouched.signer()
    mine, theirs = (named(b"{}", each).signatures[0] for each in (key, other))
    both = changed(Envelope.sealed(b"{}", key), signatures=(theirs, mine))
    assert both.opened(key.public) == both.opened(other.public) == b"{}"
    payload = b'{ "spaces":  "and order" }'  # is not normalized
    assert Envelope.sealed(payload, key).opened(key.public) == payload


def test_both_alphabets_of_base64_and_nothing_that_none_writes():
    data = bytes(range(256))
    assert from_base64(to_base64(data)) == data
    assert from_base64(base64.urlsafe_b64encode(data).decode()) == data
    for text in ("AA", "AB==", "A A=", "é"):
        with pytest.raises(SignatureError, match="invalid Base64"):
            from_base64(text)


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(UsageError, check=has_code("file-not-found", "the signature")):
        read_bounded(tmp_path / "x.sig", what="the signature")
    with pytest.raises(UsageError, check=has_code("unreadable-file", "the signature")):
        read_bounded(tmp_path, what="the signature")
    monkeypatch.setattr(signatures, "_MAX_FILE", 3)
    (tmp_path / "x.sig").write_bytes(b"1234")
    with pytest.raises(UsageError, check=has_code("file-too-large", "the signature")):
        read_bounded(tmp_path / "x.sig", what="the signature")
