import base64
import json

import msgspec
import pytest
from refusals import has_code
from securesystemslib.dsse import Envelope as OtherEnvelope
from securesystemslib.signer import SSlibKey
from trust import vouched

from marpack.errors import SignatureError, UsageError
from marpack.trust import statements
from marpack.trust.keys import PrivateKey
from marpack.trust.statements import Envelope, ResourceDescriptor, Statement, from_base64, read_bounded, to_base64

SAID = Statement(
    subject=(ResourceDescriptor("m.mar", {"sha256": "0" * 64}),), predicate_type="t", predicate={"b": 1, "a": [2]}
)


@pytest.fixture
def key():
    return PrivateKey.from_pem(vouched.private_pem(vouched.new_key()), where="k")


def test_a_statement_comes_back_as_it_was():
    assert Statement.from_json(SAID.to_json(), where="x") == SAID
    assert json.loads(SAID.to_json())["_type"] == "https://in-toto.io/Statement/v1"


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"", "no statement"),
        (b"[]", "no statement"),
        (b"\xff", "no statement"),
        (b"[" * 100_000, "no statement"),
        (SAID.to_json().replace(b"Statement/v1", b"Statement/v2"), "another kind"),
        (SAID.to_json().replace(b'"predicate"', b'"predicat"'), "predicate"),
    ],
    ids=["empty", "list", "letters", "deep", "version", "field"],
)
def test_what_is_no_statement(payload, what):
    with pytest.raises(SignatureError, match=what):
        Statement.from_json(payload, where="x")


def test_an_envelope_opens_with_its_key_to_the_very_bytes(key):
    payload = b'{ "spaces":  "and order" }'
    assert Envelope.sealed(payload, key).opened(key.public, where="x") == payload


def test_the_envelope_is_one_that_others_verify(key, tmp_path):
    _, public = vouched.keys_in(tmp_path)
    pem = public.read_text()
    private = PrivateKey.from_pem((tmp_path / "signer.pem").read_bytes(), where="k")
    sealed = Envelope.sealed(b"{}", private, keyid=private.public.fingerprint)
    other = SSlibKey(private.public.fingerprint, "ecdsa", "ecdsa-sha2-nistp256", {"public": pem})
    envelope = OtherEnvelope.from_dict(json.loads(msgspec.json.encode(sealed)))
    assert list(envelope.verify([other], 1)) == [private.public.fingerprint]


def changed(envelope, **fields):
    return msgspec.structs.replace(envelope, **fields)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda sealed: {"payload": to_base64(b"other")}, "did not sign this"),
        (lambda sealed: {"payload": sealed.payload + "="}, "no Base64"),
        (lambda sealed: {"payload": sealed.payload + "\n"}, "no Base64"),
        (lambda sealed: {"payload_type": "text/plain"}, "something else than a statement"),
        (lambda sealed: {"signatures": ()}, "did not sign this"),
        (lambda sealed: {"signatures": (changed(sealed.signatures[0], sig=to_base64(b"no")),)}, "did not sign this"),
        (lambda sealed: {"signatures": (changed(sealed.signatures[0], keyid="other"),)}, "names the key other"),
    ],
    ids=["payload", "padding", "newline", "type", "unsigned", "signature", "keyid"],
)
def test_a_changed_envelope_stays_shut(key, change, what):
    sealed = Envelope.sealed(b'{"a":1}', key, keyid=key.public.fingerprint)
    with pytest.raises(SignatureError, match=what):
        changed(sealed, **change(sealed)).opened(key.public, where="x")


def test_one_of_several_signatures_is_enough(key):
    other = PrivateKey.from_pem(vouched.private_pem(vouched.new_key()), where="k")
    mine, theirs = (Envelope.sealed(b"{}", each, keyid=each.public.fingerprint).signatures[0] for each in (key, other))
    both = changed(Envelope.sealed(b"{}", key), signatures=(theirs, mine))
    assert both.opened(key.public, where="x") == both.opened(other.public, where="x") == b"{}"


def test_both_alphabets_of_base64_and_nothing_that_none_writes():
    data = bytes(range(256))
    assert from_base64(to_base64(data), where="x") == data
    assert from_base64(base64.urlsafe_b64encode(data).decode(), where="x") == data
    for text in ("AA", "AB==", "A A=", "é"):
        with pytest.raises(SignatureError, match="no Base64"):
            from_base64(text, where="x")


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(UsageError, check=has_code("file-not-found", "the signature")):
        read_bounded(tmp_path / "x.sig", what="the signature")
    with pytest.raises(UsageError, check=has_code("unreadable-file", "the signature")):
        read_bounded(tmp_path, what="the signature")
    monkeypatch.setattr(statements, "_MAX_FILE", 3)
    (tmp_path / "x.sig").write_bytes(b"1234")
    with pytest.raises(UsageError, check=has_code("file-too-large", "the signature")):
        read_bounded(tmp_path / "x.sig", what="the signature")
